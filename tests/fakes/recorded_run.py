"""A small run, recorded in process: the real handlers on a generated market, an exact cloud."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import EventLogWriter, LogStatus
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import ALLOCATE_CALL
from spotline.application.spec import Handler
from spotline.contracts.build import event_of
from spotline.contracts.codec import encode
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.modes import Mode, StatedModes
from spotline.replay.handlers import handlers_of
from spotline.replay.host import Answer, LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.replay.verify import verify

START_NS = 1_767_225_600_000_000_000
SETTINGS = {
    "selector": {"rehearsals": 2},
    "forecaster": {"forecaster": "river", "horizon_slots": 6},
}


def small_market(*, slots: int = 72, seed: int = 3) -> Market:
    return generate("mixed", seed=seed, slots=slots, slot_s=1800, start_ns=START_NS)


def recorded_run(
    market: Market, jobs: Sequence[Job], *, mode: Mode = Mode.LIVE
) -> list[StoredEntry]:
    """Every entry of a run in which all jobs compete."""
    log: list[StoredEntry] = []
    play([*handlers_of(SETTINGS), ExactCloud()], market, jobs, record=log.append, mode=mode)
    return log


def play(
    handlers: Sequence[Handler[Any]],
    market: Market,
    jobs: Sequence[Job],
    *,
    record: Callable[[StoredEntry], None] | None = None,
    answer: Answer = answer_in_process,
    ingest: IngestOptions | None = None,
    mode: Mode = Mode.LIVE,
) -> LocalHost:
    """Run a market and its jobs through handlers, and return their host."""
    host = LocalHost(handlers, answers={ALLOCATE_CALL: answer}, record=record)
    opened = MarketOpened(
        offerings=market.offerings,
        slot_s=market.slot_s,
        first_slot_start_ns=market.start_ns,
        source=market.source,
        mode=mode if mode.on_paper else None,
    )
    host.publish(opened, source="market_ingest")
    for job in jobs:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    clock = IngestHandler(market, ingest or IngestOptions(), modes=StatedModes(run=mode))
    state = clock.initial()
    for slot in range(market.slots):
        for event in clock.slot_events(slot, state):
            clock.evolve(state, event)
            host.publish(event, source="market_ingest")
    return host


def small_run() -> list[StoredEntry]:
    """Four jobs over a day and a half; run once in a process."""
    return list(_small_run())


@cache
def _small_run() -> tuple[StoredEntry, ...]:
    market = small_market()
    return tuple(recorded_run(market, generated_jobs(market, 4, 5)))


def manifest_of(log: Sequence[StoredEntry]) -> Manifest:
    return Manifest(
        run_id="small",
        stream="SPOTLINE_0",
        started_ns=START_NS,
        environment=environment(),
        settings=SETTINGS,
        first_seq=log[0].seq,
        last_seq=log[-1].seq,
    )


def digest_of(log: Sequence[StoredEntry]) -> str:
    """SHA-256 over every payload of a recorded run, and of what verification recomputes."""
    payloads = hashlib.sha256(b"".join(entry.payload for entry in log)).hexdigest()
    report = verify(log, handlers_of(SETTINGS), manifest_of(log), here=environment())
    return f"{report.exit_code} {payloads} {report.decisions_sha256}"


def write_log(directory, log: Sequence[StoredEntry], manifest: Manifest | None = None) -> None:
    writer = EventLogWriter(directory, manifest or manifest_of(log))
    writer.append(log)
    writer.close(LogStatus.ENDED)


def altered(
    log: Sequence[StoredEntry],
    event_type: type[Event],
    change: Callable[[Event], Event],
    *,
    nth: int,
) -> tuple[list[StoredEntry], int]:
    """The log with its `nth` event of a type changed, and that entry's seq."""
    entries = list(log)
    places = [i for i, entry in enumerate(entries) if isinstance(event_of(entry), event_type)]
    place = places[nth]
    entry = entries[place]
    entries[place] = replace(entry, payload=encode(change(event_of(entry))))
    return entries, entry.seq
