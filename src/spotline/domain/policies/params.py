"""What kernels read of a policy, and of what it sees.

`Params` is the bundle that tells a policy from the others of its pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import Standing, lay_out
from spotline.domain.jobs.offer import Offer, rescue_count
from spotline.domain.jobs.progress import held_of
from spotline.domain.kernels import IntArray
from spotline.domain.policies.interface import PolicyView


class Params(NamedTuple):
    """A policy's parameters: `kind` says which rule it is, the others are 0 where not needed.

    `forecast_slots` is how far it looks into forecasts; `sigma` is the place of `sigma_ppm` among
    those of the pool it is played in.
    """

    kind: int
    needs_forecast: int = 0
    nets_soft_deadlines: int = 1
    forecast_slots: int = 0
    commitment: int = 0
    sigma_ppm: int = 0
    sigma: int = 0


def standing_of(view: PolicyView) -> Standing:
    """Return where a view's job stands."""
    return Standing(
        elapsed=view.elapsed_slots,
        progress=view.state.progress_quanta,
        held=held_of(view.state.holding),
        pending_s=view.state.pending_overhead_s,
        spent=view.spent_micro_usd,
        interrupted=int(view.interrupted),
        unsaved=view.state.unsaved_quanta,
    )


def offer_of(view: PolicyView) -> Offer:
    """Return what a view offers; its forecast is laid out alone, in column 0."""
    rescue = view.program.max_instances
    if view.rescue_instances:
        rescue = rescue_count(lay_out(view.program).by_count, view.rescue_instances)
    return Offer(
        spot_price=view.spot_price,
        on_demand_price=view.on_demand_price,
        spot=view.spot_available,
        on_demand=view.on_demand_available,
        left_s=view.slot_left_s,
        reserve_slots=view.reserve_slots,
        rescue=rescue,
        firm=int(view.spot_firm),
        slot=0,
        steps=-1 if view.forecast is None else len(view.forecast.spot_price),
        run_state=-1 if view.outlook is None else view.outlook.run_state,
    )


def view_row(view: PolicyView, *more: int) -> IntArray:
    """Lay standing and offer of a view out as `offer.row_of` does, and `more` behind."""
    state, program = view.state, view.program
    held, forecast, outlook = state.holding, view.forecast, view.outlook
    rescue = program.max_instances
    if view.rescue_instances:
        rescue = rescue_count(lay_out(program).by_count, view.rescue_instances)
    # Written out: this is half of what a decision takes.
    row = (
        view.elapsed_slots,
        state.progress_quanta,
        held.spot,
        held.on_demand,
        state.pending_overhead_s,
        view.spent_micro_usd,
        view.interrupted,
        state.unsaved_quanta,
        view.spot_price,
        view.on_demand_price,
        view.spot_available,
        view.on_demand_available,
        view.slot_left_s,
        view.reserve_slots,
        rescue,
        view.spot_firm,
        0,
        -1 if forecast is None else len(forecast.spot_price),
        -1 if outlook is None else outlook.run_state,
        *more,
    )
    return np.array(row, dtype=np.int64)


def refuse_more_than_allowed(view: PolicyView) -> None:
    """Refuse a view whose job holds more than its largest count, of which no rate is known.

    Raises
    ------
    ValueError
        It does.
    """
    held, most = view.state.holding.instances, view.program.max_instances
    if held > most:
        raise ValueError(f"instances held must be <= {most}, were {held}")
