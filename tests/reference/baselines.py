"""The rules of thumb every other policy is measured against."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from tests.reference.decision import after_slot, largest_allowed, spot_first
from tests.reference.progress import overhead_s


@dataclass(frozen=True, slots=True)
class OnDemandOnly:
    """The smallest constant on-demand count that meets the deadline."""

    policy_id: str = "on_demand_only"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Hold the count found in the first slot."""
        count = memory[0] if memory else smallest_constant_count(view.program)
        return Choice(holding=Holding(on_demand=count), memory=(count,))


def smallest_constant_count(program: JobProgram) -> int:
    """The smallest count that, held from the first slot, meets the deadline; else the largest."""
    available_s = program.deadline_slots * program.slot_s - program.launch_s
    for count in program.allowed_counts:
        if program.rate_quanta_per_s[count] * available_s >= program.work_quanta:
            return count
    return program.max_instances


@dataclass(frozen=True, slots=True)
class MaximalSpotUtilisation:
    """All useful spot, always; on-demand only from the last safe moment (the safety net)."""

    policy_id: str = "msu"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Hold the largest allowed count of spot."""
        count = largest_allowed(view.program, view.spot_available)
        return Choice(holding=Holding(spot=count), memory=memory)


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Keep up with a straight line to the deadline: spot first, on-demand fills.

    "Can't Be Late" (Wu et al., NSDI'24), carried from one instance to n: on-demand is left for
    spot only when progress is ahead of the line by two overheads.
    """

    policy_id: str = "uniform_progress"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Take spot; add on-demand as far as the line asks for it."""
        program = view.program
        target = program.work_quanta * (view.elapsed_slots + 1) // program.deadline_slots
        spot = largest_allowed(program, view.spot_available)
        held = view.state.holding
        if held.on_demand and not view.interrupted:
            margin_s = 2 * overhead_s(program, held, Holding(spot=max(spot, 1)))
            ahead = (
                program.work_quanta
                * (view.elapsed_slots * program.slot_s + margin_s)
                // (program.deadline_slots * program.slot_s)
            )
            if view.state.progress_quanta < ahead and held.spot <= view.spot_available:
                if after_slot(view, held).progress_quanta >= target:
                    return Choice(holding=held, memory=memory)
                return Choice(holding=_reach(view, target, held.instances), memory=memory)
        if spot and after_slot(view, Holding(spot=spot)).progress_quanta >= target:
            return Choice(holding=Holding(spot=spot), memory=memory)
        if not spot and view.state.progress_quanta >= target:
            return Choice(holding=IDLE, memory=memory)
        return Choice(holding=_reach(view, target, spot), memory=memory)


def _reach(view: PolicyView, target_quanta: int, least: int) -> Holding:
    """The smallest spot-first count of at least `least` that reaches the target, else the largest."""
    for count in view.program.allowed_counts:
        if count < least:
            continue
        holding = spot_first(view, count)
        if after_slot(view, holding).progress_quanta >= target_quanta:
            return holding
    return spot_first(view, view.program.max_instances)


BASELINES = (OnDemandOnly(), MaximalSpotUtilisation(), UniformProgress())
