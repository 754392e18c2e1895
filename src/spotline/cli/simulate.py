"""`spotline simulate`: any policy on any market, closed loop, no broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.simulate_inputs import on_terms, simulation_inputs
from spotline.cli.simulate_view import RECORDED, Outputs, Simulation, run_simulation
from spotline.contracts.errors import ContractError

# numpy, numba and River load inside the command: --help must not wait for them.
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotline.application.selector.options import SelectorOptions
    from spotline.replay.clouds import Information

_DEFAULT_POLICIES = "spotline,msu,uniform_progress,on_demand_only"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(simulate)


def simulate(
    jobs: Annotated[
        str,
        typer.Option(
            metavar="JOBS.yaml|N",
            help="A job file or a list of them, or how many to generate; of a log, its own.",
        ),
    ] = "",
    market: Annotated[
        str, typer.Option(metavar="M", help="Market file, or a preset to generate one from.")
    ] = "",
    reservations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Capacity that is paid for already (docs/market-format.md)."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG", help="Recorded log: what happened, and its jobs and market for what-ifs."
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]|all",
            help="Policies to run; all is the pool and spotline; recorded is what happened in --log. "
            f"Empty: {_DEFAULT_POLICIES.replace(',', ', ')}; of a log as it was recorded, "
            "msu, uniform_progress, on_demand_only.",
        ),
    ] = "",
    deadline: Annotated[
        str, typer.Option(metavar="+6h|x1.5", help="What if all deadlines were others?")
    ] = "",
    price_factor: Annotated[
        str,
        typer.Option(metavar="spot=1.2,on_demand=1", help="What if all prices were others?"),
    ] = "",
    per_job: Annotated[bool, typer.Option("--per-job", help="Also print a row per job.")] = False,
    csv_out: Annotated[
        str,
        typer.Option("--csv", metavar="OUT", help="Write a line per job and rule (- : stdout)."),
    ] = "",
    json_out: Annotated[
        str, typer.Option("--json", metavar="OUT", help="Write the result here (- : stdout).")
    ] = "",
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="Show how the accounts of --log agree.")
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The run's ledger.sqlite, for --reconcile."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of what is generated and of drawn policies.")
    ] = 0,
    slot: Annotated[int, typer.Option(min=0, help="Slot length, seconds; 0 keeps it.")] = 0,
    contention: Annotated[
        bool | None,
        typer.Option(
            "--contention/--alone",
            help="All jobs share the market, or each is alone on it; a log's share it, others do not.",
            show_default=False,
        ),
    ] = None,
    censored: Annotated[
        bool, typer.Option("--censored", help="Spot counts are unknown but by asking and losing.")
    ] = False,
    decide_first: Annotated[
        bool, typer.Option("--decide-first", help="The market moves in the middle of every slot.")
    ] = False,
    forecaster: Annotated[str, typer.Option(help="Forecaster by name; empty: the default.")] = "",
    warm_start: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Weights to start with, from --save-weights."),
    ] = None,
    save_weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what spotline learned, for --warm-start."),
    ] = None,
) -> None:
    """Run jobs on a market under any policy, and compare with the clairvoyant optimum.

    Same policies and same accounting as the services, without a broker. With --log alone, what
    happened is shown first, to the micro-dollar, and each policy runs the log's jobs by itself.
    """
    from spotline.cli.accounts_view import beside_json
    from spotline.cli.simulate_log import LogQuestion, simulate_log
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
    from spotline.replay.simulate import SimulationOptions
    from spotline.replay.what_if import what_if_of

    outputs = Outputs(json_out=json_out, csv_out=csv_out, per_job=per_job)
    with explained(), beside_json(outputs.to_stdout):
        information = _information(censored=censored, decide_first=decide_first)
        terms = what_if_of(deadline, price_factor)
        selector = _selector(warm_start, censored=censored)
        otherwise = _not_of_a_log(
            {
                "--jobs": jobs,
                "--reservations": reservations,
                "--slot": slot,
                "--alone": contention is False,
                "--censored": censored,
                "--decide-first": decide_first,
                "--save-weights": save_weights,
            }
        )
        if log is not None and not otherwise:
            question = LogQuestion(
                log=log,
                market=market,
                terms=terms,
                policies=tuple(_names(policy)),
                forecaster=forecaster,
                seed=seed,
                warm_start=selector.warm_start,
                reconcile=reconcile,
                ledger=ledger,
            )
            simulate_log(question, outputs)
            return
        names = _names(policy or _DEFAULT_POLICIES)
        _refuse_of_a_log(
            {"--reconcile": reconcile or ledger, f"--policy {RECORDED}": RECORDED in names},
            otherwise,
        )
        traded, known, left_out = simulation_inputs(
            market, log, jobs, seed=seed, slot_s=slot, reservations=reservations
        )
        known, left_out = on_terms(terms, traded, known, left_out)
        asked = Simulation(
            market=terms.market(traded),
            jobs=known,
            left_out=left_out,
            policies=names,
            forecaster=forecaster or DEFAULT_FORECASTER,
            changed=terms.describe(),
            options=SimulationOptions(
                contention=bool(contention), information=information, seed=seed, selector=selector
            ),
        )
        run_simulation(asked, outputs, save_weights)


def _selector(warm_start: Path | None, *, censored: bool) -> SelectorOptions:
    """How policies are selected; counts that nobody publishes are believed, as by services."""
    from spotline.adapters.files.weights_file import read_weights
    from spotline.application.selector.options import SelectorOptions, where_uncounted

    options = SelectorOptions(warm_start=read_weights(warm_start), even_cells=True)
    return where_uncounted(options) if censored else options


def _not_of_a_log(options: Mapping[str, object]) -> str:
    """The first option given with which a log only lends its market and jobs; empty for none."""
    return next((name for name, given in options.items() if given), "")


def _refuse_of_a_log(options: Mapping[str, object], otherwise: str) -> None:
    """Refuse what only a log can answer, and say why this simulation is none of a log."""
    for name, given in options.items():
        if given:
            found = f"with {otherwise}" if otherwise else "without --log"
            raise ContractError(
                name, f"expected --log LOG and its jobs as they ran, found a simulation {found}"
            )


def _information(*, censored: bool, decide_first: bool) -> Information:
    from spotline.replay.clouds import Information

    if censored and decide_first:
        raise ContractError("--censored, --decide-first", "expected one of them, found both")
    if censored:
        return Information.CENSORED
    return Information.DECIDE_FIRST if decide_first else Information.FULL


def _names(policy: str) -> list[str]:
    """Split at commas, but not inside `ahap(3,1,0.5)`."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", policy) if name.strip()]
