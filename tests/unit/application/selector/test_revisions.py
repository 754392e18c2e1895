"""A slot that is decided again and again comes to an end."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import RunPhase
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState, SlotPhase
from spotline.application.selector.tables import tables_with_room
from spotline.application.spec import Context, Outcome
from spotline.contracts.mapping import digest
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.law import ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import JobCancelled, JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.program import Holding
from spotline.domain.market.generate import generate
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import CapacityType
from spotline.domain.solvers.table_store import FEWER_TABLES
from spotline.replay.jobs import generated_jobs

MARKET = generate("mixed", seed=2, slots=40, slot_s=1800, start_ns=1_767_571_200_000_000_000)


class Driver:
    """Feeds a selector one event at a time, as its host would."""

    def __init__(self, options: SelectorOptions) -> None:
        self.handler = SelectHandler(options, digest=digest)
        self.state: SelectorState = self.handler.initial()
        self._seq = 0

    def feed(self, event: Event) -> Outcome:
        self._seq += 1
        self.handler.evolve(self.state, event)
        ctx = Context(seq=self._seq, now_ns=0, event_id=f"{self._seq:032x}", correlation_id="c")
        outcome = self.handler.decide(self.state, event, ctx)
        for output in outcome.events:
            self.handler.evolve(self.state, output)
        return outcome


def refusing_driver(options: SelectorOptions) -> tuple[Driver, int]:
    """A selector whose slot runs a job that the cloud refuses everything."""
    driver = Driver(options)
    job = generated_jobs(MARKET, 1, 2)[0]
    driver.feed(
        MarketOpened(
            offerings=MARKET.offerings,
            slot_s=MARKET.slot_s,
            first_slot_start_ns=MARKET.start_ns,
            source="test",
        )
    )
    driver.feed(JobSubmitted(job=job, ts_event_ns=0))
    clock = IngestHandler(MARKET, IngestOptions())
    slot = next(s for s in range(MARKET.slots) if MARKET.slot_starts_ns()[s] >= job.start_ns)
    driver.feed(clock.slot_events(slot)[-1])
    return driver, slot


def refuse(driver: Driver, slot: int, outcome: Outcome) -> Outcome:
    """Nobody answers, so the selector decides itself; then the cloud refuses what it asks for."""
    if outcome.calls:
        outcome = driver.feed(
            AllocationAnswered(
                slot=slot,
                revision=driver.state.revision,
                request_digest=outcome.calls[0].digest,
                outcome=CallOutcome.UNAVAILABLE,
                answers=(),
            )
        )
    run = next(iter(driver.state.runs.values()))
    driver.feed(
        LaunchRefused(
            command_id="c",
            job_id=run.job.job_id,
            tenant=run.job.tenant,
            offering_id=run.offering_id,
            capacity_type=CapacityType.ON_DEMAND,
            slot=slot,
            requested=1,
            granted=0,
            detail="test",
        )
    )
    return driver.feed(
        CapacityReported(
            slot=slot,
            revision=driver.state.revision,
            offset_s=0,
            settled=False,
            holdings=(),
        )
    )


def test_at_the_revision_limit_the_slot_ends_with_what_is_held() -> None:
    driver, slot = refusing_driver(SelectorOptions(most_revisions=2, rehearsals=0))
    outcome = driver.feed(ForecastOverdue(slot=slot, waited_ms=1))

    for _ in range(3):
        outcome = refuse(driver, slot, outcome)

    assert not outcome.calls
    (ended,) = outcome.events
    assert isinstance(ended, SlotDecided)
    assert ended.commands == 0
    assert driver.state.phase is SlotPhase.AWAITING_CAPACITY


def test_a_report_of_an_old_revision_changes_nothing() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    outcome = driver.feed(ForecastOverdue(slot=slot, waited_ms=1))
    refuse(driver, slot, outcome)
    phase, revision = driver.state.phase, driver.state.revision

    late = CapacityReported(slot=slot, revision=0, offset_s=0, settled=True, holdings=())

    assert driver.feed(late) == Outcome()
    assert (driver.state.phase, driver.state.revision) == (phase, revision)


def test_on_demand_that_vanishes_in_mid_slot_is_charged_as_on_demand() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    outcome = driver.feed(ForecastOverdue(slot=slot, waited_ms=1))
    driver.feed(
        AllocationAnswered(
            slot=slot,
            revision=0,
            request_digest=outcome.calls[0].digest,
            outcome=CallOutcome.UNAVAILABLE,
            answers=(),
        )
    )
    run = next(iter(driver.state.runs.values()))
    run.target = Holding(on_demand=4)
    driver.feed(
        CapacityLost(
            job_id=run.job.job_id,
            tenant=run.job.tenant,
            offering_id=run.offering_id,
            instance_ids=("i-1",),
            slot=slot,
            offset_s=600,
        )
    )

    driver.feed(
        CapacityReported(
            slot=slot,
            revision=0,
            offset_s=600,
            settled=False,
            holdings=(
                JobHolding(
                    job_id=run.job.job_id, lots=(Lot(offering_id=run.offering_id, on_demand=3),)
                ),
            ),
        )
    )

    assert [(one.offset_s, one.holding) for one in run.segments] == [
        (0, Holding(on_demand=4)),
        (600, Holding(on_demand=3)),
    ]


def test_a_refusal_of_on_demand_shows_an_outage_that_the_next_decision_allows_for() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    outcome = driver.feed(ForecastOverdue(slot=slot, waited_ms=1))
    first = outcome.calls[0].request

    again = refuse(driver, slot, outcome).calls[0].request

    assert isinstance(first, AllocateRequest)
    assert isinstance(again, AllocateRequest)
    run = next(iter(driver.state.runs.values()))
    assert first.tasks[0].on_demand_reserve_slots == 0
    assert again.tasks[0].on_demand_reserve_slots == 1
    assert driver.state.stock[run.offering_id][-1] == 0
    assert driver.state.on_demand_stock(run.job, run.offering_id) == (1, 0)


def test_a_value_table_knows_how_long_on_demand_has_been_out() -> None:
    driver, _ = refusing_driver(SelectorOptions(rehearsals=0))
    state = driver.state
    run = next(iter(state.runs.values()))
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    always = state.table_spec(named, run.offering_id, run.compiled)

    state.stock[run.offering_id] = [99] * 20 + [0] * 4 + [99] * 20
    sometimes = state.table_spec(named, run.offering_id, run.compiled)

    assert always.on_demand_reserve_slots == 0
    assert sometimes.on_demand_reserve_slots == 4
    assert always.table_id != sometimes.table_id


def test_a_job_cancelled_before_it_started_leaves_the_selector_running() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    later = replace(
        generated_jobs(MARKET, 2, 5)[1],
        job_id="later",
        start_ns=1_767_571_200_000_000_000 + 30 * 1800 * 10**9,
    )
    driver.feed(JobSubmitted(job=later, ts_event_ns=0))
    driver.feed(JobCancelled(job_id="later", tenant=later.tenant))
    clock = IngestHandler(MARKET, IngestOptions())

    for number in (slot + 1, slot + 2):
        driver.feed(clock.slot_events(number)[-1])

    assert driver.state.runs["later"].phase is RunPhase.CLOSED
    assert driver.state.runs["later"].records == []


def test_tables_are_asked_for_while_there_is_room() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    first = next(iter(driver.state.runs.values()))
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    for offering in MARKET.offerings:
        driver.state.laws[offering.offering_id] = named
    clock = IngestHandler(MARKET, IngestOptions())

    def asked(number: int, name: str, taken: int) -> int:
        """Tables asked for when a job arrives while running ones have `taken`."""
        spec = driver.state.table_spec(named, first.offering_id, first.compiled)
        first.tables = {str(k): JobTable(spec=spec, named=named) for k in range(taken)}
        arrival = replace(first.job, job_id=name)
        driver.feed(JobSubmitted(job=arrival, ts_event_ns=0))
        outcome = driver.feed(clock.slot_events(number)[-1])
        return sum(isinstance(event, ValueTableRequested) for event in outcome.events)

    assert asked(slot + 1, "a", 0) > 1
    assert asked(slot + 2, "b", FEWER_TABLES // 2) == 1
    assert asked(slot + 3, "c", FEWER_TABLES) == 0


def test_a_shared_table_is_asked_for_whatever_there_are_and_named_once_it_was_announced() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0, shared_tables=True))
    first = next(iter(driver.state.runs.values()))
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    driver.state.laws = {offering.offering_id: named for offering in MARKET.offerings}
    clock = IngestHandler(MARKET, IngestOptions())
    spec = driver.state.table_spec(named, first.offering_id, first.compiled)
    first.tables = {str(k): JobTable(spec=spec, named=named) for k in range(FEWER_TABLES)}
    driver.feed(JobSubmitted(job=replace(first.job, job_id="a"), ts_event_ns=0))
    outcome = driver.feed(clock.slot_events(slot + 1)[-1])
    asked = [event for event in outcome.events if isinstance(event, ValueTableRequested)]
    (home,) = driver.state.runs["a"].tables.values()
    late = slot + 4

    assert [event.table.offering_id for event in asked] == [home.spec.offering_id]
    assert asked[0].table.taken == 0
    assert driver.state.runs["a"].table_in(late, home.spec.offering_id) is None
    driver.feed(
        ValueTableReady(
            job_id="a",
            tenant=first.job.tenant,
            slot=slot + 1,
            table_id=home.spec.table_id,
            size_bytes=4,
        )
    )
    assert driver.state.runs["a"].table_in(slot + 1, home.spec.offering_id) is None
    assert driver.state.runs["a"].table_in(slot + 2, home.spec.offering_id) is home


def test_places_to_move_to_are_looked_at_in_a_crowd_where_their_class_was_built_before() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0, shared_tables=True))
    first = next(iter(driver.state.runs.values()))
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    driver.state.laws = {offering.offering_id: named for offering in MARKET.offerings}
    driver.feed(JobSubmitted(job=replace(first.job, job_id="a"), ts_event_ns=0))
    outcome = driver.feed(IngestHandler(MARKET, IngestOptions()).slot_events(slot + 1)[-1])
    wanted = [event for event in outcome.events if isinstance(event, ValueTableRequested)]
    last = wanted[-1].table

    assert len(wanted) > 1
    assert tables_with_room(driver.state, wanted, FEWER_TABLES, FEWER_TABLES) == wanted
    assert tables_with_room(driver.state, wanted, 0, FEWER_TABLES) == wanted[:1]
    driver.feed(
        ValueTableReady(job_id="gone", tenant="t", slot=slot, table_id=last.table_id, size_bytes=4)
    )
    assert tables_with_room(driver.state, wanted, 0, FEWER_TABLES) == [
        wanted[0],
        *(asked for asked in wanted[1:] if asked.table.table_id == last.table_id),
    ]


def test_a_job_that_is_over_and_teaches_nothing_keeps_nothing() -> None:
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    run = next(iter(driver.state.runs.values()))
    clock = IngestHandler(MARKET, IngestOptions())
    driver.feed(clock.slot_events(slot + 1)[-1])
    assert run.records

    driver.feed(JobCancelled(job_id=run.job.job_id, tenant=run.job.tenant))
    driver.feed(clock.slot_events(slot + 2)[-1])
    driver.feed(clock.slot_events(slot + 3)[-1])

    assert run.phase is RunPhase.CLOSED
    assert (run.records, run.tables, driver.state.draws) == ([], {}, {})
