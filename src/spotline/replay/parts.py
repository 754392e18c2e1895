"""What surrounds the selector in a closed loop: an exact cloud, known forecasts, an allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.state import SelectorState
from spotline.application.spec import NOTHING, Call, Context, Outcome, Spec, Timer
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import CapacityReported, ProvisioningCommanded, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.policies.answer import JobAnswer
from spotline.domain.policies.replay import SlotRecord

# --- the cloud --------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ExactCloudState:
    """What every job holds of every offering."""

    held: dict[tuple[str, str], Lot] = field(default_factory=dict)


class ExactCloud:
    """A cloud that gives what it is asked for, at once, and takes nothing inside a slot.

    The selector never asks for more than was quoted; launch delays are in the jobs' overheads.
    """

    spec = Spec(
        service="cloud_actuator",
        consumes=(ProvisioningCommanded, SlotDecided),
        produces=(CapacityReported,),
        decides=(CapacityReported,),
    )

    def initial(self) -> ExactCloudState:
        """Nothing is held."""
        return ExactCloudState()

    def evolve(self, state: ExactCloudState, event: Event) -> None:
        """Carry out a command."""
        if not isinstance(event, ProvisioningCommanded):
            return
        key = (event.job_id, event.target.offering_id)
        if event.target.spot or event.target.on_demand:
            state.held[key] = event.target
        else:
            state.held.pop(key, None)

    def decide(self, state: ExactCloudState, event: Event, ctx: Context) -> Outcome:
        """Report once a revision's commands are out."""
        if not isinstance(event, SlotDecided):
            return NOTHING
        lots: dict[str, tuple[Lot, ...]] = {}
        for (job_id, _), lot in sorted(state.held.items()):
            lots[job_id] = (*lots.get(job_id, ()), lot)
        report = CapacityReported(
            slot=event.slot,
            revision=event.revision,
            offset_s=event.offset_s,
            settled=True,
            holdings=tuple(JobHolding(job_id=job_id, lots=held) for job_id, held in lots.items()),
        )
        return Outcome(events=(report,))

    def due(self, state: ExactCloudState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()


# --- the forecaster ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """What the forecaster service said in a slot: its forecast, and the laws it learned then."""

    forecast: ForecastIssued
    laws: tuple[MarketLawLearned, ...]


class KnownForecasts:
    """Issues forecasts and laws that were made before: one market's, for every policy alike."""

    spec = Spec(
        service="forecaster",
        consumes=(SlotOpened,),
        produces=(ForecastIssued, MarketLawLearned),
        decides=(ForecastIssued, MarketLawLearned),
    )

    def __init__(self, issued: Mapping[int, Issued]) -> None:
        self._issued = issued

    def initial(self) -> None:
        """No state."""

    def evolve(self, state: None, event: Event) -> None:
        """Nothing changes."""

    def decide(self, state: None, event: Event, ctx: Context) -> Outcome:
        """Say what was said in the slot that opened, if anything was."""
        if isinstance(event, SlotOpened) and event.slot in self._issued:
            said = self._issued[event.slot]
            return Outcome(events=(*said.laws, said.forecast))
        return NOTHING

    def due(self, state: None) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()


# --- the allocator ----------------------------------------------------------------------------


def answer_in_process(call: Call) -> tuple[Event, ...]:
    """Answer the selector's call as the allocator service would."""
    request = _request_of(call)
    return (_answered(call, allocate(request)),)


def answer_each_alone(call: Call) -> tuple[Event, ...]:
    """Answer as if every job were alone on the market: none takes what another could have."""
    request = _request_of(call)
    answers: list[JobAnswer] = []
    for task in request.tasks:
        answers.extend(allocate(replace(request, tasks=(task,))).answers)
    return (_answered(call, AllocateAnswer(answers=tuple(answers))),)


def _request_of(call: Call) -> AllocateRequest:
    if not isinstance(call.request, AllocateRequest):
        raise InvariantViolation(f"{call.name} must carry an AllocateRequest")
    return call.request


def _answered(call: Call, answer: AllocateAnswer) -> AllocationAnswered:
    request = _request_of(call)
    return AllocationAnswered(
        slot=request.slot,
        revision=request.revision,
        request_digest=call.digest,
        outcome=CallOutcome.ANSWERED,
        answers=answer.answers,
        spot_worth=answer.spot_worth,
        fairness=answer.fairness,
        probe_worths=answer.probe_worths,
    )


# --- the selector, watched --------------------------------------------------------------------


class WatchedSelector:
    """A selector that also keeps what its state forgets: what jobs were offered, how they ended.

    `offered` holds the records and `tables` the value tables, by offering, of every job that has
    ended (with those of the slots until its feedback, if it gives any), `closed` how jobs ended,
    `decisions` how often an allocation was decided, `advances` where each job stood after each slot.
    """

    def __init__(self, handler: SelectHandler) -> None:
        self.spec = handler.spec
        self.offered: dict[str, tuple[SlotRecord, ...]] = {}
        self.tables: dict[str, dict[str, JobTable]] = {}
        self.closed: dict[str, JobClosed] = {}
        self.decisions = 0
        self.advances: dict[str, list[JobAdvanced]] = {}
        self._handler = handler

    def initial(self) -> SelectorState:
        """The selector's own."""
        return self._handler.initial()

    def evolve(self, state: SelectorState, event: Event) -> None:
        """Note, then apply."""
        if isinstance(event, PolicyWeightsUpdated):
            if event.rehearsed_slot < 0:
                self._note(state, event.job_id)
        elif isinstance(event, JobClosed):
            self.closed[event.job_id] = event
            self._note(state, event.job_id)
        elif isinstance(event, AllocationDecided):
            self.decisions += 1
        elif isinstance(event, JobAdvanced):
            self.advances.setdefault(event.job_id, []).append(event)
        self._handler.evolve(state, event)

    def _note(self, state: SelectorState, job_id: str) -> None:
        run = state.runs[job_id]
        self.offered[job_id] = tuple(run.records)
        self.tables[job_id] = dict(run.tables)

    def decide(self, state: SelectorState, event: Event, ctx: Context) -> Outcome:
        """Whatever the selector decides."""
        return self._handler.decide(state, event, ctx)

    def due(self, state: SelectorState) -> Sequence[Timer]:
        """The selector's own."""
        return self._handler.due(state)

    def offered_to(self, state: SelectorState, job_id: str) -> tuple[SlotRecord, ...]:
        """What a job was offered, slot by slot from its first; so far, if it still runs."""
        run = state.runs[job_id]
        # Until its feedback, the selector goes on noting what a job that has ended was offered.
        return tuple(run.records) or self.offered.get(job_id, ())
