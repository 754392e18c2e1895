"""`spotline observe report` and `spotline shadow report`: what was decided on paper, in money."""

# Imports of what the commands use are inside them: numpy and the policies cost more than `--help`.

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import AsJson
from spotline.cli.failures import explained
from spotline.cli.modes_view import paper_line
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.replay.intervals import Estimate
    from spotline.replay.modes_report import Compared, Figures, ModesReport

_Log = Annotated[
    Path | None, typer.Argument(metavar="[LOG]", help="A recorded log; by default the store's.")
]

observe_app = typer.Typer(
    name="observe",
    help="What runs on paper came to (docs/modes.md).",
    no_args_is_help=True,
)
shadow_app = typer.Typer(
    name="shadow",
    help="What another policy would have made of a run (docs/modes.md).",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(observe_app, name="observe")
    app.add_typer(shadow_app, name="shadow")


@observe_app.callback()
def observe() -> None:
    """What runs on paper came to."""


@shadow_app.callback()
def shadow() -> None:
    """What another policy would have made of a run."""


@observe_app.command("report")
def report_observed(log: _Log = None, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Say what a run on paper would have cost, beside on-demand and simple rules.

    Reads the log alone; nothing needs to run.
    """
    from spotline.replay.modes_report import observe_report

    with explained():
        made = observe_report(_log_of(log, store))
    if as_json:
        typer.echo(json.dumps(made.as_json(), indent=2))
        return
    print_line(paper_line(made.mode), style="yellow")
    _print(made, recorded=f"{made.mode.value} (on paper)")


@shadow_app.command("report")
def report_shadowed(
    log: _Log = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The policy in the shadow, as `spotline policies` lists."
        ),
    ] = "spotline",
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Say what a policy would have made of a run's jobs on the market it saw, and the regret.

    Reads the log alone: the policy decides every slot anew, on paper.
    """
    from spotline.replay.modes_report import shadow_report

    with explained():
        made = shadow_report(_log_of(log, store), policy)
    if as_json:
        typer.echo(json.dumps(made.as_json(), indent=2))
        return
    _print(made, recorded=f"{made.mode.value}, as recorded")
    for compared in made.rules:
        print_line(_regret_text(compared))


def _log_of(log: Path | None, store: Path | None) -> Path:
    return log if log is not None else store_folder(store, quiet=True) / "log"


def _print(made: ModesReport, *, recorded: str) -> None:
    from spotline.replay.intervals import LEAST_JOBS
    from spotline.replay.modes_report import METHOD

    print_line(f"{made.jobs} jobs, {made.total_cost_usd:,.2f} USD in all")
    if made.left_out:
        print_line(f"{len(made.left_out)} are left out:")
        for out in made.left_out:
            print_line(f"  {out.name or out.job_id[:12]}: {out.reason}")
    if made.recorded is None:
        print_line("no job is over yet that could be compared: nothing can be said")
        return
    print_table(
        (
            Column("rule"),
            Column("USD per job", Kind.NUMBER),
            Column("on time", Kind.NUMBER),
            Column("share", Kind.NUMBER, rank=2),
            Column("USD more per job", Kind.NUMBER, rank=1),
        ),
        [
            _row(made.recorded, recorded, made.jobs, None),
            *(
                _row(compared.figures, compared.figures.rule, made.jobs, compared.cost_more_usd)
                for compared in made.rules
            ),
        ],
    )
    if made.believed_cells:
        share = 100 * made.believed_cells / made.cells
        print_line(f"in {share:.0f} % of slots and offerings the spot count is a belief")
    for assumption in made.assumptions:
        print_line(assumption)
    if made.too_few:
        print_line(
            f"no intervals: {made.jobs} jobs are too few to say how sure this is; from "
            f"{LEAST_JOBS} on there are some"
        )
    else:
        print_line(METHOD)


def _row(figures: Figures, name: str, jobs: int, more: Estimate | None) -> tuple[str, ...]:
    return (
        name,
        _with_interval(figures.cost_usd, ",.2f"),
        f"{figures.on_time} of {jobs}",
        _with_interval(figures.on_time_share, ".2f"),
        "" if more is None else _with_interval(more, "+,.2f"),
    )


def _with_interval(found: Estimate, digits: str) -> str:
    mean = format(found.mean, digits)
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{format(found.low, digits)}, {format(found.high, digits)}]"


def _regret_text(compared: Compared) -> str:
    """What the recorded decisions lost, or won, against the policy in the shadow."""
    more = compared.utility_more_usd
    said = _with_interval(more, "+,.2f")
    if not more.decides:
        verdict = "which of the two is better cannot be told from these jobs"
    elif more.mean > 0:
        verdict = f"{compared.figures.rule} would have done better"
    else:
        verdict = f"what was recorded did better than {compared.figures.rule} would have"
    return f"regret against {compared.figures.rule}: {said} USD of utility per job; {verdict}"
