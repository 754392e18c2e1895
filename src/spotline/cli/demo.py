"""`spotline demo`: the main job, end to end, in about a minute."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from spotline.demo.platform import TrueRates
    from spotline.demo.run import DemoProgress, DemoRun
    from spotline.domain.market.market import Market
    from spotline.replay.report import JobReport

_SEED = 7


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    market: Annotated[
        Path | None, typer.Option(help="Market file to replay; a generated one by default.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Jobs to submit; one of several states only model, tokens, deadline and value.",
        ),
    ] = 60,
    out: Annotated[
        Path | None, typer.Option(help="Folder for log, picture and stores; new each run.")
    ] = None,
    json_out: Annotated[
        str, typer.Option("--json", help="Also write the result as JSON to this file (- : stdout).")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the generated market and jobs.")] = _SEED,
    slot: Annotated[
        int,
        typer.Option(
            min=0, help="Slot length, seconds; 0: half an hour, or the market's own if longer."
        ),
    ] = 0,
    slots: Annotated[int, typer.Option(min=16, help="Slots of the market to run at most.")] = 600,
    nats_url: Annotated[
        str, typer.Option(envvar="SPOTLINE_NATS_URL", help="An external NATS; embedded by default.")
    ] = "",
    forecaster: Annotated[str, typer.Option(help="Forecaster by name; empty: the default.")] = "",
    warm_start: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights to start with, from --save-weights."),
    ] = None,
) -> None:
    """Run jobs with deadlines on a market, end to end, and show what it saved.

    Market events go over a real NATS JetStream, jobs over gRPC, provisioning to a simulated cloud.
    """
    from rich.console import Console

    from spotline.adapters.files.weights_file import read_weights
    from spotline.application.selector.state import SelectorOptions
    from spotline.bootstrap.planners import compile_planners, planners_compiled
    from spotline.bootstrap.process import run_to_exit_code
    from spotline.bootstrap.system import SystemOptions
    from spotline.cli.failures import explained
    from spotline.demo.run import run_demo
    from spotline.demo.setup import demo_jobs, demo_market
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
    from spotline.runtime.log import configure_logging

    console = Console(stderr=json_out == "-")
    configure_logging("warning")
    began = time.monotonic()
    started_ns = time.time_ns()
    run_id = time.strftime("demo-%Y%m%dT%H%M%SZ", time.gmtime(started_ns // 1_000_000_000))
    folder = out or Path("runs") / run_id
    with explained():
        traded = demo_market(market, seed=seed, slot_s=slot, most_slots=slots)
        todo = demo_jobs(traded, jobs, seed)
        (folder / "store").mkdir(parents=True, exist_ok=True)
        options = SystemOptions(
            market=traded,
            store=folder / "store",
            nats_url=nats_url,
            forecaster=forecaster or DEFAULT_FORECASTER,
            selector=SelectorOptions(warm_start=read_weights(warm_start)),
            # A demo has no time between its slots to look ahead.
            outlooks=False,
        )
    if not planners_compiled():
        console.print("compiling the planners: once per release, about a minute")
        compile_planners()
    console.print(_opening(traded, jobs, run_id), soft_wrap=True)
    run: list[DemoRun] = []

    async def work() -> None:
        with _shown(console, traded) as told:
            run.append(
                await run_demo(
                    options,
                    todo,
                    folder / "log",
                    run_id=run_id,
                    started_ns=started_ns,
                    seeds={"market": seed, "jobs": seed, "platform": seed},
                    told=told,
                )
            )

    code = run_to_exit_code(work())
    if code or not run:
        console.print("[yellow]stopped before the end; what was recorded is in[/]", folder / "log")
        raise typer.Exit(code or 1)
    result = _report(run[0], folder, console, began)
    if json_out == "-":
        json.dump(result, sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif json_out:
        Path(json_out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _opening(market: Market, jobs: int, run_id: str) -> str:
    from spotline.domain.units import utc_iso

    hours = market.slots * market.slot_s / 3600
    names = ", ".join(offering.offering_id for offering in market.offerings)
    return (
        f"[bold]{run_id}[/]: {jobs} jobs, {market.slots} slots of {market.slot_s // 60} min "
        f"({hours:.0f} h from {utc_iso(market.start_ns)})\noffered: {names}"
    )


class _shown:
    """A line of price, capacity and spend that follows the run."""

    def __init__(self, console: Any, market: Market) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._slots = market.slots
        self._bar = Bar(
            TextColumn("slot {task.completed}/{task.total}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._console = console
        self._task = self._bar.add_task("starting", total=market.slots)
        self._next = 0

    def __enter__(self) -> Callable[[DemoProgress], None]:
        self._bar.start()
        return self._tell

    def __exit__(self, *exit_info: object) -> None:
        self._bar.stop()

    def _tell(self, progress: DemoProgress) -> None:
        if progress.opened is None or not progress.settled:
            return
        text = _line(progress)
        self._bar.update(self._task, completed=progress.slot + 1, description=text)
        if not self._console.is_terminal and progress.slot >= self._next:
            self._next = progress.slot + max(1, self._slots // 8)
            self._console.print(
                f"slot {progress.slot + 1}/{self._slots}  {text}", highlight=False, soft_wrap=True
            )


def _line(progress: DemoProgress) -> str:
    if progress.opened is None:
        return ""
    prices = " ".join(
        f"${sq.quote.spot_price_micro_usd / 1e6:.2f}x"
        f"{sq.quote.spot_available.instances if sq.quote.spot_available.known else '?'}"
        for sq in progress.opened.quotes[:4]
    )
    return (
        f"spot {prices} | jobs {progress.admitted - progress.closed} running, "
        f"{progress.closed}/{progress.jobs} done | held {progress.spot} spot + "
        f"{progress.on_demand} on-demand | ${progress.spent_micro_usd / 1e6:,.0f}"
    )


def _report(run: DemoRun, folder: Path, console: Any, began: float) -> dict[str, Any]:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.replay.plots import plot_job
    from spotline.replay.report import report_of, report_tables
    from spotline.replay.summary import moves_line, regret_line

    report = report_of(EventLogReader(run.log))
    picture = folder / "job.png"
    plot_job(report, picture)
    for table in report_tables(report):
        console.print(table)
    if report.regret is not None:
        line = regret_line(report.regret)
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    moved = moves_line(fared.life for fared in report.jobs)
    if moved:
        console.print(moved, markup=False, highlight=False, soft_wrap=True)
    for job in report.jobs:
        if job.job.configuration is not None:
            _show_configured(job, run.true_rates.get(job.job.job_id), console)
    for name, reason in sorted(run.refused.items()):
        console.print(
            f"{name} could not be completed: {reason}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    result = {
        **run.as_json(report),
        "wall_s": round(time.monotonic() - began, 1),
        "picture": str(picture),
    }
    console.print(
        f"{run.events:,} events in {result['wall_s']} s; ledger ${result['ledger_usd']:,.2f}\n"
        f"log      {run.log}  (spotline replay verify {run.log})\npicture  {picture}",
        highlight=False,
    )
    return result


def _show_configured(ran: JobReport, truth: TrueRates | None, console: Any) -> None:
    """What was filled in of a job, how fast it proved to be, and how it ended."""
    from spotline.cli.jobs_view import print_configuration
    from spotline.domain.units import utc_iso

    job = ran.job
    if job.configuration is None:
        return
    console.print(
        f"\n[bold]{job.name}[/] stated its model, {job.work.amount:g} tokens, a deadline and a "
        "value; the rest was filled in:",
        highlight=False,
    )
    print_configuration(job.configuration, console)
    ended = ran.outcome.value.replace("_", " ") if ran.outcome else "running"
    for line in (
        *_rate_lines(ran, truth),
        f"{ended} ({job.deadline.kind.value} deadline {utc_iso(job.deadline.at_ns)}), "
        f"cost {ran.life.cost_micro_usd / 1e6:,.2f} USD of {job.value_micro_usd / 1e6:,.2f} value"
        + ("" if ran.compared else "; not in the comparison: its own reports say how fast it ran"),
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _rate_lines(report: JobReport, truth: TrueRates | None) -> list[str]:
    """How fast a job was believed to be, how fast its reports showed it to be, and how fast it was."""
    job, count = report.job, report.job.max_instances
    last = report.reestimates[-1] if report.reestimates else None
    index = 0
    if last is not None:
        changed = [a != b for a, b in zip(job.throughputs, last.throughputs, strict=True)]
        index = changed.index(True) if any(changed) else 0
    stated = job.throughputs[index]
    on = f"tokens/h on {count} x {stated.offering}"
    lines = [f"planned on {stated.rate_per_hour(count):.4g} {on}"]
    if truth is not None:
        lines[0] += (
            f"; it really ran at {truth.throughputs[index].rate_per_hour(count):.4g}, "
            f"{truth.factor:.2f} of what was predicted"
        )
    if last is not None:
        found = last.throughputs[index].rate_per_hour(count)
        times = "once" if len(report.reestimates) == 1 else f"{len(report.reestimates)} times"
        lines.append(
            f"re-estimated {times}, last after {last.reports} of {report.reports} reports: "
            f"{found:.4g} {on}, {last.factor_ppm / 1e6:.2f} +- {last.half_width_ppm / 1e6:.2f} of what was planned on"
        )
    return lines
