"""What tenants have saved of late, and how much their bids count for it."""

from __future__ import annotations

from collections.abc import Iterable

from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.crowd.tenants import (
    WEIGHT_ONE,
    TenantSaving,
    TenantWeight,
    shares_of,
    weights_of,
)
from spotline.domain.units import cost_micro_usd


def tenant_weights(
    state: SelectorState, tenants: Iterable[str], options: SelectorOptions
) -> tuple[TenantWeight, ...]:
    """How much each tenant's bids count now; none where fairness is not asked for."""
    if not options.is_fair:
        return ()
    return weights_of(
        tenants,
        tenant_savings(state, options.history_slots),
        shares_of(options.tenant_shares),
        round(options.fairness * WEIGHT_ONE),
    )


def tenant_savings(state: SelectorState, slots: int) -> tuple[TenantSaving, ...]:
    """What each tenant's jobs saved against doing the same work on demand at their homes.

    Of the jobs that began in the last `slots` slots, at the on-demand prices of the open slot.
    """
    prices = {
        quoted.quote.offering_id: quoted.quote.on_demand_price_micro_usd
        for quoted in state.current.quotes
    }
    spent: dict[str, int] = {}
    on_demand: dict[str, int] = {}
    for run in state.runs.values():
        if run.program is None or run.first_slot <= state.slot - slots:
            continue
        tenant, program = run.job.tenant, run.program
        most = program.max_instances
        done_s = run.state.progress_quanta // program.rate_quanta_per_s[most]
        price = prices.get(run.offering_id, 0)
        spent[tenant] = spent.get(tenant, 0) + run.spent_micro_usd + run.egress_micro_usd
        on_demand[tenant] = on_demand.get(tenant, 0) + cost_micro_usd(price, most, done_s)
    return tuple(
        TenantSaving(
            tenant=tenant,
            saved_micro_usd=max(0, on_demand[tenant] - spent[tenant]),
            on_demand_micro_usd=on_demand[tenant],
        )
        for tenant in sorted(spent)
    )
