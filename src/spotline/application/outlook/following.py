"""What the selector knows, folded from the log beside it: what an outlook is worked out from.

The selector applies what it decides directly after the cause, this fold when the stream brings it;
where other events lie between, both come to the same, but for the first slot of a job whose
admission is read after the next slot has opened, which is put right here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.market_view import MarketView
from spotline.application.rollback import Rollback
from spotline.application.selector.fold import fold
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.learning import learner_of
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState, state_at_start
from spotline.domain.events.allocation import AllocationAnswered, ShadowPricesUpdated
from spotline.domain.events.capacity import (
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.law import MarketLawLearned, ValueTableReady
from spotline.domain.events.lifecycle import JobAdmitted
from spotline.domain.events.limits import LimitReached
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.forecasting.law_book import FIRST_AFTER_SLOTS, LawBook
from spotline.domain.limits.breaker import Breaker
from spotline.domain.limits.freezes import Freezes
from spotline.domain.limits.spend_book import SpendBook
from spotline.domain.market.law import law_id_of
from spotline.domain.market.learning_rules import OF_ONE_LAW
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import POOL
from spotline.domain.units import NS_PER_S

FOLLOWED = (
    AllocationAnswered,
    ForecastOverdue,
    LaunchRefused,
    LimitReached,
    MarketLawLearned,
    OfferingProbed,
    PolicyWeightsUpdated,
    ProbeCommanded,
    ShadowPricesUpdated,
    SlotDecided,
    ValueTableReady,
)
"""What has to be consumed for it beside what everybody who follows jobs and market does."""

_BY_DEFAULT = SelectorOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorSnapshot:
    """What the selector knows at one moment, that no later event changes, and how it decides.

    Of the jobs it holds those that run, without what only feedback reads.
    """

    state: SelectorState
    options: SelectorOptions
    pool: tuple[Policy, ...]


class Following:
    """The selector's state, as of the last event that was folded.

    Parameters
    ----------
    options
        Those of the selector that decides: with others, what it will do is told wrong.

    Raises
    ------
    ValueError
        The options do not fit the pool.
    """

    def __init__(self, options: SelectorOptions, pool: Sequence[Policy] = POOL) -> None:
        self.options = options
        self.pool = tuple(pool)
        self._state = state_at_start(options, learner_of(options, self.pool))
        self._rollback = Rollback(self._state)
        self.left_out = 0
        self.last_left_out = ""

    def fold(self, event: Event) -> None:
        """Apply an event, or leave it out as the selector does that parks it.

        What is known here is only looked at: an event that it cannot take is no reason not to take
        it elsewhere. `left_out` counts such events, `last_left_out` says why the last one was.
        """
        try:
            self._apply(self._state, event)
        except Exception as error:  # noqa: BLE001 - nobody foresees what fails: counted and told
            self._state = self._rollback.back(self._apply)
            self.left_out += 1
            self.last_left_out = f"{type(event).__name__}: {type(error).__name__}: {error}"
        else:
            self._rollback.note(self._state, (event,))

    def _apply(self, state: SelectorState, event: Event) -> None:
        fold(state, event, self.options)
        if isinstance(event, JobAdmitted) and event.slot < state.slot:
            run = state.runs[event.job_id]
            late_ns = (state.slot - event.slot) * state.current.slot_s * NS_PER_S
            run.first_slot_start_ns -= late_ns
            run.program = state.program_of(run.job, run.offering_id)

    @property
    def slot(self) -> int:
        """The latest slot, -1 before the first."""
        return self._state.slot

    def running(self) -> list[str]:
        """Ids of the jobs under way."""
        return [run.job.job_id for run in self._state.running()]

    def snapshot(self) -> SelectorSnapshot | None:
        """What is known now, for a thread to work on; None before a slot opened."""
        state = self._state
        if state.opened is None:
            return None
        copied = replace(
            state,
            learner=state.learner.copy(),
            offerings=dict(state.offerings),
            refused=dict(state.refused),
            caps=dict(state.caps),
            limited=dict(state.limited),
            own_caps=dict(state.own_caps),
            runs={
                job_id: _copied(run)
                for job_id, run in state.runs.items()
                if run.phase is RunPhase.RUNNING
            },
            draws={},
            history=list(state.history),
            laws=dict(state.laws),
            shadow=None if state.shadow is None else state.shadow.copied(),
            arrivals=None if state.arrivals is None else state.arrivals.copied(),
            counts={name: list(counts) for name, counts in state.counts.items()},
            stock={name: list(stock) for name, stock in state.stock.items()},
            measuring=copy.copy(state.measuring),
            freezes=Freezes(by_id=dict(state.freezes.by_id)),
            # What is spent and unwell bears on no future: the live state goes on changing it.
            breaker=Breaker(),
            spend=SpendBook(),
            launched=[],
        )
        return SelectorSnapshot(state=copied, options=self.options, pool=self.pool)


def snapshot_of_market(
    market: MarketView, options: SelectorOptions = _BY_DEFAULT
) -> SelectorSnapshot:
    """What a selector knows that has seen the slots of `market`, and no job.

    Raises
    ------
    ValueError
        No slot has opened yet.
    """
    following = Following(options)
    slot_ns = market.slot_ns
    opened = SlotOpened(
        slot=market.next_slot - 1,
        ts_event_ns=market.next_slot_start_ns - slot_ns,
        slot_s=market.slot_s,
        quotes=market.quotes,
    )
    history = market.history or (opened,)
    following.fold(
        MarketOpened(
            offerings=market.offerings,
            slot_s=market.slot_s,
            first_slot_start_ns=history[0].ts_event_ns,
            source="",
        )
    )
    book = LawBook(learning=OF_ONE_LAW)
    for slot in history:
        following.fold(slot)
        book.observe(slot)
    if market.forecast is not None:
        following.fold(market.forecast)
    if book.slots >= FIRST_AFTER_SLOTS:
        for offering_id, law in book.learn().items():
            named = NamedLaw(law_id=law_id_of(law), law=law)
            following.fold(MarketLawLearned(slot=opened.slot, offering_id=offering_id, named=named))
    known = following.snapshot()
    if known is None or not market.quotes:
        raise ValueError("quotes must hold one of an offering that the job can run on, hold none")
    return known


def _copied(run: JobRun) -> JobRun:
    copied = copy.copy(run)
    copied.records = []
    copied.segments = list(run.segments)
    copied.tables = {name: copy.copy(table) for name, table in run.tables.items()}
    return copied
