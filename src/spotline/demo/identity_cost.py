"""What it costs to be asked who one is: the same runs with identity and without, in turns.

A busy machine's load changes from minute to minute. So each run with identity has one without right
beside it, every other pair begins with the other one, and what is told are medians over pairs.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.identity import IdentityAt
from spotline.bootstrap.system import SystemOptions
from spotline.demo.run import run_demo
from spotline.demo.setup import demo_jobs, demo_market
from spotline.demo.slot_times import SlotExtent, measure_slots, spread

MOST_PERCENT_MORE = 10.0
"""The aim: so much more, at most, may either figure be with identity."""

VARIANTS = ("off", "on")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostExtent:
    """How much is run: demos of `jobs` jobs, and `slots` timed slots with `slot_jobs`; 0: none."""

    pairs: int = 3
    jobs: int = 60
    most_slots: int = 600
    slots: int = 100
    slot_jobs: int = 20
    seed: int = 7


def turns(pairs: int) -> Iterator[tuple[int, str]]:
    """The pair and the variant of each run: `off on`, `on off`, `off on`..."""
    for pair in range(pairs):
        order = VARIANTS if pair % 2 == 0 else VARIANTS[::-1]
        for variant in order:
            yield pair, variant


def measure_cost(extent: CostExtent, tell: Callable[[str], None]) -> Mapping[str, Any]:
    """Run all pairs one after the other; returns every run and what they come to.

    The first run of all is not counted: caches of files and of compiled kernels fill then.
    """
    runs = []
    if extent.jobs:
        asyncio.run(_demo(extent, identity=False))
        tell("warmed up")
    for pair, variant in turns(extent.pairs):
        run: dict[str, Any] = {"pair": pair, "identity": variant}
        if extent.jobs:
            run["demo"] = asyncio.run(_demo(extent, identity=variant == "on"))
            tell(f"pair {pair + 1}, identity {variant}: demo {run['demo']['wall_s']:.1f} s")
        if extent.slots:
            run["slots"] = asyncio.run(_slots(extent, identity=variant == "on"))
            first = run["slots"]["event_to_first_command_ms"]
            tell(f"pair {pair + 1}, identity {variant}: first command p99 {first['p99']:.1f} ms")
        runs.append(run)
    return {"runs": runs, "cost": compared(runs)}


async def _demo(extent: CostExtent, *, identity: bool) -> dict[str, Any]:
    """One demo as `spotline demo` runs it, from an empty store to its end, seconds."""
    market = demo_market(None, seed=extent.seed, slot_s=0, most_slots=extent.most_slots)
    jobs = demo_jobs(market, extent.jobs, extent.seed)
    with tempfile.TemporaryDirectory(prefix="spotline-identity-") as folder:
        store = Path(folder) / "store"
        began, cpu = time.monotonic(), time.process_time()
        run = await run_demo(
            SystemOptions(
                market=market,
                store=store,
                selector=SelectorOptions(limits=True),
                outlooks=False,
                identity=IdentityAt(store=store) if identity else None,
            ),
            jobs,
            Path(folder) / "log",
            run_id="identity-cost",
            started_ns=time.time_ns(),
            seeds={"market": extent.seed, "jobs": extent.seed, "platform": extent.seed},
        )
        return {
            "wall_s": round(time.monotonic() - began, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "events": run.events,
            "ledger_micro_usd": run.ledger_micro_usd,
        }


async def _slots(extent: CostExtent, *, identity: bool) -> dict[str, Any]:
    figures = await measure_slots(
        SlotExtent(jobs=extent.slot_jobs, slots=extent.slots, seed=extent.seed, identity=identity)
    )
    kept = ("event_to_first_command_ms", "first_commands_ms", "cpu_s_per_slot")
    return {name: figures[name] for name in (*kept, "broker_cpu_s_per_slot")}


# --- what the runs come to ----------------------------------------------------------------------


def compared(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians with identity and without, and by how many percent the first is more.

    `percent_more` is of the medians, `pairs_percent_more` the median over pairs of each pair's own;
    of commands there is also the percentile of all of them together, which few outliers move less.
    """
    found: dict[str, Any] = {}
    demos = _of(runs, lambda run: run.get("demo"))
    if demos:
        found["demo_wall_s"] = _beside(demos, lambda demo: demo["wall_s"])
        found["demo_cpu_s"] = _beside(demos, lambda demo: demo["cpu_s"])
    slots = _of(runs, lambda run: run.get("slots"))
    if slots:
        first = "event_to_first_command_ms"
        found["first_command_p50_ms"] = _beside(slots, lambda slot: slot[first]["p50"])
        found["first_command_p99_ms"] = _beside(slots, lambda slot: slot[first]["p99"])
        pooled = {
            variant: spread(took for slot in slots[variant] for took in slot["first_commands_ms"])
            for variant in VARIANTS
        }
        found["first_command_pooled_p99_ms"] = {
            **{variant: pooled[variant]["p99"] for variant in VARIANTS},
            "percent_more": _percent_more(pooled["on"]["p99"], pooled["off"]["p99"]),
            "n": pooled["off"]["n"],
        }
        found["cpu_s_per_slot"] = _beside(slots, lambda slot: slot["cpu_s_per_slot"])
        found["broker_cpu_s_per_slot"] = _beside(slots, lambda slot: slot["broker_cpu_s_per_slot"])
    return found


def _of(
    runs: Sequence[Mapping[str, Any]], part: Callable[[Mapping[str, Any]], Any]
) -> dict[str, list[Mapping[str, Any]]]:
    """A part of every run, by variant, in the order of pairs; empty where the runs have none."""
    ordered = sorted(runs, key=lambda run: int(run["pair"]))
    found = {
        variant: [part(run) for run in ordered if run["identity"] == variant and part(run)]
        for variant in VARIANTS
    }
    return found if all(found.values()) else {}


def _beside(
    by_variant: Mapping[str, Sequence[Mapping[str, Any]]],
    figure: Callable[[Mapping[str, Any]], float],
) -> dict[str, float]:
    off, on = ([figure(run) for run in by_variant[variant]] for variant in VARIANTS)
    pairs = [_percent_more(with_it, without) for with_it, without in zip(on, off, strict=True)]
    return {
        "off": round(median(off), 4),
        "on": round(median(on), 4),
        "percent_more": _percent_more(median(on), median(off)),
        "pairs_percent_more": round(median(pairs), 1),
    }


def _percent_more(with_it: float, without: float) -> float:
    return round(100.0 * (with_it / without - 1.0), 1) if without else 0.0
