"""`spotline replay`: verify a recorded log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.domain.ledger.sunk import ReservationUse
    from spotline.replay.divergence import VerifyReport

replay_app = typer.Typer(name="replay", help="Replay recorded logs.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(replay_app, name="replay")


@replay_app.callback()
def root() -> None:
    """Replay recorded logs."""


@replay_app.command()
def verify(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a recorded log.")],
    first: Annotated[bool, typer.Option("--first", help="Stop at the first difference.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, help="Differences to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Feed every handler its recorded inputs; it must reproduce its recorded decisions.

    A log that lost entries goes on as another incarnation: each is verified for itself, and what is
    lost is named.
    Exits with 0 if all are the same, 1 if one differs, 2 if the log cannot be read or was recorded
    by another decision version, with other deciding packages or on another platform.
    """
    with explained():
        from spotline.adapters.eventlog.manifest import environment
        from spotline.replay.segments import verify_segments

        segments = verify_segments(log, here=environment(), most=1 if first else most)
    code = max(segment.report.exit_code for segment in segments)
    if as_json:
        # Of the log itself as ever; where it has several incarnations, each of them beside it.
        said = segments[-1].report.as_json() | {"exit_code": code}
        several = len(segments) > 1 or segments[-1].incarnation > 1
        print_json(
            said | ({"segments": [segment.as_json() for segment in segments]} if several else {})
        )
    else:
        for segment in segments:
            for lost in segment.lost if segment is segments[-1] else ():
                print_line(lost.describe(), style="yellow")
            _print(segment.folder, segment.report)
    raise typer.Exit(code)


@replay_app.command()
def weights(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a recorded log.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="For --warm-start.")
    ],
) -> None:
    """Save the weights that a recorded run had learned in the end."""
    with explained():
        from spotline.adapters.eventlog.reader import EventLogReader
        from spotline.adapters.files.weights_file import write_weights
        from spotline.replay.report import learned_in

        reader = EventLogReader(log)
        write_weights(output, learned_in(reader), f"log {reader.manifest.run_id}")


@replay_app.command()
def reservations(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Directory of a recorded log.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show who used how much of what was paid for anyway, and what was idle."""
    with explained():
        from spotline.adapters.eventlog.reader import EventLogReader
        from spotline.domain.ledger.sunk import reservations_used
        from spotline.replay.recorded import readable_events

        used = reservations_used(found.event for found in readable_events(EventLogReader(log)))
    if as_json:
        print_json(plain(used))
        return
    if not used:
        print_line("the market has no reservations")
    for use in used:
        wasted = f"{_usd(use.idle_micro_usd)} of {_usd(use.paid_micro_usd)} sunk for nothing"
        if use.plan:
            hours = _hours(use.used_instance_s)
            print_line(f"{use.offering_id}: {hours} by savings plan {use.plan}, {wasted}")
            _print_shares(use)
            continue
        share = 100 * use.used_instance_s / max(1, use.paid_instance_s)
        print_line(
            f"{use.offering_id}: {share:.1f} % of {_hours(use.paid_instance_s)} used, {wasted}"
        )
        _print_shares(use)


def _print_shares(use: ReservationUse) -> None:
    for part in use.shares:
        hours, sunk = _hours(part.instance_s), _usd(part.sunk_micro_usd)
        print_line(f"  {part.tenant} {part.job_id}: {hours}, {sunk}")


def _hours(instance_s: int) -> str:
    return f"{instance_s / 3600:,.1f} instance-hours"


def _usd(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.2f} USD"


def _print(log: Path, report: VerifyReport) -> None:
    def say(text: str, style: str = "") -> None:
        print_line(text, style=style)

    if report.environment:
        say(
            f"{log} was recorded elsewhere; equal decisions are promised only where these agree:",
            "red",
        )
        for difference in report.environment:
            say(f"  {difference}")
        return
    counts = ", ".join(f"{count:,} of {service}" for service, count in report.decisions.items())
    say(f"{log}: {report.entries:,} entries; decisions recomputed: {counts}")
    say(f"answers of the allocator recomputed: {report.answers:,}")
    _print_passed_over(report)
    for divergence in report.divergences:
        say(divergence.describe(), "red")
    if report.unreadable:
        say(f"unreadable: {report.unreadable}", "red")
    elif not report.divergences:
        say(f"same, sha256 {report.decisions_sha256}", "green")
    elif not report.complete:
        say("stopped there; --max lists more")


def _print_passed_over(report: VerifyReport) -> None:
    """What was not compared, and why."""
    if report.skipped:
        print_line(
            f"{report.skipped:,} unreadable messages, dead-lettered then and passed over now"
        )
    if report.unverified:
        print_line(
            f"{report.unverified:,} statistics not recomputed: the log does not say their settings"
        )
    if report.parked:
        print_line(f"{report.parked:,} events parked by a service then, and left out by it now")
    for taken in report.now_taken:
        print_line(taken.describe(), style="yellow")
    if report.open_inputs:
        print_line(f"the log ends before the decisions on its last {report.open_inputs:,} inputs")
