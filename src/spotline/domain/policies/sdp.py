"""Stochastic control with a learned value-to-go, alone or behind a window of forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spotline.domain.jobs.accounting import Held, Standing, Terms, lay_out, terms_at
from spotline.domain.jobs.offer import ROW, Offer, offer_at, price_ppm, standing_at
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import IntArray, kernel
from spotline.domain.policies import msu
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.params import Params, view_row
from spotline.domain.solvers.table_look import (
    OpenTable,
    Position,
    look_ahead,
    open_table,
    price_place,
    through,
)

KIND = 5

# The forecast of one slot that sees nothing.
_NONE = np.zeros((2, 1, 0), dtype=np.int64)


@kernel
def choose(
    params: Params,
    terms: Terms,
    standing: Standing,
    offer: Offer,
    by_count: IntArray,
    predicted: IntArray,
    table: OpenTable,
) -> Held:
    """Look ahead; without a place in the table, take all useful spot."""
    if offer.run_state < 0:
        return msu.choose(offer, by_count)
    window = min(params.forecast_slots, offer.steps)
    window = max(0, min(window, terms.deadline_slots - standing.elapsed - 1))
    low, share = 0, 0.0
    if window:
        to_come = through(table, standing, offer, predicted, window)
    else:
        low, share = price_place(table.centres_ppm, price_ppm(offer, offer.spot_price))
        to_come = table.after[standing.elapsed, offer.run_state]
    left = terms.work_quanta - standing.progress
    position = Position(low, share, left, table.values[standing.elapsed + 1], table.cell)
    return look_ahead(
        table.terms,
        standing,
        offer,
        position,
        to_come,
        table.by_count,
        table.nearest,
        table.pending_s,
    )


@kernel
def _choose(
    row: IntArray,
    program: IntArray,
    by_count: IntArray,
    predicted: IntArray,
    table: tuple[Any, ...],
) -> Held:
    """Choose for one view, laid out: `row` is that of the view, then the window."""
    params = Params(KIND, 0, 0, row[ROW], 0, 0, 0)
    terms, standing, offer = terms_at(program), standing_at(row), offer_at(row)
    return choose(params, terms, standing, offer, by_count, predicted, open_table(table))


@dataclass(frozen=True, slots=True)
class ValueToGo:
    """Take what is best for this slot and, by the job's value table, for all that follows.

    With a window of w > 0 the next w slots are those of the forecast, and the table speaks from
    there on ("AHAP with a learned value-to-go"); w = 0 trusts the market's law alone. Until the
    job's table is ready all useful spot is held, and the safety net guards every deadline.

    Notes
    -----
    Not in arXiv:2512.20967, whose model it plans on; see `solvers/value_table.py`.
    """

    window: int = 0

    @property
    def policy_id(self) -> str:
        """`sdp`, or `hybrid(w)`."""
        return f"hybrid({self.window})" if self.window else "sdp"

    @property
    def needs_forecast(self) -> bool:
        """Never: without one it looks no further than the law."""
        return False

    @property
    def nets_soft_deadlines(self) -> bool:
        """Not by itself: what being late costs is in the table, as soon as there is one."""
        return False

    @property
    def forecast_slots(self) -> int:
        """Its window."""
        return self.window

    @property
    def uses_table(self) -> bool:
        """Always."""
        return True

    @property
    def params(self) -> Params:
        """Its window."""
        return Params(KIND, 0, 0, self.window)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Look ahead; remembers nothing."""
        layout = lay_out(view.program)
        if view.outlook is None:
            return msu.MaximalSpotUtilisation().choose(view, memory)
        predicted = _NONE
        if self.window and view.forecast is not None:
            ahead = (
                view.forecast.spot_price[: self.window],
                view.forecast.spot_available[: self.window],
            )
            predicted = np.array(ahead, dtype=np.int64).reshape((2, 1, len(ahead[0])))
        spot, on_demand = _choose(
            view_row(view, self.window),
            layout.row,
            layout.by_count,
            predicted,
            view.outlook.table.arrays,
        )
        return Choice(holding=Holding(spot=spot, on_demand=on_demand), memory=memory)


SDP = ValueToGo()
HYBRIDS = (ValueToGo(1), ValueToGo(2), ValueToGo(5))
