"""The market's clock: replays a market slot by slot, each one when the last is settled.

A live market has no end: what its feeds say is on the log, and its slots open by time alone.

Where it waits for work, market time stands still while no job and no pipeline needs it. By the wall
clock a slot opens when wall time comes to it. Of a recorded market slots that were missed, because
nobody was there or the machine slept, open at once, one after the other, each with its own time. Of a
live market they are over: the present one opens, and says how many were missed (ADR 0065). No slot
opens twice.

What is said of prices is judged before a slot shows it, where `IngestOptions` says so. All that is
judged with comes from the log: a restart judges as the process before it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from spotline.application.market_ingest.observing import observations
from spotline.application.market_ingest.opening import (
    SlotMoment,
    freeze_events,
    is_own,
)
from spotline.application.market_ingest.said import SaidQuotes
from spotline.application.market_ingest.slot_sources import slot_source
from spotline.application.market_view import WORK_EVENTS, WorkNeeded
from spotline.application.slot_checks import MOST_SKIPPED_SLOTS, check_slot
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer, derive_id
from spotline.application.unfit import NOT_BELIEVED, Unfit
from spotline.contracts.subjects import KINDS
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.limits.market_doubts import DoubtRules, MarketDoubts
from spotline.domain.limits.price_sanity import STANDS_FOR_S, SanityRule
from spotline.domain.limits.quote_age import AgeRule
from spotline.domain.market.disk_prices import with_disk_prices
from spotline.domain.market.grid import AnyMarket, opens_ns
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.offering import Offering
from spotline.domain.market.overrides import NO_OVERRIDES, PriceOverrides
from spotline.domain.modes import LIVE_FROM_THE_START, SPOTLINE, Mode, StatedModes
from spotline.domain.placement.geography import Geography
from spotline.domain.units import NS_PER_S

SPEC = Spec(
    service="market_ingest",
    consumes=(
        MarketOpened,
        SlotOpened,
        QuoteQuarantined,
        *(BuyingFrozen, BuyingUnfrozen),
        CapacityReported,
        EntryParked,
        IncarnationBegun,
        *WORK_EVENTS,
    ),
    produces=(
        *(MarketOpened, QuoteObserved, QuoteQuarantined, RegionObserved, LinkObserved, SlotOpened),
        *(BuyingFrozen, BuyingUnfrozen, AccountModeSet),
        EntryParked,
    ),
)

# What feeds have said comes round by the log.
LIVE_SPEC = replace(SPEC, consumes=(*SPEC.consumes, QuoteObserved))

# How long a slot may take to be settled before the next one opens all the same, by the wall clock.
_SETTLING_S = 10.0
# More than are said when a slot opens: quotes, regions, links, freezes, and the opening.
_MOST_WITH_A_SLOT = 20_000

NO_WAITING_BY_TIME = "a market that runs by wall clock cannot wait for work: choose one of the two"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """How fast a recorded market runs.

    `slot_interval_s` is the pause between slots (0: as fast as decisions come). With `barrier`
    slot k + 1 opens only after slot k is settled; without, time alone opens it, as on a live
    market. With `wait_for_work` the first slot opens at once, and every later one only while a job
    or a pipeline needs it (`IngestState.needed`). With `wall_clock` a slot opens when wall time
    comes to its opening, whatever the interval.

    With `price_sanity` prices are judged before they are shown (`SanityRule`), against the list
    prices that are stated, micro-USD per instance-hour by offering id; what was believed last
    stands for `stands_for_s` where a newer price is not, then no new spot is bought.
    `stale_after_s` is how old quotes may be before no new spot is bought by them, in market time: 0 takes it from their pace
    (`AgeRule`), None lets them grow as old as they will. By default nothing is judged:
    simulations, benchmarks and recorded runs take a market as it is.

    Raises
    ------
    ValueError
        Time alone opens the slots, and they are to wait for work; the wall clock is to, and slots
        are to wait for each other; an age is negative.
    """

    slot_interval_s: float = 0.0
    barrier: bool = True
    wait_for_work: bool = False
    wall_clock: bool = False
    price_sanity: bool = False
    list_prices_micro_usd: Mapping[str, int] = field(default_factory=dict)
    stale_after_s: int | None = None
    stands_for_s: int = STANDS_FOR_S

    def __post_init__(self) -> None:
        if self.wait_for_work and not self.barrier:
            raise ValueError(NO_WAITING_BY_TIME)
        if self.wall_clock and self.barrier:
            raise ValueError("by the wall clock slots must not wait for each other: barrier is set")
        self.rules()

    def rules(self) -> DoubtRules:
        """What is believed, and for how long."""
        stale_after_s = self.stale_after_s
        return DoubtRules(
            price=SanityRule(
                list_prices_micro_usd=self.list_prices_micro_usd, stands_for_s=self.stands_for_s
            )
            if self.price_sanity
            else None,
            age=None if stale_after_s is None else AgeRule(stale_after_s=stale_after_s),
        )


@dataclass(slots=True, kw_only=True)
class IngestState:
    """What was opened so far (`slot` at `opened_ns`), what of it is doubted, and who needs more.

    `frozen` are the ids of the freezes that doubts have begun and not ended, lifted ones as well.
    `said` is what the feeds of a live market have said, `held` are the on-demand instances held by
    offering id, where prices depend on that.
    """

    opened: bool = False
    slot: int = -1
    opened_ns: int = 0
    settled: bool = True
    work: WorkNeeded = field(default_factory=WorkNeeded)
    doubts: MarketDoubts = field(default_factory=MarketDoubts)
    frozen: set[str] = field(default_factory=set)
    said: SaidQuotes = field(default_factory=SaidQuotes)
    held: Mapping[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether anybody needs the next slot."""
        return self.work.needs(self.slot)


# Who settles a slot, and without which of its entries it cannot: the slot is over without it.
_SETTLES: Mapping[str, frozenset[str]] = {
    "selector": frozenset(
        KINDS[kind] for kind in (SlotOpened, ForecastOverdue, CapacityReported, EntryParked)
    ),
    "cloud_actuator": frozenset(KINDS[kind] for kind in (SlotOpened, SlotDecided)),
    SPEC.service: frozenset({KINDS[CapacityReported]}),
}


def _is_ours(parked: EntryParked) -> bool:
    """Whether a slot's entry that was parked is one that this service has opened, by its id."""
    own = (derive_id(SPEC.service, slot_timer(parked.slot), n) for n in range(_MOST_WITH_A_SLOT))
    return parked.event_id in own


def _go_on_without(state: IngestState, parked: EntryParked) -> None:
    """Let the market go on where the report that it waits for will not come, or was not taken.

    The true one still comes where one was not believed.
    """
    if parked.error_type in NOT_BELIEVED:
        return
    if parked.kind == KINDS[SlotOpened] and not _is_ours(parked):
        # Our own slot of that number is still to open, or has opened meanwhile.
        return
    if parked.service == SPEC.service and parked.kind == KINDS[SlotOpened]:
        # It has been opened for all others, and is not opened again.
        if parked.slot == state.slot + 1:
            state.slot = parked.slot
            state.settled = True
    elif parked.slot == state.slot and parked.kind in _SETTLES.get(parked.service, ()):
        state.settled = True


def slot_timer(slot: int) -> str:
    """The id of the timer that opens a slot; those of the entries that it makes come from it."""
    return f"slot:{slot}"


class IngestHandler:
    """Opens the slots of a recorded, generated or live market; its outputs are observations.

    A `geography` is shown along with it: all of it with the first slot, then what changes. `modes`
    are said as the market opens. The time of a live market follows wall time by `clock`. Prices are
    judged as they are listed, and shown as `overrides` say that this buyer pays them.

    Raises
    ------
    ValueError
        The slots of a live market are not to open by the wall clock.
    """

    def __init__(
        self,
        market: AnyMarket,
        options: IngestOptions,
        geography: Geography | None = None,
        modes: StatedModes = LIVE_FROM_THE_START,
        clock: MarketClock = WALL_TIME,
        overrides: PriceOverrides = NO_OVERRIDES,
    ) -> None:
        is_live = isinstance(market, LiveMarket)
        if is_live and not options.wall_clock:
            raise ValueError("wall_clock must be set for a live market, as time opens its slots")
        self.spec = LIVE_SPEC if is_live else SPEC
        self._market = market
        self._modes = modes
        self._options = options
        self._rules = options.rules()
        self._clock = clock
        self._overrides = overrides
        self._source = slot_source(market, clock, self._rules.price)
        self._geography = geography

    def initial(self) -> IngestState:
        """Nothing opened."""
        return IngestState(doubts=MarketDoubts(rules=self._rules), said=self._source.said())

    def evolve(self, state: IngestState, event: Event) -> None:
        """Follow what was opened and settled."""
        match event:
            case MarketOpened():
                state.opened = True
            case SlotOpened() if event.slot > state.slot:
                self._note_slot(state, event)
            case EntryParked():
                _go_on_without(state, event)
            case IncarnationBegun() if self._is_beyond(event.last_slot_before):
                raise Unfit("last_slot_before", f"< {self._source.slots}", event.last_slot_before)
            case IncarnationBegun() if event.last_slot_before >= state.slot:
                # Those slots were open, and paid for, in a part of the log that is lost; so may be
                # what would have settled the last one: nobody says again what was asked for before.
                state.slot = event.last_slot_before
                state.settled = True
            case QuoteQuarantined():
                state.doubts.note_doubt(event.quote, event.field)
            case BuyingFrozen() if is_own(event.freeze.freeze_id):
                state.frozen.add(event.freeze.freeze_id)
            case BuyingUnfrozen() if not event.by:
                # What a person has lifted is not begun again before its reason is gone.
                state.frozen.discard(event.freeze_id)
            case CapacityReported() if event.slot == state.slot:
                # What the cloud tells of a settled slot opens it again.
                state.settled = event.settled
                if self._overrides.stated:
                    state.held = _on_demand_held(event)
            case _:
                state.work.fold(event, state.slot)
        self._source.fold(state.said, event)

    def _note_slot(self, state: IngestState, event: SlotOpened) -> None:
        missed = event.missed if state.slot >= 0 else 0
        if event.slot != state.slot + 1 + missed or self._is_beyond(event.slot):
            # It opens them itself, one after the other, or says how many it has left out.
            slots = self._source.slots
            following = state.slot + 1 if slots is None else min(state.slot + 1, slots - 1)
            raise Unfit("slot", f"{following}, the next one of the market", event.slot)
        check_slot(event, state.slot, state.opened_ns)
        state.slot, state.opened_ns = event.slot, event.ts_event_ns
        state.settled = False
        state.doubts.note_slot(
            tuple(quoted.as_listed for quoted in event.quotes), event.ts_event_ns
        )

    def _is_beyond(self, slot: int) -> bool:
        """Whether the market has ended before a slot."""
        return self._source.slots is not None and slot >= self._source.slots

    def decide(self, state: IngestState, event: Event, ctx: Context) -> Outcome:
        """Nothing follows but time: see `due`."""
        return NOTHING

    def due(self, state: IngestState) -> Sequence[Timer]:
        """The next thing to open, if its time has come."""
        market = self._market
        if not state.opened:
            opened = MarketOpened(
                offerings=market.offerings,
                slot_s=market.slot_s,
                first_slot_start_ns=market.start_ns,
                source=market.source,
                ends_ns=self._source.ends_ns,
                waits_for_work=self._options.wait_for_work,
                mode=self._said_mode,
            )
            begun = tuple(account_modes(market.offerings, self._modes))
            return (Timer(timer_id="market_opened", after_s=0.0, events=(opened, *begun)),)
        following = state.slot + 1
        if self._is_beyond(following):
            return ()
        if self._options.barrier and not state.settled:
            return ()
        if self._options.wait_for_work and not state.needed:
            return ()
        by_clock = self._options.wall_clock
        timer = Timer(
            timer_id=slot_timer(following),
            after_s=self._pause_s(following, state),
            not_before_ns=self._source.not_before_ns(following) if by_clock else 0,
            events=self.slot_events(following, state),
            needs_gate=True,
        )
        if isinstance(market, LiveMarket) and following:
            timer = replace(timer, late=partial(self._present, timer, state))
        return (timer,)

    def _present(self, timer: Timer, state: IngestState, now_ns: int) -> Timer:
        """What opens at a moment of wall time: slots that are over by then do not."""
        market = self._market
        passed_ns = self._clock.market_at(now_ns) - market.start_ns
        slot = min(passed_ns // (market.slot_s * NS_PER_S), state.slot + MOST_SKIPPED_SLOTS)
        if slot <= state.slot + 1:
            return timer
        return replace(
            timer, timer_id=slot_timer(slot), events=self.slot_events(slot, state), late=None
        )

    def slot_events(self, slot: int, state: IngestState | None = None) -> tuple[Event, ...]:
        """What changed since the slot before (quotes, regions, links), then the opening itself.

        What is said of prices is judged by what `state` knows; without, as nothing is known. Slots
        between the last one that it knows and this one were missed.
        """
        state = state or self.initial()
        market, source = self._market, self._source
        missed = slot - state.slot - 1 if state.slot >= 0 else 0
        found = source.judged(slot, state.said, state.doubts)
        moment = SlotMoment(slot=slot, ts_event_ns=opens_ns(market, slot))
        stands = tuple(each.judged.stands for each in found)
        opened = SlotOpened(
            slot=slot,
            ts_event_ns=moment.ts_event_ns,
            slot_s=market.slot_s,
            quotes=with_disk_prices(
                market.offerings,
                self._overrides.applied(market.offerings, stands, moment.ts_event_ns, state.held),
            ),
            last=source.slots is not None and slot == source.slots - 1,
            mode=self._said_mode,
            missed=missed,
        )
        return (
            *source.told(slot, found, state.said, state.doubts),
            *self._observed(slot, slot - missed - 1, moment.ts_event_ns),
            *freeze_events(found, state.frozen, moment),
            opened,
        )

    @property
    def _said_mode(self) -> Mode | None:
        """The mode where it is not what logs always were: those stay as they were."""
        return self._modes.run if self._modes.run.on_paper else None

    def _pause_s(self, slot: int, state: IngestState) -> float:
        """How long to wait before a slot opens, whatever the wall clock says."""
        options = self._options
        if options.wall_clock:
            # Of slots that were missed each is settled before the next, where that does not take
            # so long that time itself is held up.
            if not state.settled:
                return min(_SETTLING_S, self._market.slot_s / self._clock.market_s_per_s)
            return self._source.waits_s(slot, state.said)
        return options.slot_interval_s if slot else 0.0

    def _observed(self, slot: int, before: int, ts_event_ns: int) -> tuple[Event, ...]:
        """What differs from the slot that opened `before`."""
        if self._geography is None:
            return ()
        slot_s = self._market.slot_s
        return observations(
            self._geography,
            at_s=slot * slot_s,
            before_s=before * slot_s if slot else None,
            ts_event_ns=ts_event_ns,
        )


def _on_demand_held(reported: CapacityReported) -> dict[str, int]:
    held: dict[str, int] = {}
    for lot in (lot for holding in reported.holdings for lot in holding.lots):
        held[lot.offering_id] = held.get(lot.offering_id, 0) + lot.on_demand
    return held


def account_modes(offerings: Iterable[Offering], modes: StatedModes) -> Iterator[AccountModeSet]:
    """What the accounts of a live run begin in, where nothing is bought before they are promoted."""
    if modes.run.on_paper:
        return
    for account in sorted({offering.account_key for offering in offerings}):
        # Of an account of which nothing is said everybody takes that it is live.
        if modes.of(account) is not Mode.LIVE:
            yield AccountModeSet(
                account=account,
                mode=modes.of(account),
                by=SPOTLINE,
                reason="an account of a real cloud begins so",
            )
