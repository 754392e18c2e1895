"""The market's clock: replays a market slot by slot, each one when the last is settled.

Where it waits for work, market time stands still while no job and no pipeline needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.market_ingest.observing import observations
from spotline.application.market_view import WORK_EVENTS, WorkNeeded
from spotline.application.slot_checks import check_slot
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.application.unfit import Unfit
from spotline.contracts.subjects import KINDS
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.market.market import Market
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.placement.geography import Geography
from spotline.domain.units import NS_PER_S

SPEC = Spec(
    service="market_ingest",
    consumes=(
        MarketOpened,
        SlotOpened,
        CapacityReported,
        EntryParked,
        IncarnationBegun,
        *WORK_EVENTS,
    ),
    produces=(
        *(MarketOpened, QuoteObserved, QuoteQuarantined, RegionObserved, LinkObserved, SlotOpened),
        *(BuyingFrozen, BuyingUnfrozen),
        EntryParked,
    ),
)

NO_WAITING_BY_TIME = "a market that runs by wall clock cannot wait for work: choose one of the two"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """How fast a recorded market runs.

    `slot_interval_s` is the pause between slots (0: as fast as decisions come). With `barrier`
    slot k + 1 opens only after slot k is settled; without, time alone opens it, as on a live
    market. With `wait_for_work` the first slot opens at once, and every later one only while a job
    or a pipeline needs it (`IngestState.needed`).

    Raises
    ------
    ValueError
        Time alone opens the slots, and they are to wait for work.
    """

    slot_interval_s: float = 0.0
    barrier: bool = True
    wait_for_work: bool = False

    def __post_init__(self) -> None:
        if self.wait_for_work and not self.barrier:
            raise ValueError(NO_WAITING_BY_TIME)


@dataclass(slots=True, kw_only=True)
class IngestState:
    """What was opened so far (`slot` at `opened_ns`), and who needs more."""

    opened: bool = False
    slot: int = -1
    opened_ns: int = 0
    settled: bool = True
    work: WorkNeeded = field(default_factory=WorkNeeded)

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


def _go_on_without(state: IngestState, parked: EntryParked) -> None:
    """Let the market go on where the report that it waits for will not come, or was not taken."""
    if parked.service == SPEC.service and parked.kind == KINDS[SlotOpened]:
        # It has been opened for all others, and is not opened again.
        if parked.slot == state.slot + 1:
            state.slot = parked.slot
            state.settled = True
    elif parked.slot == state.slot and parked.kind in _SETTLES.get(parked.service, ()):
        state.settled = True


class IngestHandler:
    """Opens the slots of a recorded or generated market; its outputs are observations.

    A `geography` is shown along with it: all of it with the first slot, then what changes.
    """

    spec = SPEC

    def __init__(
        self, market: Market, options: IngestOptions, geography: Geography | None = None
    ) -> None:
        self._market = market
        self._options = options
        self._geography = geography

    def initial(self) -> IngestState:
        """Nothing opened."""
        return IngestState()

    def evolve(self, state: IngestState, event: Event) -> None:
        """Follow what was opened and settled."""
        match event:
            case MarketOpened():
                state.opened = True
            case SlotOpened() if event.slot >= self._market.slots:
                raise Unfit("slot", f"< {self._market.slots}", event.slot)
            case SlotOpened() if event.slot > state.slot:
                check_slot(event, state.slot, state.opened_ns)
                state.slot, state.opened_ns = event.slot, event.ts_event_ns
                state.settled = False
            case EntryParked():
                _go_on_without(state, event)
            case IncarnationBegun() if event.last_slot_before > state.slot:
                # Those slots were open, and paid for, in a part of the log that is lost.
                state.slot = event.last_slot_before
                state.settled = True
            case CapacityReported() if event.slot == state.slot:
                # What the cloud tells of a settled slot opens it again.
                state.settled = event.settled
            case _:
                state.work.fold(event, state.slot)

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
                ends_ns=int(market.slot_starts_ns()[-1]) + market.slot_s * NS_PER_S,
                waits_for_work=self._options.wait_for_work,
            )
            return (Timer(timer_id="market_opened", after_s=0.0, events=(opened,)),)
        following = state.slot + 1
        if following >= market.slots:
            return ()
        if self._options.barrier and not state.settled:
            return ()
        if self._options.wait_for_work and not state.needed:
            return ()
        return (
            Timer(
                timer_id=f"slot:{following}",
                after_s=self._options.slot_interval_s if following else 0.0,
                events=self.slot_events(following),
                needs_gate=True,
            ),
        )

    def slot_events(self, slot: int) -> tuple[Event, ...]:
        """What changed since the slot before (quotes, regions, links), then the opening itself."""
        market = self._market
        quotes = market.quotes(slot)
        before = market.quotes(slot - 1) if slot else ()
        known = {quote.offering_id: quote for quote in before}
        changed = [quote for quote in quotes if quote != known.get(quote.offering_id)]
        ts_event_ns = int(market.slot_starts_ns()[slot])
        opened = SlotOpened(
            slot=slot,
            ts_event_ns=ts_event_ns,
            slot_s=market.slot_s,
            quotes=tuple(
                SlotQuote(quote=quote, age_s=quote.age_s(ts_event_ns)) for quote in quotes
            ),
            last=slot == market.slots - 1,
        )
        return (
            *(QuoteObserved(quote=quote) for quote in changed),
            *self._observed(slot, ts_event_ns),
            opened,
        )

    def _observed(self, slot: int, ts_event_ns: int) -> tuple[Event, ...]:
        if self._geography is None:
            return ()
        slot_s = self._market.slot_s
        return observations(
            self._geography,
            at_s=slot * slot_s,
            before_s=(slot - 1) * slot_s if slot else None,
            ts_event_ns=ts_event_ns,
        )
