"""Adaptive hybrid allocation without predictions."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.program import Holding
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.units import PPM
from tests.reference.decision import largest_allowed, spot_first


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

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Decide from the three signals; memory is the availability of the last slot."""
        program = view.program
        before = memory[0] if memory else view.spot_available
        remembered = (view.spot_available,)
        held = view.state.holding.instances
        line = program.work_quanta * view.elapsed_slots // program.deadline_slots
        cheap = view.spot_price * PPM <= self.sigma_ppm * view.on_demand_price
        if view.state.progress_quanta < line:
            count = largest_allowed(program, max(program.allowed_counts[0], 2 * held))
            return Choice(holding=spot_first(view, count), memory=remembered)
        if cheap:
            count = largest_allowed(program, view.spot_available)
            return Choice(holding=Holding(spot=count), memory=remembered)
        kept = min(held, view.spot_available)
        if view.spot_available < before:
            kept = min(kept, held * view.spot_available // max(1, before))
        return Choice(holding=Holding(spot=largest_allowed(program, kept)), memory=remembered)
