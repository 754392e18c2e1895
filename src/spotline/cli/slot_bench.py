"""`spotline bench slot`."""

from __future__ import annotations

import asyncio
import os
import platform
from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)

# Of the issue that asked for batches: what they were to make of a slot.
AIMS = {
    "event_to_first_command_p50_ms": 20.0,
    "event_to_first_command_p99_ms": 100.0,
    "slot_s": 2.0,
    "log_bytes_per_job_and_slot": 400.0,
}


def slot(
    out: JsonOption = None,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that run in every slot.")] = 600,
    slots: Annotated[int, typer.Option(min=1, help="Slots to measure.")] = 12,
    few_jobs: Annotated[
        int, typer.Option(min=0, help="Jobs of a second run, as small as a demo; 0: none.")
    ] = 20,
    few_slots: Annotated[int, typer.Option(min=1, help="Slots of that run.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of every variant, in turns.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of market and jobs.")] = 1,
) -> None:
    """Time slots of all services over a real broker, with batches and with an entry per event."""
    from spotline.bootstrap.planners import compile_planners
    from spotline.contracts.batch import MOST_EVENTS
    from spotline.demo.slot_times import SlotExtent, measure_slots
    from spotline.runtime.log import configure_logging

    configure_logging("warning")
    compile_planners()
    console = open_console()
    tell = teller(console)
    sizes = [(jobs, slots), *([(few_jobs, few_slots)] if few_jobs else [])]
    runs: list[dict[str, Any]] = []
    load_before = os.getloadavg()[0]
    for repeat in range(repeats):
        for size, measured in sizes:
            for variant, most_events in (("batch", MOST_EVENTS), ("each", 1)):
                extent = SlotExtent(jobs=size, slots=measured, seed=seed, most_events=most_events)
                figures = asyncio.run(measure_slots(extent))
                runs.append({"variant": variant, "repeat": repeat, **figures})
                tell(f"{variant}, {size} jobs, {measured} slots: done")
    report = {
        "meta": {
            "command": command_line(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
        },
        "aims": AIMS,
        "runs": runs,
    }
    write_figures(report, out)
    _print(console, report)


def _print(console: Any, report: dict[str, Any]) -> None:
    from spotline.replay.tables import plain_table

    table = plain_table("Slots", "variant")
    for heading in (
        *("jobs", "first command p50 ms", "p99 ms", "slot s", "CPU s/slot", "broker CPU s/slot"),
        *("log messages/slot", "log bytes/job and slot"),
    ):
        table.add_column(heading, justify="right")
    for run in report["runs"]:
        first = run["event_to_first_command_ms"]
        log = run["streams"]["SPOTLINE_0"]
        table.add_row(
            run["variant"],
            str(run["jobs"]),
            f"{first['p50']:.1f}",
            f"{first['p99']:.1f}",
            f"{run['slot_to_next_slot_s']['p50']:.2f}",
            f"{run['cpu_s_per_slot']:.3f}",
            f"{run['broker_cpu_s_per_slot']:.3f}",
            f"{log['messages_per_slot']:.0f}",
            f"{run['log_bytes_per_job_and_slot']:.0f}",
        )
    console.print(table)
    meta, aims = report["meta"], report["aims"]
    console.print(
        f"aims: first command {aims['event_to_first_command_p50_ms']:.0f} / "
        f"{aims['event_to_first_command_p99_ms']:.0f} ms, slot {aims['slot_s']:.0f} s, "
        f"{aims['log_bytes_per_job_and_slot']:.0f} log bytes per job and slot; "
        f"load {meta['load_before']} before, {meta['load_after']} after, {meta['cpus']} CPUs"
    )
