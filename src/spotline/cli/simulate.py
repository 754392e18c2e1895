"""`spotline simulate`: any policy on any market, closed loop, no broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.simulate_view import RECORDED, Outputs, Simulation, run_simulation
from spotline.contracts.errors import ContractError

# numpy, numba and River load inside the command: --help must not wait for them.
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotline.domain.jobs.job import Job
    from spotline.domain.market.market import Market
    from spotline.replay.clouds import Information
    from spotline.replay.what_if import Terms

_DEFAULT_POLICIES = "spotline,msu,uniform_progress,on_demand_only"
_LOG_POLICIES = "recorded,msu,uniform_progress,on_demand_only"
_PRESET_DAYS = 14
_PRESET_SLOT_S = 1800
# 2026-01-05, a Monday: generated markets need a date, not today's.
_PRESET_START_NS = 1_767_571_200_000_000_000


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
            f"Empty: {_DEFAULT_POLICIES}, of a log as it was {_LOG_POLICIES}.",
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
    from spotline.adapters.files.weights_file import read_weights
    from spotline.application.selector.state import SelectorOptions
    from spotline.cli.accounts_view import beside_json
    from spotline.cli.simulate_log import LogQuestion, simulate_log
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
    from spotline.replay.simulate import SimulationOptions
    from spotline.replay.what_if import terms_of

    outputs = Outputs(json_out=json_out, csv_out=csv_out, per_job=per_job)
    with explained(), beside_json(outputs.to_stdout):
        information = _information(censored=censored, decide_first=decide_first)
        terms = terms_of(deadline, price_factor)
        selector = SelectorOptions(warm_start=read_weights(warm_start))
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
        if reconcile or ledger is not None:
            raise ContractError("--reconcile", _only_of_a_log(otherwise))
        names = _names(policy or _DEFAULT_POLICIES)
        if RECORDED in names:
            raise ContractError(f"--policy {RECORDED}", _only_of_a_log(otherwise))
        traded, known, left_out = _inputs(
            market, log, jobs, seed=seed, slot_s=slot, reservations=reservations
        )
        known, left_out = _on_terms(terms, traded, known, left_out)
        asked = Simulation(
            market=terms.market(traded),
            jobs=known,
            left_out=left_out,
            policies=names,
            forecaster=forecaster or DEFAULT_FORECASTER,
            changed=terms.describe(),
            options=SimulationOptions(
                contention=bool(contention),
                information=information,
                seed=seed,
                selector=selector,
            ),
        )
        run_simulation(asked, outputs, save_weights)


def _not_of_a_log(options: Mapping[str, object]) -> str:
    """The first option given with which a log only lends its market and jobs; empty for none."""
    return next((name for name, given in options.items() if given), "")


def _only_of_a_log(otherwise: str) -> str:
    with_it = f" with {otherwise}" if otherwise else " without --log"
    return f"expected --log LOG and its jobs as they ran, found a simulation{with_it}"


def _on_terms(
    terms: Terms, market: Market, jobs: Sequence[Job], left_out: list[str]
) -> tuple[Sequence[Job], list[str]]:
    """The jobs on other terms, without those that no longer fit the market."""
    if not terms.changes_jobs:
        return jobs, left_out
    _, covered, more = _covered(market, terms.jobs(jobs))
    return covered, left_out + more


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


def _inputs(
    market: str,
    log: Path | None,
    jobs: str,
    *,
    seed: int,
    slot_s: int,
    reservations: Path | None,
) -> tuple[Market, Sequence[Job], list[str]]:
    """The market, the jobs, and a line about each recorded job that the market does not cover."""
    from spotline.adapters.files.job_file import read_jobs
    from spotline.adapters.files.reservations_file import add_reservations
    from spotline.replay.jobs import generated_jobs

    if bool(market) == (log is not None):
        raise ContractError(
            "--market, --log",
            "expected a market or a recorded log, found " + ("both" if market else "neither"),
        )
    recorded: Sequence[Job] = ()
    if log is not None:
        traded, recorded = _of_log(log)
    else:
        traded = market_named(market, seed)
    if slot_s and slot_s != traded.slot_s:
        traded = traded.resampled(slot_s)
    whole = add_reservations(traded, reservations)
    if jobs.isdigit():
        # The same jobs with reservations and without: so that what these save can be seen.
        return whole, generated_jobs(traded, int(jobs), seed), []
    if jobs:
        return whole, _at_quotes(whole, read_jobs(Path(jobs), now_ns=whole.start_ns)), []
    if log is None:
        raise ContractError("--jobs", "expected a job file, or how many jobs to generate, such as 60, found nothing")
    return _covered(whole, recorded)


def _at_quotes(market: Market, jobs: Sequence[Job]) -> Sequence[Job]:
    """The jobs, those without a value at what on-demand costs in the market's first slot."""
    from spotline.application.admission import check_job
    from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN, valued
    from spotline.application.market_view import MarketView
    from spotline.domain.market.slot_quote import SlotQuote

    quotes = tuple(SlotQuote(quote=quote, age_s=0) for quote in market.quotes(0))
    first = MarketView(
        offerings=market.offerings,
        slot_s=market.slot_s,
        next_slot=0,
        next_slot_start_ns=market.start_ns,
        quotes=quotes,
        forecast=None,
        history=(),
    )
    at_value = []
    for job in jobs:
        refused = check_job(first, job) if job.value_from_quote else None
        if refused is not None:
            raise ContractError(f"--jobs, {job.name or job.job_id}", refused.message)
        at_value.append(valued(first, job, margin=DEFAULT_QUOTE_MARGIN))
    return at_value


def _of_log(log: Path) -> tuple[Market, Sequence[Job]]:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.replay.recorded import observations_of

    observed = observations_of(EventLogReader(log))
    return observed.market, observed.jobs


def market_named(name: str, seed: int) -> Market:
    """The market of a file, or one generated from a preset."""
    from spotline.adapters.market.parquet import read_market
    from spotline.domain.market.generate import PRESETS, generate

    if Path(name).exists():
        return read_market(Path(name))
    if name not in PRESETS:
        raise ContractError(
            "--market",
            f"expected a market file, or a preset ({', '.join(PRESETS)}), found {name!r}, which is "
            "neither; `spotline market generate` and `spotline market import` write market files",
        )
    slots = _PRESET_DAYS * 24 * 3600 // _PRESET_SLOT_S
    return generate(name, seed=seed, slots=slots, slot_s=_PRESET_SLOT_S, start_ns=_PRESET_START_NS)


def _covered(market: Market, recorded: Sequence[Job]) -> tuple[Market, Sequence[Job], list[str]]:
    from spotline.replay.course import coverage

    problems = {job.job_id: coverage(market, job) for job in recorded}
    left_out = [
        f"left out: {job.name or job.job_id} {problems[job.job_id]}"
        for job in recorded
        if problems[job.job_id]
    ]
    return market, [job for job in recorded if not problems[job.job_id]], left_out
