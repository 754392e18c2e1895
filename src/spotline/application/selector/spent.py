"""What was spent and launched, kept as far back as limits on spending reach."""

from __future__ import annotations

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.limits.spend_book import by_capacity_type
from spotline.domain.market.offering import Quote
from spotline.domain.units import NS_PER_S


def note_spent(
    state: SelectorState, run: JobRun, quote: Quote, slot: int, options: SelectorOptions
) -> None:
    """Keep what a slot cost a job, where limits on spending need it."""
    spans_s = options.limits_on_spending.spans_s
    if not spans_s:
        return
    prices = quote.spot_price_micro_usd, quote.on_demand_price_micro_usd
    for kind, cost in run.costs_until(prices, run.compiled.slot_s):
        state.spend.reckon(slot, (run.job.tenant, kind), cost)
    state.spend.forget(slot - -(-spans_s[-1] // run.compiled.slot_s))


def note_billed(state: SelectorState, event: CostAccrued, options: SelectorOptions) -> None:
    """Keep a bill, of a job or a pipeline, where limits on spending need it."""
    if options.limits_on_spending.spans_s:
        spender = event.tenant, event.capacity_type
        state.spend.bill(event.slot, spender, event.cost_micro_usd)


def note_ended(state: SelectorState, event: JobAdvanced, options: SelectorOptions) -> None:
    """Keep what a job cost that ends inside the open slot: no opening settles it."""
    if event.slot != state.slot or not options.limits_on_spending.spans_s:
        return
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    for kind, cost in by_capacity_type(event.slot_cost_micro_usd, event.lots, quotes):
        state.spend.reckon(event.slot, (event.tenant, kind), cost)


def note_launched(
    state: SelectorState, run: JobRun, event: AllocationDecided, options: SelectorOptions
) -> None:
    """Keep when how many instances were asked for, where a limit on launches needs it."""
    if options.limits_on_spending.launches_per_minute is None:
        return
    at_ns = state.current.ts_event_ns + event.offset_s * NS_PER_S
    count = 0
    for lot in event.lots:
        held = run.held_at(lot.offering_id)
        count += max(0, lot.spot - held.spot) + max(0, lot.on_demand - held.on_demand)
    recent = [each for each in state.launched if each[0] > at_ns - 60 * NS_PER_S]
    state.launched = [*recent, (at_ns, count)]
