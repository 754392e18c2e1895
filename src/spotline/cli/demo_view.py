"""What `spotline demo` says: while it runs, in its last lines, and in detail."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from rich.console import Console

    from spotline.demo.platform import TrueRates
    from spotline.demo.run import DemoProgress, DemoRun
    from spotline.domain.market.market import Market
    from spotline.replay.account import Account
    from spotline.replay.reconcile import AccountChain
    from spotline.replay.report import JobReport

_BAR_WIDTH = 12
_REPORTS = 8


def opening(market: Market, jobs: int, run_id: str) -> str:
    """What is about to run."""
    from spotline.domain.units import utc_iso

    hours = market.slots * market.slot_s / 3600
    names = ", ".join(offering.offering_id for offering in market.offerings)
    return (
        f"{run_id}: {jobs} jobs, {market.slots} slots of {market.slot_s // 60} min "
        f"({hours:.0f} h from {utc_iso(market.start_ns)})\noffered: {names}"
    )


class ProgressShown:
    """A line that follows the run: jobs over and money first, then the rest as far as it fits.

    Where output is no terminal's, a line is printed now and then.
    """

    def __init__(self, console: Console, market: Market) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._slots = market.slots
        self._bar = Bar(
            BarColumn(bar_width=_BAR_WIDTH),
            TextColumn("{task.description}", markup=False),
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
        parts = progress_parts(progress, self._slots)
        if self._console.is_terminal:
            text = fitted(parts, self._console.width - _BAR_WIDTH - 2)
            self._bar.update(self._task, completed=progress.slot + 1, description=text)
        elif progress.slot >= self._next:
            self._next = progress.slot + max(1, self._slots // _REPORTS)
            print_line(" | ".join(parts))


def progress_parts(progress: DemoProgress, slots: int) -> list[str]:
    """How a run stands, what matters most first."""
    parts = [
        f"{progress.closed}/{progress.jobs} jobs over, {progress.spent_micro_usd / 1e6:,.2f} USD",
        f"slot {progress.slot + 1}/{slots}",
        f"{progress.admitted - progress.closed} running on {progress.spot} spot + "
        f"{progress.on_demand} on-demand",
    ]
    if progress.opened is not None:
        prices = ", ".join(
            f"{sq.quote.spot_available.instances if sq.quote.spot_available.known else '?'}"
            f" at {sq.quote.spot_price_micro_usd / 1e6:.2f}"
            for sq in progress.opened.quotes[:4]
        )
        parts.append(f"spot offered, USD/h: {prices}")
    return parts


def fitted(parts: Sequence[str], width: int) -> str:
    """As many parts as fit, the first always: a number that is cut would be another one."""
    text = parts[0]
    for part in parts[1:]:
        longer = f"{text} | {part}"
        if len(longer) > width:
            break
        text = longer
    return text


# --- in detail ------------------------------------------------------------------------------------


def print_detail(
    account: Account, reconciliation: AccountChain, run: DemoRun, result: dict[str, Any]
) -> None:
    """Rules by basis, what was learned, drafts, accounts, and where all is."""
    from spotline.cli.accounts_view import (
        print_job_rows,
        print_learned,
        print_left_out,
        print_reconciliation,
        print_rules,
    )

    report = account.report
    print_rules(account)
    print_left_out(account.left_out)
    late = {job.job.job_id for job in report.jobs if not job.life.on_time}
    if late:
        print_line("\nNot on time:")
        print_job_rows([row for row in account.rows() if row.job_id in late])
    print_line()
    print_learned(
        report.weights, report.rounds, report.regret, [fared.life for fared in report.jobs]
    )
    for job in report.jobs:
        if job.job.configuration is not None:
            _print_configured(job, run.true_rates.get(job.job.job_id))
    print_line()
    print_reconciliation(reconciliation)
    print_line(f"\n{run.events:,} events in {result['wall_s']} s; picture {result['picture']}")
    print_line(f"spotline replay verify {run.log}")
    print_line(f"spotline simulate --log {run.log} --per-job\n")


def _print_configured(ran: JobReport, truth: TrueRates | None) -> None:
    """What was filled in of a job, how fast it proved to be, and how it ended."""
    from spotline.cli.jobs_view import print_configuration
    from spotline.domain.units import utc_iso

    job = ran.job
    if job.configuration is None:
        return
    print_line(
        f"\n{job.name} stated its model, {job.work.amount:g} tokens, a deadline and a value; "
        "the rest was filled in:"
    )
    print_configuration(job.configuration)
    ended = ran.outcome.value.replace("_", " ") if ran.outcome else "running"
    for line in (
        *_rate_lines(ran, truth),
        f"{ended} ({job.deadline.kind.value} deadline {utc_iso(job.deadline.at_ns)}), "
        f"cost {ran.life.cost_micro_usd / 1e6:,.2f} USD of {job.value_micro_usd / 1e6:,.2f} value",
    ):
        print_line(line)


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


def write_result(json_out: str, result: dict[str, Any]) -> None:
    """Write what became of a run as JSON, where that is asked for."""
    from spotline.cli.accounts_view import write_text
    from spotline.cli.failures import explained

    if json_out:
        with explained():
            write_text(json_out, json.dumps(result, indent=2) + "\n")


def compile_once() -> None:
    """Compile the planners where this release has not yet; says so, as it takes a while."""
    from spotline.bootstrap.planners import compile_planners, planners_compiled

    if not planners_compiled():
        print_line("compiling the planners: once per release, about a minute")
        compile_planners()
