"""Adaptive hybrid allocation without predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotline.domain.jobs.accounting import Held, Standing, lay_out
from spotline.domain.jobs.offer import (
    ROW,
    Offer,
    largest_allowed,
    offer_at,
    spot_first,
    standing_at,
)
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import IntArray, kernel, part
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.line import LINE, line_of
from spotline.domain.policies.params import Params, view_row
from spotline.domain.units import PPM

KIND = 3


@part
def choose(
    params: Params,
    standing: Standing,
    offer: Offer,
    memory: IntArray,
    row: int,
    by_count: IntArray,
    line: IntArray,
) -> Held:
    """Decide from the three signals; its row of `memory` is the last slot's availability."""
    before = offer.spot if memory[row, 0] < 0 else memory[row, 0]
    memory[row, 0] = offer.spot
    held = standing.held.spot + standing.held.on_demand
    if standing.progress < line[LINE, standing.elapsed]:
        # The smallest allowed count at least.
        doubled = largest_allowed(by_count, 2 * held)
        return spot_first(offer.spot, doubled if doubled else smallest(by_count))
    if offer.spot_price * PPM <= params.sigma_ppm * offer.on_demand_price:
        return Held(largest_allowed(by_count, offer.spot), 0)
    kept = min(held, offer.spot)
    if offer.spot < before:
        kept = min(kept, held * offer.spot // max(1, before))
    return Held(largest_allowed(by_count, kept), 0)


@part
def smallest(by_count: IntArray) -> int:
    """The smallest allowed count."""
    count = 1
    while not largest_allowed(by_count, count):
        count += 1
    return count


@kernel
def _choose(row: IntArray, memory: IntArray, by_count: IntArray, line: IntArray) -> Held:
    """Choose for one view, laid out: `row` is that of the view, then sigma."""
    params = Params(KIND, 0, 1, 0, 0, row[ROW], 0)
    return choose(params, standing_at(row), offer_at(row), memory, 0, by_count, line)


@dataclass(frozen=True, slots=True)
class Ahanp:
    """AHANP(sigma) of arXiv:2512.20967, reconstructed from the abstract.

    Three signals: progress against the straight line to the deadline, price against sigma times
    on-demand, and availability now against before. Behind the line it doubles; ahead of it and
    cheap it takes all spot; ahead and dear it holds what it has, or shrinks with availability.
    """

    sigma_ppm: int

    @property
    def policy_id(self) -> str:
        """`ahanp(sigma)`."""
        return f"ahanp({self.sigma_ppm / PPM:g})"

    @property
    def needs_forecast(self) -> bool:
        """Never."""
        return False

    @property
    def nets_soft_deadlines(self) -> bool:
        """Always: nothing else here looks at the deadline's cost."""
        return True

    @property
    def forecast_slots(self) -> int:
        """None."""
        return 0

    @property
    def uses_table(self) -> bool:
        """Never."""
        return False

    @property
    def params(self) -> Params:
        """Its sigma."""
        return Params(KIND, sigma_ppm=self.sigma_ppm)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Decide from the three signals; memory is the availability of the last slot."""
        by_count = lay_out(view.program).by_count
        row = np.array((memory or (-1,),), dtype=np.int64)
        line = line_of(view.program)
        spot, on_demand = _choose(view_row(view, self.sigma_ppm), row, by_count, line)
        holding = Holding(spot=spot, on_demand=on_demand)
        return Choice(holding=holding, memory=(view.spot_available,))
