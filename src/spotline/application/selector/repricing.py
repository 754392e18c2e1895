"""Shadow prices as the selector publishes them, and the tables of running jobs that follow them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.selector.foreseeing import crowd_ahead
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.crowd.shadow_prices import ShadowPrices
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.law import ValueTableRequested
from spotline.domain.policies.answer import SpotWorth

# Tables that are asked for again in a slot, at most: each takes a tenth of a second to build, and as
# many are kept beside those that running jobs look into (`table_store`).
MOST_REPRICED = 16


def repriced(state: SelectorState) -> tuple[ShadowPricesUpdated, ...]:
    """The shadow prices after the first decision of a slot, where they have moved."""
    if state.shadow is None or state.revision or state.arrivals is not None:
        return ()
    return _moved(state, state.shadow, None)


def repriced_ahead(
    state: SelectorState, report: CapacityReported, *, in_turn: bool
) -> tuple[ShadowPricesUpdated, ...]:
    """The shadow prices with what is expected, where they have moved: once a slot's decisions are carried out.

    The first report that a slot has settled brings them; what is decided again inside the slot does not.

    No decision waits for them: tables of the next slot are the first that count on them. Where jobs are served
    `in_turn` nothing is bid, and nothing expected.
    """
    if state.shadow is None or state.arrivals is None or report is not state.settling:
        return ()
    share = 0.0 if in_turn else state.shadow.expected_share
    ahead = crowd_ahead(state, state.arrivals) if share else None
    return _moved(state, state.shadow, None if ahead is None else ahead.worths())


def _moved(
    state: SelectorState, shadow: ShadowPrices, expected: Mapping[str, int] | None
) -> tuple[ShadowPricesUpdated, ...]:
    prices = shadow.moved(
        {
            quoted.quote.offering_id: quoted.quote.on_demand_price_micro_usd
            for quoted in state.current.quotes
        },
        expected,
    )
    if prices is None:
        return ()
    stated = tuple(
        SpotWorth(offering_id=offering_id, micro_usd_per_instance_hour=prices[offering_id])
        for offering_id in sorted(prices)
    )
    return (ShadowPricesUpdated(slot=state.slot, prices=stated),)


def tables_repriced(state: SelectorState, running: Sequence[JobRun]) -> list[ValueTableRequested]:
    """Ask for the tables that count on other shadow prices than are published.

    Of all jobs that are `running`, homes first, at most `MOST_REPRICED` in a slot. Until a new one
    is built, decisions look into the old one.
    """
    if state.shadow is None:
        return []
    wanted = []
    for run in running:
        if run.elapsed_slots(state.slot) + 1 >= run.compiled.deadline_slots:
            continue
        for offering_id, table in run.tables.items():
            price = state.spot_surcharge(offering_id)
            if not table.stale and table.spec.spot_surcharge_micro_usd != price:
                wanted.append((offering_id != run.offering_id, run.job.job_id, offering_id))
    runs = {run.job.job_id: run for run in running}
    return [
        _asked_again(state, runs[job_id], offering_id)
        for _, job_id, offering_id in sorted(wanted)[:MOST_REPRICED]
    ]


def _asked_again(state: SelectorState, run: JobRun, offering_id: str) -> ValueTableRequested:
    """The table of a job on an offering at the price that is published, on the law that it was of."""
    table = run.tables[offering_id]
    return ValueTableRequested(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=state.slot,
        table=state.priced(
            table.spec, offering_id, state.program_of(run.job, offering_id), table.named
        ),
        named=table.named,
    )
