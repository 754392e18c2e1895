"""`spotline bench decision`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from spotline.bench.command_options import open_console


def decision(
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write the numbers to OUT.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=2, help="Jobs to replay one by one.")] = 60,
    market_slots: Annotated[
        int, typer.Option(min=64, help="Slots of the generated market; a job begins at each.")
    ] = 20_000,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of a batch; the median counts.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated market.")] = 1,
) -> None:
    """Measure how fast decisions are: latency, batches, whole pools, value tables."""
    from spotline.bench.decision.measure import DecisionBenchOptions, measure

    report = measure(
        DecisionBenchOptions(jobs=jobs, market_slots=market_slots, repeats=repeats, seed=seed)
    )
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    _print(report)


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    console = open_console()
    machine = report["machine"]
    console.print(
        f"{machine['platform']}, Python {machine['python']}, one of {machine['cores']} cores"
    )
    single = Table("policy, one decision", "decisions/s", "p50 us", "p99 us", "p99 us, once")
    for name, row in report["policies"].items():
        latencies = [f"{row[key]:.0f}" for key in ("p50_us", "p99_us", "p99_once_us")]
        single.add_row(name, f"{row['per_s']:,.0f}", *latencies)
    console.print(single)
    if report["missing"]:
        console.print("not in the registry: " + ", ".join(report["missing"]))
    batch = Table("policy, in batches", "policy-slots/s", "slot by slot", "times")
    for name, row in (*report["thresholds"].items(), *report["value_to_go"].items()):
        fast, plain = row["policy_slots_per_s"], row["python_policy_slots_per_s"]
        batch.add_row(name, f"{fast:,.0f}", f"{plain:,.0f}", f"{fast / plain:,.0f}")
    console.print(batch)
    pool = report["pool"]
    console.print(
        f"{pool['policies']} policies replayed for one job at d = 10: median "
        f"{pool['median_ms']:.1f} ms, p99 {pool['p99_ms']:.1f} ms"
    )
    for deadline, row in report["clairvoyant"].items():
        console.print(
            f"clairvoyant optimum of one job at d = {deadline}: median {row['median_ms']:.2f} ms"
        )
    table = report["value_table"]
    console.print(
        f"value table: {table['build_s']:.2f} s ({table['first_build_s']:.2f} s the first time), "
        f"{table['size_mb']:.1f} MB"
    )
