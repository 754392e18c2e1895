"""How long a whole slot takes when many jobs run: forecast, decision, commands, encoded as stored.

In one process and without a broker: what the services themselves do in a slot, one after the other.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.pool import Pool
from time import perf_counter, process_time

import numpy as np

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.allocator.handler import JobsHandler, JobsState
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Call, Context, Outcome
from spotline.bench.fleet.jobs import CLASSES, fleet_jobs, instance_slots
from spotline.bench.fleet.policies import SHIPPED
from spotline.bench.fleet.starts import HORIZON_SLOTS
from spotline.bench.quote.worlds import SLOT_S, side_by_side
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.mapping import to_message
from spotline.domain.crowd.search import load_solvers
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, forecaster_factory
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import IntArray, Market
from spotline.replay.closed_loop import no_digest
from spotline.replay.course import slots_of
from spotline.replay.host import LocalHost
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.runtime.collecting import collect_rarely

SLOT_SIZES = ((240, 12), (1000, 12))
_HISTORY_SLOTS = 48
_ARRIVAL_SLOTS = 2
_MEASURED_SLOTS = 12
_DEADLINE_SLOTS = (36, 48)
_LOAD = 0.8
_MB = 1024.0


def time_slots(jobs: int, offerings: int, selector: SelectorOptions = SHIPPED) -> dict[str, float]:
    """Time slots in a process of its own.

    Returns
    -------
    dict
        `slot_p99_s`, `slot_p50_s` and `arrival_max_s` in seconds of wall time, `cpu_p99_s` and
        `cpu_p50_s` of the same slots in seconds of this process alone, all without building value
        tables, which services do beside the slot that asks for them; `with_tables_p99_s` of wall time
        with it. `running_mean` jobs in the slots that were timed, `bytes_per_slot` of encoded
        entries, `request_bytes` of the request with most places that the allocator was sent, and the
        process's greatest `memory_mb`.

    Raises
    ------
    ValueError
        `jobs` or `offerings` < 1.
    """
    if jobs < 1 or offerings < 1:
        raise ValueError(f"jobs and offerings must be >= 1, were {jobs} and {offerings}")
    with get_context("spawn").Pool(1) as pool:
        found: dict[str, float] = _asked(pool, jobs, offerings, selector)
        return found


def _asked(pool: Pool, jobs: int, offerings: int, selector: SelectorOptions) -> dict[str, float]:
    return pool.apply(measure_slots, (jobs, offerings, selector))


def wide_market(offerings: int, slots: int) -> Market:
    """Generated zones and neoclouds side by side, as many as are asked for; seeds 1, 2, ..."""
    parts: list[Market] = []
    while sum(len(part.offerings) for part in parts) < offerings:
        seed = 1 + len(parts) // 2
        preset = ("cloud-zones", "neocloud")[len(parts) % 2]
        part = generate(preset, seed=seed, slots=slots, slot_s=SLOT_S, start_ns=0)
        named = tuple(
            replace(offering, offering_id=f"{offering.offering_id}:{seed}")
            for offering in part.offerings
        )
        parts.append(replace(part, offerings=named))
    market = side_by_side(parts)

    def cut(name: str) -> IntArray:
        array: IntArray = getattr(market, name)[:, :offerings].copy()
        return array

    return replace(
        market,
        offerings=market.offerings[:offerings],
        spot_price_micro_usd=cut("spot_price_micro_usd"),
        on_demand_price_micro_usd=cut("on_demand_price_micro_usd"),
        spot_available=cut("spot_available"),
        spot_provenance=cut("spot_provenance"),
        on_demand_available=cut("on_demand_available"),
        on_demand_provenance=cut("on_demand_provenance"),
        quoted_ns=cut("quoted_ns"),
    )


def _crowded(jobs: int, offerings: int) -> tuple[Market, tuple[Job, ...]]:
    """A market with as much spot as its crowd leaves scarce, and the crowd."""
    end = _HISTORY_SLOTS + _ARRIVAL_SLOTS + 2 * max(_DEADLINE_SLOTS)
    market = wide_market(offerings, end)
    longer = [replace(kind, deadline_slots=_DEADLINE_SLOTS) for kind in CLASSES]
    crowd = fleet_jobs(
        market.between(_HISTORY_SLOTS, end), jobs, 1, classes=longer, arriving=_ARRIVAL_SLOTS
    )
    demanded = sum(instance_slots(job, market.slot_s) for job in crowd)
    alive = market.between(_HISTORY_SLOTS, _HISTORY_SLOTS + max(_DEADLINE_SLOTS))
    factor = demanded / (_LOAD * max(1.0, float(alive.spot_available.sum())))
    scaled = np.rint(market.spot_available * max(factor, 1.0)).astype(np.int64)
    return replace(market, spot_available=scaled), tuple(crowd)


def measure_slots(jobs: int, offerings: int, selector: SelectorOptions) -> dict[str, float]:
    """Time slots in this process; see `time_slots`."""
    # As services do.
    load_solvers()
    collect_rarely()
    market, crowd = _crowded(jobs, offerings)
    encoded = 0

    def record(entry: StoredEntry) -> None:
        nonlocal encoded
        encoded += len(entry.payload)

    allocator, asked = _TablesBeside(), _LargestAsked()
    host = LocalHost(
        [
            ForecastHandler(forecaster_factory(DEFAULT_FORECASTER), horizon_slots=HORIZON_SLOTS),
            SelectHandler(selector, digest=no_digest),
            allocator,
            ExactCloud(),
        ],
        answers={ALLOCATE_CALL: asked},
        run="slots",
        record=record,
    )
    opened = MarketOpened(
        offerings=market.offerings,
        slot_s=market.slot_s,
        first_slot_start_ns=market.start_ns,
        source=market.source,
    )
    host.publish(opened, source="market_ingest")
    for job in crowd:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    spent_s, on_cpu_s, beside_s, running, sizes = [], [], [], [], []
    for slot in slots_of(market)[: _HISTORY_SLOTS + _ARRIVAL_SLOTS + _MEASURED_SLOTS]:
        encoded = 0
        allocator.spent_s = allocator.on_cpu_s = 0.0
        began_s, began_cpu_s = perf_counter(), process_time()
        host.publish(slot, source="market_ingest")
        spent_s.append(perf_counter() - began_s - allocator.spent_s)
        on_cpu_s.append(process_time() - began_cpu_s - allocator.on_cpu_s)
        beside_s.append(allocator.spent_s)
        running.append(len(host.state_of("selector").running()))
        sizes.append(encoded)
    figures = _summed(spent_s, on_cpu_s, beside_s, running, sizes)
    # Behind what is timed, and behind the look at memory.
    return {**figures, "request_bytes": float(asked.size())}


class _LargestAsked:
    """Answers in this process, and keeps the request that says most: of places, of which every task has one."""

    def __init__(self) -> None:
        self._request: AllocateRequest | None = None
        self._places = 0

    def __call__(self, call: Call) -> tuple[Event, ...]:
        request = call.request
        if isinstance(request, AllocateRequest):
            places = sum(1 + len(task.alternatives) for task in request.tasks)
            if places > self._places:
                self._request, self._places = request, places
        return answer_in_process(call)

    def size(self) -> int:
        """Bytes of it as a message."""
        return 0 if self._request is None else to_message(self._request).ByteSize()


class _TablesBeside(JobsHandler):
    """Builds tables before the turns that ask for them, as services do in a thread, and says how long it took."""

    spent_s = on_cpu_s = 0.0

    def decide(self, state: JobsState, event: Event, ctx: Context) -> Outcome:
        """As it does in a service: with the table at hand."""
        work = self.ahead(state, event)
        if work is not None:
            began_s, began_cpu_s = perf_counter(), process_time()
            work()
            self.spent_s += perf_counter() - began_s
            self.on_cpu_s += process_time() - began_cpu_s
        return super().decide(state, event, ctx)


def _summed(
    spent_s: Sequence[float],
    on_cpu_s: Sequence[float],
    beside_s: Sequence[float],
    running: Sequence[int],
    sizes: Sequence[int],
) -> dict[str, float]:
    timed, on_cpu = spent_s[-_MEASURED_SLOTS:], on_cpu_s[-_MEASURED_SLOTS:]
    with_tables = [slot_s + built_s for slot_s, built_s in zip(spent_s, beside_s, strict=True)]
    arriving = spent_s[_HISTORY_SLOTS : _HISTORY_SLOTS + _ARRIVAL_SLOTS]
    return {
        "slot_p50_s": float(np.percentile(timed, 50)),
        "slot_p99_s": float(np.percentile(timed, 99)),
        "with_tables_p99_s": float(np.percentile(with_tables[-_MEASURED_SLOTS:], 99)),
        "cpu_p50_s": float(np.percentile(on_cpu, 50)),
        "cpu_p99_s": float(np.percentile(on_cpu, 99)),
        "arrival_max_s": max(arriving),
        "running_mean": float(np.mean(running[-_MEASURED_SLOTS:])),
        "bytes_per_slot": float(np.mean(sizes[-_MEASURED_SLOTS:])),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MB,
    }
