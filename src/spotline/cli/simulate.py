"""`spotline simulate`: any policy on any market, closed loop, no broker."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.failures import explained
from spotline.contracts.errors import ContractError

# numpy, numba and River load inside the command: --help must not wait for them.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotline.domain.jobs.job import Job
    from spotline.domain.market.market import Market
    from spotline.replay.clouds import Information

_DEFAULT_POLICIES = "spotline,msu,uniform_progress,on_demand_only"
_PRESET_DAYS = 14
_PRESET_SLOT_S = 1800
# 2026-01-05, a Monday: generated markets need a date, not today's.
_PRESET_START_NS = 1_767_571_200_000_000_000
_SHOWN = 12


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
        Path | None, typer.Option(metavar="LOG", help="Recorded log whose market to use.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME...]|all", help="Policies to run; all is the pool and spotline."
        ),
    ] = _DEFAULT_POLICIES,
    json_out: Annotated[
        str, typer.Option("--json", metavar="OUT", help="Write the result here (- : stdout).")
    ] = "",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of what is generated and of drawn policies.")
    ] = 0,
    slot: Annotated[int, typer.Option(min=0, help="Slot length, seconds; 0 keeps it.")] = 0,
    contention: Annotated[
        bool, typer.Option("--contention", help="All jobs share the market; else each is alone.")
    ] = False,
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

    Same policies and same accounting as the services, without a broker.
    """
    from rich.console import Console

    from spotline.adapters.files.weights_file import read_weights, write_weights
    from spotline.application.selector.state import SelectorOptions
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
    from spotline.replay.simulate import SimulationOptions
    from spotline.replay.simulate import simulate as run
    from spotline.replay.summary import SPOTLINE, moves_line, regret_line
    from spotline.replay.tables import policy_table

    with explained():
        traded, known, left_out = _inputs(
            market, log, jobs, seed=seed, slot_s=slot, reservations=reservations
        )
        report = run(
            traded,
            known,
            _names(policy),
            forecaster=forecaster or DEFAULT_FORECASTER,
            options=SimulationOptions(
                contention=contention,
                information=_information(censored=censored, decide_first=decide_first),
                seed=seed,
                selector=SelectorOptions(warm_start=read_weights(warm_start)),
            ),
        )
        if save_weights is not None:
            told = f"spotline simulate, {len(known)} jobs on {traded.source}"
            write_weights(save_weights, report.learner, told)
        result = json.dumps(report.as_json(), indent=2) + "\n"
        if json_out and json_out != "-":
            Path(json_out).write_text(result, encoding="utf-8")
    if json_out == "-":
        sys.stdout.write(result)
    console = Console(stderr=json_out == "-")
    for line in left_out:
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    together = "together" if contention else "each alone"
    together += ", censored" if censored else ", deciding first" if decide_first else ""
    title = (
        f"{report.jobs} jobs {together}, {traded.slots} slots of {traded.slot_s} s, mean per job"
    )
    console.print(policy_table(report.policies, report.clairvoyant, title=title, most=_SHOWN))
    regret = report.learner.regret() if report.learner else None
    if regret is not None:
        console.print(regret_line(regret), markup=False, highlight=False, soft_wrap=True)
    moved = moves_line(report.lives.get(SPOTLINE, ()))
    if moved:
        console.print(f"{SPOTLINE} {moved}", markup=False, highlight=False, soft_wrap=True)
    if censored or decide_first:
        console.print("The clairvoyant is that of each job alone, told everything.")
    elif contention and len(report.policies) > 1:
        first = SPOTLINE if SPOTLINE in report.policies else next(iter(report.policies))
        console.print(
            "Each policy is compared with the clairvoyant on what its own jobs were left; "
            f"shown is that of {first}.",
            highlight=False,
        )


def _information(*, censored: bool, decide_first: bool) -> Information:
    from spotline.replay.clouds import Information

    if censored and decide_first:
        raise ContractError("--censored, --decide-first", "give one of them")
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
        raise ContractError("--market, --log", "give one of them: a market file, or a recorded log")
    recorded: Sequence[Job] = ()
    if log is not None:
        traded, recorded = _of_log(log)
    else:
        traded = _market(market, seed)
    if slot_s and slot_s != traded.slot_s:
        traded = traded.resampled(slot_s)
    whole = add_reservations(traded, reservations)
    if jobs.isdigit():
        # The same jobs with reservations and without: so that what these save can be seen.
        return whole, generated_jobs(traded, int(jobs), seed), []
    if jobs:
        return whole, _at_quotes(whole, read_jobs(Path(jobs), now_ns=whole.start_ns)), []
    if log is None:
        raise ContractError("--jobs", "give a job file, or how many jobs to generate, such as 60")
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


def _market(name: str, seed: int) -> Market:
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
