"""`spotline assess`: what the jobs on a bill would have cost otherwise, from files alone."""

# numpy, numba and pyarrow load inside the command: --help must not wait for them.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline import __version__
from spotline.cli.calls import AsJson
from spotline.cli.failures import explained, writable
from spotline.cli.jobs_view import print_json
from spotline.contracts.errors import ContractError
from spotline.domain.jobs.job import DEFAULT_CHECKPOINT_INTERVAL_S, DEFAULT_OVERHEADS

if TYPE_CHECKING:
    from spotline.adapters.assessment.sources import AssessmentSources
    from spotline.application.assessment.assumptions import Assumptions

_SLACKS = "1.0,1.2,1.5,2.0"
_SPOT_SHARE = "0.333333"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(assess)


def assess(
    bill: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A bill's export, or a folder of its files: FOCUS, AWS or Google Cloud; .csv, .parquet.",
        ),
    ],
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What ran behind it: of SkyPilot, Kueue, Slurm, or jobs.csv."
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Spot prices: aws ec2 describe-spot-price-history."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Page to write.")
    ] = None,
    as_json: AsJson = False,
    slack: Annotated[
        str,
        typer.Option(
            metavar="X[,X...]",
            help="Deadlines to answer for, in times of the time that each job took.",
        ),
    ] = _SLACKS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the futures that are drawn.")] = 0,
    futures: Annotated[int, typer.Option(min=1, max=1000, help="How many are drawn.")] = 60,
    launch: Annotated[
        int, typer.Option(min=0, help="Seconds without progress at every start.")
    ] = DEFAULT_OVERHEADS.launch_s,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Seconds of work that an interruption throws away.")
    ] = DEFAULT_CHECKPOINT_INTERVAL_S,
    spot_price_share: Annotated[
        str,
        typer.Option(
            metavar="X", help="Spot's share of the list price, where no history or bill says it."
        ),
    ] = _SPOT_SHARE,
) -> None:
    """Say what the jobs on a bill cost, and would have cost otherwise: on demand, on spot, by Spotline.

    Reads the files that it is given and nothing else: no network, no credentials, no broker. Bills hold
    no deadlines: the answer is for several. They do not say when spot was there: that is drawn from
    prior laws, and the answer says how much of it takes to break even.
    """
    with explained(as_json=as_json):
        from spotline.adapters.assessment.as_json import as_json as told_as_json
        from spotline.adapters.assessment.page import write_page
        from spotline.adapters.bills.assessing import read_assessed
        from spotline.application.assessment.assess import assess as answer
        from spotline.cli.assess_view import print_assessment

        assumptions = _assumptions(
            slack,
            seed=seed,
            futures=futures,
            launch_s=launch,
            lost_s=checkpoint_every,
            spot_share=spot_price_share,
        )
        if html is not None and not html.absolute().parent.is_dir():
            # Said before minutes of work, not after.
            raise ContractError(str(html), "expected a place to write to, found no such folder")
        sources = _sources(bill, jobs, prices, assumptions)
        told = answer(read_assessed(bill, jobs=jobs, prices=prices), assumptions)
        if html is not None:
            with writable(html):
                write_page(html, told, sources)
    if as_json:
        print_json(told_as_json(told, sources))
    else:
        print_assessment(told, html)


def _assumptions(
    slack: str, *, seed: int, futures: int, launch_s: int, lost_s: int, spot_share: str
) -> Assumptions:
    from spotline.application.assessment.assumptions import Assumptions

    default = Assumptions()
    return Assumptions(
        slacks_ppm=tuple(_millionths("--slack", part) for part in slack.split(",")),
        launch_s=launch_s,
        lost_s=lost_s,
        spot_share_ppm=default.spot_share_ppm
        if spot_share == _SPOT_SHARE
        else _millionths("--spot-price-share", spot_share),
        futures=futures,
        most_lived=default.most_lived,
        seed=seed,
    )


def _millionths(option: str, text: str) -> int:
    from decimal import Decimal, InvalidOperation

    from spotline.domain.units import PPM

    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number <= PPM:
        raise ContractError(option, f"expected a number such as 1.5, found {text!r}")
    return int(number * PPM)


def _sources(
    bill: Path, jobs: Path | None, prices: Path | None, assumptions: Assumptions
) -> AssessmentSources:
    from spotline.adapters.assessment.sources import AssessmentSources, command_words, read_file
    from spotline.adapters.bills.reading import files_of
    from spotline.application.assessment.words import factor

    options = {"--bill": bill, "--jobs": jobs, "--prices": prices}
    named = {option: path for option, path in options.items() if path is not None}
    files = [
        read_file(option, each)
        for option, path in named.items()
        for each in (files_of(path) if option == "--bill" else (path,))
    ]
    others = [
        *("--slack", ",".join(factor(slack) for slack in assumptions.slacks_ppm)),
        *("--seed", str(assumptions.seed), "--futures", str(assumptions.futures)),
        *("--launch", str(assumptions.launch_s), "--checkpoint-every", str(assumptions.lost_s)),
        *("--spot-price-share", f"{assumptions.spot_share_ppm / 1e6:.6f}"),
    ]
    return AssessmentSources(
        files=tuple(files), version=__version__, words=command_words(named, others)
    )
