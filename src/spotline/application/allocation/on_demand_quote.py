"""What a job would cost on on-demand instances alone, and the value of one that states none."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.market_view import MarketView
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram, compile_program
from spotline.domain.units import PPM, cost_micro_usd

DEFAULT_QUOTE_MARGIN = 0.5
"""Lambda: a job without a value is worth, and may cost, (1 + lambda) x its on-demand quote."""


def on_demand_quote_micro_usd(market: MarketView, job: Job) -> int:
    """The cheapest way to do a job in time on on-demand instances, at the present prices.

    Of all offerings it can run on and all counts it is allowed, launched once and held to the end;
    a finishing slot is billed whole, as the ledger does. A soft deadline that cannot be met is
    taken for the time from which the job is worth nothing.

    Returns
    -------
    int
        Micro-USD; 0 where nothing that is quoted meets the deadline. Reservations are paid for
        already and quote nothing.
    """
    prices = {
        slot.quote.offering_id: slot.quote.on_demand_price_micro_usd for slot in market.quotes
    }
    _, first_ns = market.first_slot(job)
    in_time: list[int] = []
    late: list[int] = []
    for offering, throughput in market.runnable(job):
        price = prices.get(offering.offering_id, 0)
        if offering.reservation is not None or price <= 0:
            continue
        program = compile_program(
            job,
            throughput,
            slot_s=market.slot_s,
            first_slot_start_ns=first_ns,
            notice_lead_s=offering.notice_lead_s,
        )
        for slots, cost in _ways(program, price):
            if slots <= program.deadline_slots:
                in_time.append(cost)
            elif slots <= program.end_slots:
                late.append(cost)
    return min(in_time or late, default=0)


def _ways(program: JobProgram, price: int) -> list[tuple[int, int]]:
    """Slots and micro-USD of the whole work, by allowed count."""
    ways = []
    for count in program.allowed_counts:
        if program.rate_quanta_per_s[count] < 1:
            continue
        slots = program.slots_on_demand(program.work_quanta, program.launch_s, instances=count)
        ways.append((slots, slots * cost_micro_usd(price, count, program.slot_s)))
    return ways


def with_margin(quote_micro_usd: int, margin: float) -> int:
    """(1 + margin) x a quote, micro-USD, rounded up."""
    return quote_micro_usd - (-quote_micro_usd * round(margin * PPM) // PPM)


def valued(market: MarketView, job: Job, *, margin: float, field: str = "job") -> Job:
    """The job with value and budget from its quote, where its owner states no value.

    A stated budget stays; a job that was valued before is as it is. The job has been checked: it
    can meet its deadline.

    Raises
    ------
    ValueError
        Nothing that it can run on in time has an on-demand price; the message begins with the
        field, below `field`.
    """
    if not job.value_from_quote or job.on_demand_quote_micro_usd:
        return job
    quote = on_demand_quote_micro_usd(market, job)
    if not quote:
        raise ValueError(
            f"{field}.value_micro_usd must be stated, was left to the on-demand quote: nothing that "
            "the job can run on in time has an on-demand price now"
        )
    most = with_margin(quote, margin)
    return replace(
        job,
        value_micro_usd=most,
        budget_micro_usd=job.budget_micro_usd or most,
        on_demand_quote_micro_usd=quote,
    )
