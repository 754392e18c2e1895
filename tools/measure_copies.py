"""Measure what keeping a way back costs: copies of each handler's state, and their share of its time.

    python tools/measure_copies.py [SLOTS] [JOBS]

Plays a generated market with the real handlers in one process (default 400 slots, 40 jobs, the
default forecaster) and prints for each service: events applied, copies taken, values in its state,
the time of one copy, the share of all copies in the time of its turns, and what a rollback takes.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.rollback import MOST_EVENTS, Copying, Rollback
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.turn import Turns
from spotline.contracts.mapping import digest
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, forecaster_factory
from spotline.domain.market.generate import generate
from spotline.replay.handlers import handlers_of
from spotline.replay.host import LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process

START_NS = 1_767_225_600_000_000_000


class Timed:
    """Adds up what a function takes, and how often it was called."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.seconds = 0.0
        self.calls = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call it, and add."""
        began = time.perf_counter()
        try:
            return self.function(*args, **options)
        finally:
            self.seconds += time.perf_counter() - began
            self.calls += 1


def main(slots: int, jobs: int) -> None:
    """Play, and print a line per service."""
    market = generate("mixed", seed=3, slots=slots, slot_s=1800, start_ns=START_NS)
    select = SelectHandler(SelectorOptions(rehearsals=2), digest=digest)
    forecast = ForecastHandler(forecaster_factory(DEFAULT_FORECASTER), horizon_slots=12)
    others = [
        handler for handler in handlers_of({}) if handler.spec.service in ("allocator", "placer")
    ]
    host = LocalHost(
        [forecast, select, *others, ExactCloud()],
        answers={ALLOCATE_CALL: answer_in_process},
        record=lambda entry: None,
    )
    takes = {}
    keeps = {}
    for turns in host.hosted:
        takes[turns.service] = turns.take = Timed(turns.take)  # type: ignore[method-assign]
        keeps[turns.service] = turns._rollback._keep = Timed(turns._rollback._keep)  # type: ignore[method-assign]
    _play(host, market, generated_jobs(market, jobs, 5))
    for turns in host.hosted:
        _print(turns, takes[turns.service], keeps[turns.service])


def _play(host: LocalHost, market: Any, jobs: Any) -> None:
    opened = MarketOpened(
        offerings=market.offerings,
        slot_s=market.slot_s,
        first_slot_start_ns=market.start_ns,
        source=market.source,
    )
    host.publish(opened, source="market_ingest")
    for job in jobs:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    clock = IngestHandler(market, IngestOptions())
    for slot in range(market.slots):
        for event in clock.slot_events(slot):
            host.publish(event, source="market_ingest")


def _print(turns: Turns[Any], takes: Timed, keeps: Timed) -> None:
    rollback: Rollback[Any] = turns._rollback
    copying = Copying()
    began = time.perf_counter()
    copying.copied(turns.state)
    copied_s = time.perf_counter() - began
    tail = len(rollback._tail)
    began = time.perf_counter()
    rollback.back(turns._handler.evolve)
    back_s = time.perf_counter() - began
    share = 100 * keeps.seconds / max(takes.seconds, 1e-9)
    print(
        f"{turns.service:14} {takes.calls:6} turns {takes.seconds:7.2f} s, {keeps.calls:4} copies of "
        f"{copying.values:7} values, {1e3 * copied_s:7.2f} ms each: {share:5.2f} %; next after "
        f"{rollback._room} (most {MOST_EVENTS}); back over {tail} events in {1e3 * back_s:.1f} ms"
    )


if __name__ == "__main__":
    stated = [int(text) for text in sys.argv[1:]]
    main(*(stated + [400, 40][len(stated) :]))
