"""Markets and jobs that `spotline simulate` is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.domain.jobs.job import Job
    from spotline.domain.market.market import Market
    from spotline.replay.what_if import WhatIf

_PRESET_DAYS = 14
_PRESET_SLOT_S = 1800
# 2026-01-05, a Monday: generated markets need a date, not today's.
_PRESET_START_NS = 1_767_571_200_000_000_000


def simulation_inputs(
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
    from spotline.domain.market.disk_prices import priced_with_disks
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
    if log is None:
        # A log's slots have them in their prices already.
        whole = priced_with_disks(whole)
    if jobs.isdigit():
        # The same jobs with reservations and without: so that what these save can be seen.
        return whole, generated_jobs(traded, int(jobs), seed), []
    if jobs:
        return whole, _at_quotes(whole, read_jobs(Path(jobs), now_ns=whole.start_ns)), []
    if log is None:
        raise ContractError("--jobs", "expected a job file, or how many to generate, found nothing")
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
            "neither: "
            "`spotline market generate` and `spotline market import` write market files",
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


def on_terms(
    terms: WhatIf, market: Market, jobs: Sequence[Job], left_out: list[str]
) -> tuple[Sequence[Job], list[str]]:
    """The jobs on other terms, and a line more about each that then no longer fits the market."""
    if not terms.changes_jobs:
        return jobs, left_out
    _, kept, more = _covered(market, terms.jobs(jobs))
    return kept, left_out + more
