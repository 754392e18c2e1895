"""A log in which a limit was set is decided again as it was recorded, by what counted since."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import ALLOCATE_CALL
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.limits import LimitKind, LimitSet
from spotline.domain.events.market import MarketOpened
from spotline.domain.limits.spending import Spending
from spotline.domain.modes import Mode, StatedModes
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.host import LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, altered, manifest_of, small_market

MARKET = small_market(slots=40)
POOLS = sorted({offering.quota_pool for offering in MARKET.offerings})
STATED, RAISED, RAISED_IN = 1, 6, 12
LIMITED = {
    **SETTINGS,
    "selector": {
        **SETTINGS["selector"],
        "limits": True,
        "spending": Spending(quotas=dict.fromkeys(POOLS, STATED)).to_json(),
    },
}


@cache
def recorded() -> tuple[StoredEntry, ...]:
    """Jobs under a quota of one instance a pool, which somebody raises in the middle."""
    log: list[StoredEntry] = []
    host = LocalHost(
        [*handlers_of(LIMITED), ExactCloud()],
        answers={ALLOCATE_CALL: answer_in_process},
        record=log.append,
    )
    opened = MarketOpened(
        offerings=MARKET.offerings,
        slot_s=MARKET.slot_s,
        first_slot_start_ns=MARKET.start_ns,
        source=MARKET.source,
    )
    host.publish(opened, source="market_ingest")
    for job in generated_jobs(MARKET, 4, 5):
        host.publish(JobSubmitted(job=job, ts_event_ns=MARKET.start_ns), source="allocator")
    clock = IngestHandler(MARKET, IngestOptions(), modes=StatedModes(run=Mode.LIVE))
    state = clock.initial()
    for slot in range(MARKET.slots):
        if slot == RAISED_IN:
            for pool in POOLS:
                host.publish(raised(pool, slot), source="allocator")
        for event in clock.slot_events(slot, state):
            clock.evolve(state, event)
            host.publish(event, source="market_ingest")
    return tuple(log)


def raised(pool: str, slot: int) -> LimitSet:
    return LimitSet(
        kind=LimitKind.QUOTA,
        key=pool,
        stated=STATED,
        before=STATED,
        most=RAISED,
        by="ada",
        reason="the quota was raised by the cloud",
        slot=slot,
        ts_event_ns=MARKET.start_ns,
    )


def manifest() -> Manifest:
    return replace(manifest_of(recorded()), settings=LIMITED)


def most_decided(slots: range) -> int:
    decided = [event for event in map(event_of, recorded()) if isinstance(event, AllocationDecided)]
    return max(
        sum(lot.spot + lot.on_demand for lot in event.lots)
        for event in decided
        if event.slot in slots
    )


def test_a_raised_limit_counts_from_when_it_was_set():
    assert most_decided(range(RAISED_IN)) == STATED
    assert most_decided(range(RAISED_IN, MARKET.slots)) >= RAISED


def test_its_log_is_decided_again_as_it_was_recorded():
    report = verify(recorded(), handlers_of(LIMITED), manifest(), here=environment())

    assert report.exit_code == SAME, report.divergences
    assert report.decisions["selector"] > 0


def test_a_limit_other_than_what_was_decided_by_is_found():
    log, _ = altered(recorded(), LimitSet, lambda event: replace(event, most=STATED), nth=0)

    report = verify(log, handlers_of(LIMITED), manifest(), here=environment())

    assert report.exit_code == DIVERGED
