"""Adaptive hybrid allocation with predictions: committed horizon control."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.solvers.configurations import configurations
from spotline.domain.units import PPM, cost_micro_usd
from tests.reference.decision import after_slot, fit, largest_allowed
from tests.reference.progress import advance
from tests.reference.window import (
    ProgressValue,
    WindowMarket,
    solve_window,
    value_after_deadline,
)

# A window's planner may round: its plan is executed on exact progress.
PLANNING_CELLS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class _Track:
    """One of the v staggered plans: its own progress and held set, and actions still committed."""

    state: JobProgress
    committed: tuple[Holding, ...]

    def to_memory(self) -> Memory:
        state = self.state
        head = (
            state.progress_quanta,
            state.holding.spot,
            state.holding.on_demand,
            state.pending_overhead_s,
            len(self.committed),
        )
        return head + tuple(n for h in self.committed for n in (h.spot, h.on_demand))

    @classmethod
    def read(cls, memory: Memory, at: int) -> tuple[_Track, int]:
        progress, spot, on_demand, pending_s, actions = memory[at : at + 5]
        at += 5
        committed = tuple(
            Holding(spot=memory[at + 2 * i], on_demand=memory[at + 2 * i + 1])
            for i in range(actions)
        )
        state = JobProgress(
            progress_quanta=progress,
            holding=Holding(spot=spot, on_demand=on_demand),
            pending_overhead_s=pending_s,
        )
        return cls(state=state, committed=committed), at + 2 * actions


@dataclass(frozen=True, slots=True)
class Ahap:
    """AHAP(omega, v, sigma) of arXiv:2512.20967, reconstructed from the abstract.

    Committed horizon control (Chen, Comden, Liu, Gandhi, Wierman, SIGMETRICS'16): plan k of v
    re-plans at slots congruent to k modulo v, from its own progress and held set, over this slot
    and `omega` predicted ones, and commits to its first v actions. Played is the mean over the
    plans, made whole: the mean of integer plans is fractional, and spot that a plan counted on
    may be gone, in which case its part waits for the next plan rather than be bought on demand.

    The window's end is valued against the straight line to the deadline: progress missing there
    costs what finishing late would, progress ahead of it is worth `sigma` of the on-demand price.
    """

    omega: int
    commitment: int
    sigma_ppm: int

    @property
    def policy_id(self) -> str:
        """`ahap(omega,v,sigma)`."""
        return f"ahap({self.omega},{self.commitment},{self.sigma_ppm / PPM:g})"

    @property
    def needs_forecast(self) -> bool:
        """Always."""
        return True

    @property
    def nets_soft_deadlines(self) -> bool:
        """Always: plans run on their own progress, the net on the real one."""
        return True

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Advance the v plans by one slot and play their mean."""
        tracks = self._tracks(view, memory)
        played: list[Holding] = []
        kept: list[int] = []
        for index, track in enumerate(tracks):
            committed = track.committed
            if not committed:
                until = (index - view.elapsed_slots) % self.commitment or self.commitment
                committed = self._plan(view, track.state)[:until]
            action = committed[0]
            spot = min(action.spot, view.spot_available)
            count = largest_allowed(view.program, spot + action.on_demand)
            on_demand = min(action.on_demand, max(0, count - spot))
            held = Holding(spot=count - on_demand, on_demand=on_demand)
            after = advance(
                view.program,
                track.state,
                held,
                held_s=view.slot_left_s,
                interrupted=track.state.holding.spot > view.spot_available,
            )
            played.append(held)
            kept.extend(_Track(state=after, committed=committed[1:]).to_memory())
        choice = fit(view, _mean(view.program, played))
        expected = after_slot(view, choice).progress_quanta
        return Choice(holding=choice, memory=(expected, *kept))

    def _tracks(self, view: PolicyView, memory: Memory) -> list[_Track]:
        # Where the job is not where the last choice would have brought it, the safety net or the
        # cloud has intervened: plans made for another place are dropped.
        if not memory or memory[0] != view.state.progress_quanta:
            return [_Track(state=view.state, committed=()) for _ in range(self.commitment)]
        tracks = []
        at = 1
        while at < len(memory):
            track, at = _Track.read(memory, at)
            tracks.append(track)
        return tracks

    def _plan(self, view: PolicyView, state: JobProgress) -> tuple[Holding, ...]:
        forecast = view.forecast
        if forecast is None:
            raise ValueError(f"{self.policy_id} needs a forecast")
        window = min(self.omega, len(forecast.spot_price), view.program.deadline_slots - 1)
        window = min(window, view.program.deadline_slots - view.elapsed_slots - 1)
        most = view.program.max_instances
        plan = _plan_window(
            view.program,
            self.sigma_ppm,
            view.elapsed_slots,
            state,
            (view.spot_price, *forecast.spot_price[:window]),
            tuple(min(most, a) for a in (view.spot_available, *forecast.spot_available[:window])),
            view.on_demand_price,
            min(most, view.on_demand_available),
        )
        # A window cut short by the deadline commits to fewer actions than v.
        return plan + (plan[-1],) * max(0, self.commitment - len(plan))


def _mean(program: JobProgram, played: list[Holding]) -> Holding:
    """Play the mean of several holdings, rounded half up to an allowed count, spot first."""
    plans = len(played)
    total = sum(holding.instances for holding in played)
    spot = max(holding.spot for holding in played)
    wanted = (2 * total + plans) // (2 * plans)
    count = largest_allowed(program, wanted)
    if count < wanted:
        larger = [allowed for allowed in program.allowed_counts if allowed > wanted]
        if larger and larger[0] - wanted <= wanted - count:
            count = larger[0]
    spot = min(spot, count)
    return Holding(spot=spot, on_demand=count - spot)


@lru_cache(maxsize=8192)
def _plan_window(
    program: JobProgram,
    sigma_ppm: int,
    elapsed_slots: int,
    state: JobProgress,
    spot_price: tuple[int, ...],
    spot_available: tuple[int, ...],
    on_demand_price: int,
    on_demand_available: int,
) -> tuple[Holding, ...]:
    """Solve one window; cached because most of a pool's policies ask for the same ones."""
    slots = len(spot_price)
    wanted = {state.holding}
    for available in set(spot_available):
        for count in program.allowed_counts:
            spot = min(count, available)
            wanted.add(Holding(spot=spot, on_demand=count - spot))
    wanted.update(Holding(on_demand=count) for count in program.allowed_counts)
    market = WindowMarket(
        spot_price=np.array(spot_price, dtype=np.int64),
        on_demand_price=np.full(slots, on_demand_price, dtype=np.int64),
        spot_available=np.array(spot_available, dtype=np.int64),
        on_demand_available=np.full(slots, on_demand_available, dtype=np.int64),
    )
    ends = elapsed_slots + slots
    end_value: ProgressValue | np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    if ends >= program.deadline_slots:
        end_value = value_after_deadline(program, on_demand_price_micro_usd=on_demand_price)
    else:
        end_value = line_value(program, sigma_ppm, ends, on_demand_price)
    plan = solve_window(
        program,
        configurations(wanted),
        market,
        state,
        elapsed_slots=elapsed_slots,
        end_value=end_value,
        cell_limit=PLANNING_CELLS,
    )
    return plan.holdings


def line_value(
    program: JobProgram, sigma_ppm: int, ends: int, on_demand_price: int
) -> ProgressValue:
    """Value progress after slot `ends` against the straight line to the deadline.

    `on_demand_price` is micro-USD per instance-hour.
    """
    slot_cost = cost_micro_usd(on_demand_price, program.max_instances, program.slot_s)
    slot_quanta = program.rate_quanta_per_s[program.max_instances] * program.slot_s
    giga = 1_000_000_000
    below = slot_cost * giga // slot_quanta
    above = below * sigma_ppm // PPM
    target = program.work_quanta * ends // program.deadline_slots
    # The job will finish and earn its value: what is left of it is paid at sigma of on-demand.
    return ProgressValue(
        target_quanta=target,
        at_target_micro_usd=program.value_micro_usd[0]
        - above * (program.work_quanta - target) // giga,
        below_micro_usd_per_giga=below,
        above_micro_usd_per_giga=above,
    )
