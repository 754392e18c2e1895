"""Uniform progress: keep up with a straight line to the deadline."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.accounting import (
    Held,
    Standing,
    Terms,
    hold,
    lay_out,
    terms_at,
)
from spotline.domain.jobs.offer import (
    Offer,
    is_allowed,
    largest_allowed,
    offer_at,
    spot_first,
    standing_at,
)
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import IntArray, kernel, part
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.line import AHEAD_GROW, AHEAD_SHRINK, LINE, line_of
from spotline.domain.policies.params import Params, refuse_more_than_allowed, view_row

KIND = 2


@part
def choose(
    terms: Terms, standing: Standing, offer: Offer, by_count: IntArray, line: IntArray
) -> Held:
    """Take spot; add on-demand as far as the line asks for it."""
    target = line[LINE, standing.elapsed + 1]
    spot = largest_allowed(by_count, offer.spot)
    held = standing.held
    stays = held.on_demand and not standing.interrupted and held.spot <= offer.spot
    margin = AHEAD_SHRINK if max(spot, 1) <= held.spot else AHEAD_GROW
    if stays and standing.progress < line[margin, standing.elapsed]:
        if hold(terms, standing, held, offer.left_s, by_count).progress >= target:
            return held
        return reach(terms, standing, offer, target, held.spot + held.on_demand, by_count)
    if spot:
        if hold(terms, standing, Held(spot, 0), offer.left_s, by_count).progress >= target:
            return Held(spot, 0)
    elif standing.progress >= target:
        return Held(0, 0)
    return reach(terms, standing, offer, target, spot, by_count)


@kernel
def reach(
    terms: Terms, standing: Standing, offer: Offer, target: int, least: int, by_count: IntArray
) -> Held:
    """The smallest spot-first count of at least `least` that reaches the target, else the largest."""
    for count in range(max(1, least), by_count.shape[1]):
        if is_allowed(by_count, count):
            held = spot_first(offer.spot, count)
            if hold(terms, standing, held, offer.left_s, by_count).progress >= target:
                return held
    return spot_first(offer.spot, by_count.shape[1] - 1)


@kernel
def _choose(terms: IntArray, row: IntArray, by_count: IntArray, line: IntArray) -> Held:
    return choose(terms_at(terms), standing_at(row), offer_at(row), by_count, line)


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Keep up with a straight line to the deadline: spot first, on-demand fills.

    "Can't Be Late" (Wu et al., NSDI'24), carried from one instance to n: on-demand is left for
    spot only when progress is ahead of the line by two overheads.
    """

    policy_id: str = "uniform_progress"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True
    forecast_slots: int = 0
    uses_table: bool = False

    @property
    def params(self) -> Params:
        """Its kind alone."""
        return Params(KIND)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Take spot; add on-demand as far as the line asks for it."""
        if view.state.holding.on_demand:
            refuse_more_than_allowed(view)
        layout = lay_out(view.program)
        line = line_of(view.program)
        spot, on_demand = _choose(layout.row, view_row(view), layout.by_count, line)
        return Choice(holding=Holding(spot=spot, on_demand=on_demand), memory=memory)
