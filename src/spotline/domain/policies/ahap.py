"""Adaptive hybrid allocation with predictions: committed horizon control."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotline.domain.jobs.accounting import Held, Standing, Terms, hold, lay_out, terms_at
from spotline.domain.jobs.offer import (
    ROW,
    Offer,
    fit,
    is_allowed,
    largest_allowed,
    offer_at,
    standing_at,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.kernels import IntArray, inlined, kernel, rule
from spotline.domain.policies.ahap_plans import Planner, plan_of
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.params import Params, refuse_more_than_allowed, view_row
from spotline.domain.solvers.window import ProgressValue, value_after_deadline
from spotline.domain.units import PPM, cost_micro_usd

KIND = 4

# A memory is the progress that was expected, then for each of the v plans these and its actions
# still committed, spot and on-demand of each.
_PROGRESS = 0
_SPOT = 1
_ON_DEMAND = 2
_PENDING_S = 3
_ACTIONS = 4
_HEAD = 5


@rule
def memory_width(commitment: int) -> int:
    """Length of a memory in which every plan has all its actions before it."""
    return 1 + commitment * (_HEAD + 2 * commitment)


@kernel
def choose(
    params: Params,
    terms: Terms,
    standing: Standing,
    offer: Offer,
    memory: IntArray,
    by_count: IntArray,
    planner: Planner,
) -> Held:
    """Advance the v plans by one slot and play their mean."""
    if memory[0] != standing.progress:
        # The safety net or the cloud has intervened: plans made for another place are dropped.
        _restart(params, standing, memory)
    total = 0
    most_spot = 0
    for index in range(params.commitment):
        at = 1 + index * (_HEAD + 2 * params.commitment)
        track = _track(standing, offer, memory, at)
        if memory[at + _ACTIONS] == 0:
            until = (index - standing.elapsed) % params.commitment
            until = until if until else params.commitment
            window = min(params.forecast_slots, offer.steps)
            window = min(window, terms.deadline_slots - standing.elapsed - 1)
            found = plan_of(params, terms, track, offer, window, by_count, planner)
            memory[at + _ACTIONS] = until
            # A window cut short by the deadline has fewer actions than v: its last one is kept.
            for step in range(until):
                action = planner.plans[found, min(step, window)]
                memory[at + _HEAD + 2 * step] = action[0]
                memory[at + _HEAD + 2 * step + 1] = action[1]
        held = _play(terms, track, offer, memory, at, by_count)
        total += held.spot + held.on_demand
        most_spot = max(most_spot, held.spot)
    wish = fit(by_count, offer, _mean(by_count, params.commitment, total, most_spot))
    memory[0] = hold(terms, standing, wish, offer.left_s, by_count).progress
    return wish


@inlined
def _restart(params: Params, standing: Standing, memory: IntArray) -> None:
    """Begin all plans where the job stands."""
    for index in range(params.commitment):
        at = 1 + index * (_HEAD + 2 * params.commitment)
        memory[at + _PROGRESS] = standing.progress
        memory[at + _SPOT] = standing.held.spot
        memory[at + _ON_DEMAND] = standing.held.on_demand
        memory[at + _PENDING_S] = standing.pending_s
        memory[at + _ACTIONS] = 0


@inlined
def _track(standing: Standing, offer: Offer, memory: IntArray, at: int) -> Standing:
    """Where a plan stands: its own progress and held set."""
    held = Held(memory[at + _SPOT], memory[at + _ON_DEMAND])
    return Standing(
        standing.elapsed,
        memory[at + _PROGRESS],
        held,
        memory[at + _PENDING_S],
        standing.spent,
        int(held.spot > offer.spot),
        0,
    )


@inlined
def _play(
    terms: Terms, track: Standing, offer: Offer, memory: IntArray, at: int, by_count: IntArray
) -> Held:
    """Play a plan's next action, as far as spot is there, and advance the plan by it."""
    first = at + _HEAD
    spot = min(memory[first], offer.spot)
    on_demand = memory[first + 1]
    memory[at + _ACTIONS] -= 1
    for number in range(first, first + 2 * memory[at + _ACTIONS]):
        memory[number] = memory[number + 2]
    count = largest_allowed(by_count, spot + on_demand)
    on_demand = min(on_demand, max(0, count - spot))
    held = Held(count - on_demand, on_demand)
    after = hold(terms, track, held, offer.left_s, by_count)
    memory[at + _PROGRESS] = after.progress
    memory[at + _SPOT] = held.spot
    memory[at + _ON_DEMAND] = held.on_demand
    memory[at + _PENDING_S] = after.pending_s
    return held


@inlined
def _mean(by_count: IntArray, plans: int, total: int, most_spot: int) -> Held:
    """The mean of several holdings, rounded half up to an allowed count, spot first."""
    wanted = (2 * total + plans) // (2 * plans)
    count = largest_allowed(by_count, wanted)
    if count < wanted:
        for larger in range(wanted + 1, by_count.shape[1]):
            if is_allowed(by_count, larger):
                if larger - wanted <= wanted - count:
                    count = larger
                break
    spot = min(most_spot, count)
    return Held(spot, count - spot)


# --- laying out -------------------------------------------------------------------------------


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


def worth_rows(
    program: JobProgram, params: Params, elapsed: int, window: int, on_demand_price: int
) -> tuple[IntArray, IntArray]:
    """What progress is worth at the end of a window: before the deadline, and after it."""
    ends = elapsed + 1 + min(window, program.deadline_slots - elapsed - 1)
    if ends >= program.deadline_slots:
        return _UNUSED, value_after_deadline(program, on_demand_price_micro_usd=on_demand_price)
    return line_value(program, params.sigma_ppm, ends, on_demand_price).row, _UNUSED


def memory_row(memory: Memory, commitment: int) -> IntArray:
    """Lay a memory out in a row of fixed width."""
    row = np.zeros(memory_width(commitment), dtype=np.int64)
    row[0] = memory[0] if memory else -1
    at = 1
    for index in range(commitment if memory else 0):
        length = _HEAD + 2 * memory[at + _ACTIONS]
        first = 1 + index * (_HEAD + 2 * commitment)
        row[first : first + length] = memory[at : at + length]
        at += length
    return row


def memory_of(row: IntArray, commitment: int) -> Memory:
    """Return the memory in a row: no place is kept for actions that were played."""
    numbers = row.tolist()
    memory = [numbers[0]]
    for first in range(1, len(numbers), _HEAD + 2 * commitment):
        memory += numbers[first : first + _HEAD + 2 * numbers[first + _ACTIONS]]
    return tuple(memory)


@kernel
def choose_laid(
    row: IntArray,
    program: IntArray,
    memory: IntArray,
    by_count: IntArray,
    values: IntArray,
    predicted: IntArray,
    line: IntArray,
    late: IntArray,
) -> Held:
    """Choose for one view, laid out: `row` is that of the view, then window and commitment."""
    params = Params(KIND, 1, 1, row[ROW], row[ROW + 1], 0, 0)
    standing = standing_at(row)
    steps = predicted.shape[2]
    planner = Planner(
        predicted,
        np.zeros(1, dtype=np.int64),
        line.reshape((1, 1, 1, line.shape[0])),
        late.reshape((1, late.shape[0])),
        values,
        np.full((1, steps + 1, 2), -1, dtype=np.int64),
        np.empty((params.commitment, 5), dtype=np.int64),
        np.empty((params.commitment, steps + 1, 2), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )
    return choose(params, terms_at(program), standing, offer_at(row), memory, by_count, planner)


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

    @property
    def forecast_slots(self) -> int:
        """`omega`."""
        return self.omega

    @property
    def uses_table(self) -> bool:
        """Never."""
        return False

    @property
    def params(self) -> Params:
        """All three; the pool that it is played in says where its sigma is."""
        return Params(KIND, 1, 1, self.omega, self.commitment, self.sigma_ppm)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Advance the v plans by one slot and play their mean."""
        forecast = view.forecast
        if forecast is None:
            raise ValueError(f"{self.policy_id} needs a forecast")
        program = view.program
        layout = lay_out(program)
        window = min(self.omega, len(forecast.spot_price))
        line, late = worth_rows(
            program, self.params, view.elapsed_slots, window, view.on_demand_price
        )
        if not memory or memory[0] != view.state.progress_quanta:
            refuse_more_than_allowed(view)
        row = memory_row(memory, self.commitment)
        predicted = (forecast.spot_price[:window], forecast.spot_available[:window])
        spot, on_demand = choose_laid(
            view_row(view, window, self.commitment),
            layout.row,
            row,
            layout.by_count,
            layout.values,
            np.array(predicted, dtype=np.int64).reshape((2, 1, window)),
            line,
            late,
        )
        holding = Holding(spot=spot, on_demand=on_demand)
        return Choice(holding=holding, memory=memory_of(row, self.commitment))


_UNUSED = np.zeros(4, dtype=np.int64)
