"""Markets with a reservation, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.event import Event
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations
from spotline.domain.units import NS_PER_S
from spotline.replay.handlers import handlers_of
from spotline.replay.host import Answer
from spotline.replay.parts import ExactCloud, answer_in_process
from tests.fakes.recorded_run import play

# Persistence learns nothing: rules about places need no good forecasts.
SETTINGS = {
    "selector": {"rehearsals": 0},
    "forecaster": {"forecaster": "persistence", "horizon_slots": 3},
}


def reserved_of(
    market: Market, *, instances: int, slots: int | None = None, sunk: int = 2_000_000
) -> Offering:
    """A reservation of a market's first offering that covers `slots` slots whole (None: all)."""
    ends_ns = 0
    if slots is not None:
        # It ends in the middle of the next slot.
        ends_ns = market.start_ns + (2 * slots + 1) * market.slot_s * NS_PER_S // 2
    reservation = Reservation(instances=instances, ends_ns=ends_ns, sunk_price_micro_usd=sunk)
    return reserved_offering(market.offerings[0], "block", reservation)


def with_one(market: Market, *, instances: int, slots: int | None = None) -> Market:
    """A market with one reservation, as in `reserved_of`."""
    return with_reservations(market, [reserved_of(market, instances=instances, slots=slots)])


def entries_of_run(
    market: Market,
    jobs: Sequence[Job],
    said: Mapping[int, Event] | None = None,
    answer: Answer = answer_in_process,
) -> list[StoredEntry]:
    """Every entry of a run in which jobs compete; `said` is what others publish, by slot."""
    log: list[StoredEntry] = []
    handlers = [*handlers_of(SETTINGS), ExactCloud()]
    host = play(handlers, market.between(0, 1), jobs, record=log.append, answer=answer)
    clock = IngestHandler(market, IngestOptions())
    for slot in range(1, market.slots):
        for event in clock.slot_events(slot):
            host.publish(event, source="market_ingest")
        if said and slot in said:
            host.publish(said[slot], source="configurator")
    return log


def events_of_run(
    market: Market, jobs: Sequence[Job], said: Mapping[int, Event] | None = None
) -> list[Event]:
    """All that happens in such a run, in order."""
    return [event_of(entry) for entry in entries_of_run(market, jobs, said)]
