"""The forecaster: learns from every slot, issues one forecast for it, and laws now and then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

from spotline.application.slot_checks import check_slot
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.forecasting.interface import Forecaster, check_horizon
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.market.law import law_id_of
from spotline.domain.market.learning_rules import FIRST_RULES, LearningRules
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import is_reserved
from spotline.domain.market.prior_laws import NO_PRIORS, PriorLaws
from spotline.domain.units import PPM

SPEC = Spec(
    service="forecaster",
    consumes=(MarketOpened, SlotOpened),
    produces=(ForecastIssued, MarketLawLearned, EntryParked),
    decides=(ForecastIssued, MarketLawLearned),
    # Models learn for milliseconds, laws for longer.
    weight=25,
    long=(SlotOpened,),
)

DEFAULT_HORIZON_SLOTS = 12

_HEAD = re.compile(rb"(-1|[0-9]{1,18}) (-?[0-9]{1,19}) ([0-9]{1,12})")


@dataclass(slots=True, kw_only=True)
class ForecastState:
    """The forecaster itself, the past that laws are learned from, and the last slot learnt.

    That one opened at `opened_ns`.
    """

    forecaster: Forecaster
    book: LawBook = field(default_factory=LawBook)
    slot: int = -1
    opened_ns: int = 0


class ForecastHandler:
    """Turns `SlotOpened(k)` into `ForecastIssued(k)`, and learns the market's laws on the way.

    Parameters
    ----------
    factory
        A forecaster's class, from the registry.
    horizon_slots
        Steps to forecast, >= 1.
    learning
        How laws are learned.
    priors
        Laws from elsewhere, which the market's own are drawn towards.
    """

    spec = SPEC

    def __init__(
        self,
        factory: type[Forecaster],
        *,
        horizon_slots: int = DEFAULT_HORIZON_SLOTS,
        learning: LearningRules = FIRST_RULES,
        priors: PriorLaws = NO_PRIORS,
    ) -> None:
        check_horizon(horizon_slots, horizon_slots)
        self._factory = factory
        self._horizon_slots = horizon_slots
        self._learning = learning
        self._priors = priors

    def initial(self) -> ForecastState:
        """A forecaster without any knowledge."""
        return ForecastState(
            forecaster=self._factory(self._horizon_slots),
            book=LawBook(learning=self._learning),
        )

    def check(self, state: ForecastState, event: Event) -> None:
        """Refuse a slot that cannot be gone on from; see `Checks`."""
        if isinstance(event, SlotOpened) and event.slot > state.slot:
            check_slot(event, state.slot, state.opened_ns)

    def evolve(self, state: ForecastState, event: Event) -> None:
        """Learn from a slot; slots that are not later than the last one teach nothing."""
        match event:
            case SlotOpened() if event.slot > state.slot:
                state.forecaster.learn(_traded(event))
                state.book.observe(event)
                state.slot, state.opened_ns = event.slot, event.ts_event_ns
            case _:
                pass

    def decide(self, state: ForecastState, event: Event, ctx: Context) -> Outcome:
        """Issue the forecast of a slot that was just learnt."""
        match event:
            case SlotOpened() if event.slot == state.slot:
                issued = ForecastIssued(
                    slot=event.slot,
                    model_id=state.forecaster.model_id,
                    forecasts=(
                        *state.forecaster.forecast(self._horizon_slots),
                        *_without_spot(event, self._horizon_slots),
                    ),
                    scores=state.forecaster.scores(),
                )
                # Laws first: a service that has waited for the forecast of a slot knows them too.
                return Outcome(events=(*self._laws(state, event.slot_s), issued))
            case _:
                return NOTHING

    def due(self, state: ForecastState) -> Sequence[Timer]:
        """No timers: slots open by event."""
        return ()

    def _laws(self, state: ForecastState, slot_s: int) -> tuple[MarketLawLearned, ...]:
        """The laws of all offerings, where it is time to learn them again."""
        if not state.book.is_due(self._priors):
            return ()
        return tuple(
            MarketLawLearned(
                slot=state.slot,
                offering_id=offering_id,
                named=NamedLaw(law_id=law_id_of(law), law=law),
            )
            for offering_id, law in sorted(state.book.learn(self._priors, slot_s=slot_s).items())
        )


def _traded(event: SlotOpened) -> SlotOpened:
    """The slot without reservations: there is nothing to learn of these."""
    return replace(
        event, quotes=tuple(quoted for quoted in event.quotes if not is_reserved(quoted.quote))
    )


def _without_spot(event: SlotOpened, horizon_slots: int) -> Iterator[OfferingForecast]:
    """The forecasts of reservations: never any spot."""
    for quoted in event.quotes:
        if is_reserved(quoted.quote):
            step = ForecastStep(
                spot_price_micro_usd=quoted.quote.spot_price_micro_usd,
                counts=(CountProbability(instances=0, probability_ppm=PPM),),
            )
            yield OfferingForecast(
                offering_id=quoted.quote.offering_id, steps=(step,) * horizon_slots
            )


class ForecastStateCodec:
    """Writes and reads the handler's state for snapshots."""

    def __init__(
        self,
        factory: type[Forecaster],
        *,
        horizon_slots: int = DEFAULT_HORIZON_SLOTS,
        learning: LearningRules = FIRST_RULES,
    ) -> None:
        self._factory = factory
        self._horizon_slots = horizon_slots
        self._learning = learning

    @property
    def version(self) -> str:
        """Model, library version, horizon, how laws are learned: a snapshot of any other is to be refolded."""
        done = [name for name, is_done in asdict(self._learning).items() if is_done]
        laws = "".join(f" {name}" for name in done)
        return f"10 {self._factory.state_version} horizon={self._horizon_slots}{laws}"

    def dump(self, state: ForecastState) -> bytes:
        """Write a line with the slot, its time, the length of the law book; that; the forecaster."""
        book = state.book.dump()
        return (
            b"%d %d %d\n" % (state.slot, state.opened_ns, len(book))
            + book
            + state.forecaster.dump()
        )

    def load(self, dumped: bytes) -> ForecastState:
        """Read what `dump` wrote.

        Raises
        ------
        ValueError
            The bytes are not such a state, or come from other versions or another horizon.
        """
        line, _, rest = dumped.partition(b"\n")
        head = _HEAD.fullmatch(line)
        if head is None:
            raise ValueError(
                "a forecaster's snapshot must start with its slot and the length of its law book, "
                "these bytes do not"
            )
        slot, opened_ns, book_bytes = int(head[1]), int(head[2]), int(head[3])
        forecaster = self._factory.load(rest[book_bytes:])
        if forecaster.horizon_slots != self._horizon_slots:
            raise ValueError(
                f"the snapshot must be of horizon {self._horizon_slots}, "
                f"was of {forecaster.horizon_slots}"
            )
        return ForecastState(
            forecaster=forecaster,
            book=LawBook.load(rest[:book_bytes]),
            slot=slot,
            opened_ns=opened_ns,
        )
