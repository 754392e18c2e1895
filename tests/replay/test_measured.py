"""A run whose saves and restarts were measured is verified, up to any of its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from spotline.adapters.eventlog.manifest import environment
from spotline.application.spec import Context, Outcome, Spec, Timer
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.law import ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.training import (
    CheckpointCommitted,
    GenerationFormed,
    TrainingRestarted,
)
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.verify import verify
from tests.fakes.measured_platform import (
    believed_job,
    deciders,
    known_forecasts,
    open_slot,
    opened_host,
    small_market,
)
from tests.fakes.recorded_run import altered, manifest_of
from tests.fakes.training import RUN, committed, formed, reported, restarted

FIRST = 14


class Heard:
    """Notes what the job holds, and its end."""

    spec = Spec(service="heard", consumes=(JobClosed, CapacityReported), produces=())

    def __init__(self) -> None:
        self.lots: tuple[object, ...] = ()
        self.instances = 0
        self.closed: JobClosed | None = None

    def initial(self) -> None:
        return None

    def evolve(self, state: None, event: Event) -> None:
        if isinstance(event, JobClosed):
            self.closed = event
        elif isinstance(event, CapacityReported):
            lots = [lot for held in event.holdings for lot in held.lots]
            self.lots = tuple(lots)
            self.instances = sum(lot.spot + lot.on_demand for lot in lots)

    def decide(self, state: None, event: Event, ctx: Context) -> Outcome:
        return Outcome()

    def due(self, state: None) -> Sequence[Timer]:
        return ()


@lru_cache(maxsize=1)
def recorded() -> tuple[list[StoredEntry], JobOutcome]:
    """A job that tells of each start, each save and its progress, a slot at a time."""
    log: list[StoredEntry] = []
    market = small_market(9, slots=42)
    job = replace(believed_job(market, from_slot=FIRST, deadline_slots=24, hours_of_one=8), run=RUN)
    heard = Heard()
    host = opened_host(
        market,
        [job],
        [known_forecasts(market), *deciders(monitored=False), heard],
        record=log.append,
    )
    rate = job.throughputs[0].alpha
    generation, lots, done = 0, (), 0.0
    for slot in range(market.slots):
        open_slot(host, market, slot)
        if heard.closed is not None or slot < FIRST:
            continue
        told: list[Event] = []
        if heard.lots != lots and heard.lots:
            generation += 1
            told.append(formed(job, generation))
            told.append(restarted(job, generation, restart_s=90 + 11 * slot, done=done))
        lots = heard.lots
        if lots:
            done = min(job.work.amount, done + heard.instances * rate * market.slot_s * 0.9 / 3600)
            told.append(committed(job, generation, slot, done, save_s=20 + slot % 3))
            told.append(reported(job, generation, done, checkpointed=done))
        for event in told:
            host.publish(event, source="allocator")
    assert heard.closed is not None
    return log, heard.closed.outcome


def places(log: list[StoredEntry], event_type: type) -> list[int]:
    return [index for index, entry in enumerate(log) if isinstance(event_of(entry), event_type)]


def test_the_run_holds_all_that_is_to_be_recomputed() -> None:
    log, outcome = recorded()

    assert outcome is JobOutcome.COMPLETED
    for kind in (GenerationFormed, TrainingRestarted, CheckpointCommitted):
        assert len(places(log, kind)) >= 2
    # Tables are asked for again when saves and restarts are known, and fit what the board holds.
    first_save = places(log, CheckpointCommitted)[0]
    again = [place for place in places(log, ValueTableRequested) if place > first_save]
    ready = [place for place in places(log, ValueTableReady) if place > first_save]
    assert again
    assert len(ready) == len(again)


def test_a_run_with_measured_overheads_gives_the_same_decisions() -> None:
    log, _ = recorded()

    report = verify(log, deciders(monitored=False), manifest_of(log), here=environment())

    assert report.exit_code == SAME, report.divergences
    assert report.decisions["selector"] > len(places(log, AllocationDecided)) > 0


def test_the_log_may_end_anywhere_around_the_first_save() -> None:
    log, _ = recorded()
    place = places(log, CheckpointCommitted)[0]

    for end in range(place - 1, place + 4):
        report = verify(log[:end], deciders(monitored=False), manifest_of(log), here=environment())
        assert report.exit_code == SAME, report.divergences


def test_a_save_in_the_log_that_took_longer_is_another_run() -> None:
    log, _ = recorded()
    changed, _ = altered(log, CheckpointCommitted, lambda event: replace(event, save_s=5000), nth=0)

    report = verify(changed, deciders(monitored=False), manifest_of(log), here=environment())

    assert report.exit_code == DIVERGED
