"""Exact placement of a small queue at one moment: who runs where, with how many GPUs, or waits.

CP-SAT chooses for all jobs at once a simple path through regions, the GPUs in each region of it and
the bandwidth reserved on its links, or that the job waits. It shares no code with the greedy
methods but the prices and the formulas of an iteration.

What is minimised is what the greedy `spotline` weighs job by job, summed over the queue:

    usd of the job + time_usd_per_s * (seconds until it is expected to be done)

A job that waits is charged with the wait of `expected_wait_s` and then with the best way it could
run alone on the whole graph: one moment cannot know better. As greedy methods do, it looks at
stages that never wait for the network only. Interruptions waste GPU time at the mean price (the
exact product of region and price would not be linear), and the copies of checkpoints they cause
are left out.

Rounding: bandwidth is counted in whole kilobytes per second, reservations up and free links down;
costs in parts of 10^-9 of the queue's total, so that "optimal" is meant to that precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spotline.domain.placement.free import Free, placed, reservation_bytes_per_s
from spotline.domain.placement.interface import PlacementMoment
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.ways import TIME_WEIGHT, MarketPrices
from spotline.domain.placement.weighing import QueuedJob, queued_jobs, weigh

MAX_JOBS = 5
# Regions the program sees; of more, the cheapest and the largest, and those of the hint.
MAX_REGIONS = 10

_SEED = 1
_PARTS = 10**9
_KILO = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactAnswer:
    """The best answers found for a queue, in its order.

    `proven` says that nothing is better; `bound_usd` that nothing is below it.
    """

    answers: tuple[Placement | NoPlacement, ...]
    proven: bool
    bound_usd: float


def place_exactly(
    queue: Sequence[PipelineJob],
    moment: PlacementMoment,
    *,
    time_weight: float = TIME_WEIGHT,
    hint: Sequence[Placement | NoPlacement] = (),
    max_deterministic_time: float = 10.0,
) -> ExactAnswer | None:
    """Find the best placement of a small queue.

    Parameters
    ----------
    queue, moment
        Jobs by different ids, and what is free. Deadlines are not looked at.
    time_weight
        As for `spotline`.
    hint
        Known answers to start from; they are returned where nothing better is found.
    max_deterministic_time
        Bound on CP-SAT's own count of work, not on seconds; equal inputs end alike.

    Returns
    -------
    ExactAnswer
        What was found. Proven only over all regions, so never where there are more than
        `MAX_REGIONS` with free GPUs.
    None
        Nothing was found within the bound, and there was no hint.

    Raises
    ------
    ValueError
        The queue is longer than `MAX_JOBS`.
    """
    if len(queue) > MAX_JOBS:
        raise ValueError(f"an exact queue must have <= {MAX_JOBS} jobs, had {len(queue)}")
    if not queue:
        return ExactAnswer(answers=(), proven=True, bound_usd=0.0)
    # cp_model costs almost a second to import, and few who import this module solve.
    from ortools.sat.python import cp_model

    jobs = queued_jobs(queue, moment, time_weight=time_weight)
    free = Free.of(moment.residual)
    regions, all_regions = _regions(free, moment, hint)
    unit = sum(abs(queued.total_usd) for queued in jobs) / _PARTS or 1.0
    program = _Program(cp_model.CpModel(), jobs, free, regions, unit)
    program.build(must_place=not moment.releases)
    program.add_hint({answer.job_id: answer for answer in hint}, moment)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = max_deterministic_time
    # Costs couple everything through large coefficients: the full linear relaxation pays.
    solver.parameters.linearization_level = 2
    status = solver.solve(program.model)
    known = len(hint) == len(queue)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        if not known:
            return None
        return ExactAnswer(answers=tuple(hint), proven=False, bound_usd=-math.inf)
    proven = status == cp_model.OPTIMAL and all_regions
    answers = program.answers(solver)
    total_usd = weigh(queue, answers, moment, time_weight=time_weight).total_usd
    if known and not proven:
        known_usd = weigh(queue, hint, moment, time_weight=time_weight).total_usd
        if known_usd < total_usd:
            answers, total_usd = tuple(hint), known_usd
    # The program's own bound is higher where no job can be placed, and pays for that.
    bound_usd = min(solver.best_objective_bound * unit, total_usd) if all_regions else -math.inf
    return ExactAnswer(answers=answers, proven=proven, bound_usd=bound_usd)


def _regions(
    free: Free, moment: PlacementMoment, hint: Sequence[Placement | NoPlacement]
) -> tuple[list[int], bool]:
    """The regions the program sees, and whether those are all that have free GPUs."""
    having = np.flatnonzero(free.gpus > 0)
    if len(having) <= MAX_REGIONS:
        return having.tolist(), True
    price = moment.usd_per_gpu_hour
    index = moment.residual.graph.index
    kept = {
        index[share.region_id]
        for answer in hint
        if isinstance(answer, Placement)
        for share in answer.path
    }
    by_price = having[np.argsort(price[having], kind="stable")].tolist()
    by_size = having[np.argsort(-free.gpus[having], kind="stable")].tolist()
    for pair in zip(by_price, by_size, strict=True):
        for region in pair:
            if len(kept) < MAX_REGIONS:
                kept.add(region)
    return sorted(kept), False


@dataclass(slots=True)
class _JobVariables:
    counts: dict[int, Any] = field(default_factory=dict)
    gpus: dict[int, Any] = field(default_factory=dict)
    split: dict[int, dict[int, Any]] = field(default_factory=dict)
    arcs: dict[tuple[int, int], Any] = field(default_factory=dict)
    starts: dict[int, Any] = field(default_factory=dict)
    ends: dict[int, Any] = field(default_factory=dict)
    waits: Any = None


class _Program:
    """The integer program; regions are numbered 1.. in circuits, 0 is the way in and out."""

    def __init__(
        self, model: Any, jobs: list[QueuedJob], free: Free, regions: list[int], unit_usd: float
    ) -> None:
        self.model = model
        self._jobs, self._free, self._regions, self._unit = jobs, free, regions, unit_usd
        self._variables: list[_JobVariables] = []

    def build(self, *, must_place: bool) -> None:
        """Add all jobs, what they share, and the objective."""
        total: Any = 0
        for queued in self._jobs:
            variables = self._add_job(queued)
            total = total + self._cost(queued, variables)
            self._variables.append(variables)
        for region in self._regions:
            self.model.add(
                sum(variables.gpus[region] for variables in self._variables)
                <= int(self._free.gpus[region])
            )
        self._share_links()
        placeable = [variables.waits for variables in self._variables if variables.counts]
        if must_place and placeable:
            # Nothing is known to end: somebody has to begin, if anybody can.
            impossible = self.model.new_bool_var("nobody")
            self.model.add_bool_or([*(waits.negated() for waits in placeable), impossible])
            total = total + 4 * _PARTS * impossible
        self.model.minimize(total)

    def _add_job(self, queued: QueuedJob) -> _JobVariables:
        model, job, own = self.model, queued.job, _JobVariables()
        own.waits = model.new_bool_var(f"wait_{job.job_id}")
        most = min(job.best_gpus, int(self._free.gpus.sum()))
        for count in range(job.min_gpus, most + 1):
            own.counts[count] = model.new_bool_var(f"count_{job.job_id}_{count}")
        model.add_exactly_one([own.waits, *own.counts.values()])
        circuit = [(0, 0, own.waits)]
        for node, region in enumerate(self._regions, start=1):
            member = self._add_region(own, region, job)
            own.starts[region] = model.new_bool_var("")
            own.ends[region] = model.new_bool_var("")
            circuit += [(0, node, own.starts[region]), (node, 0, own.ends[region])]
            circuit.append((node, node, member.negated()))
        least = reservation_bytes_per_s(job, job.min_gpus)
        for here_node, here in enumerate(self._regions, start=1):
            for there_node, there in enumerate(self._regions, start=1):
                if here != there and self._free.width[here, there] >= least:
                    arc = model.new_bool_var("")
                    own.arcs[here, there] = arc
                    circuit.append((here_node, there_node, arc))
        model.add_circuit(circuit)
        # GPUs by count and region: costs are products of both, and linear only so.
        for count, on in own.counts.items():
            own.split[count] = {
                region: model.new_int_var(0, min(count, int(self._free.gpus[region])), "")
                for region in self._regions
            }
            model.add(sum(own.split[count].values()) == count * on)
            for region, gpus in own.split[count].items():
                model.add(gpus <= min(count, int(self._free.gpus[region])) * on)
        for region, gpus in own.gpus.items():
            model.add(gpus == sum(split[region] for split in own.split.values()))
        return own

    def _add_region(self, own: _JobVariables, region: int, job: PipelineJob) -> Any:
        room = min(int(self._free.gpus[region]), job.best_gpus)
        gpus = self.model.new_int_var(0, room, "")
        member = self.model.new_bool_var("")
        self.model.add(gpus >= 1).only_enforce_if(member)
        self.model.add(gpus == 0).only_enforce_if(member.negated())
        own.gpus[region] = gpus
        return member

    def _share_links(self) -> None:
        """Reservations of all jobs on a link, in whichever direction they cross it."""
        reserved: dict[tuple[int, int], list[Any]] = {}
        for queued, own in zip(self._jobs, self._variables, strict=True):
            demands = {
                count: math.ceil(reservation_bytes_per_s(queued.job, count) / _KILO)
                for count in own.counts
            }
            largest = max(demands.values(), default=0)
            demand = sum(demands[count] * on for count, on in own.counts.items())
            for here, there in own.arcs:
                if here > there and (there, here) in own.arcs:
                    continue
                link = (min(here, there), max(here, there))
                crossing = [own.arcs[pair] for pair in (link, link[::-1]) if pair in own.arcs]
                share = self.model.new_int_var(0, largest, "")
                for arc in crossing:
                    self.model.add(share >= demand).only_enforce_if(arc)
                reserved.setdefault(link, []).append(share)
        for link, shares in reserved.items():
            self.model.add(sum(shares) <= math.floor(self._free.width[link] / _KILO))

    def _cost(self, queued: QueuedJob, own: _JobVariables) -> Any:
        """Parts of the queue's total: USD and time of a job, or of its waiting."""
        job, weigher, market = queued.job, queued.weigher, queued.weigher.market
        scale = job.iterations / self._unit
        boundary_gb = job.microbatches * job.activation_bytes / 1e9
        total: Any = round(queued.total_usd / self._unit) * own.waits
        for (here, there), arc in own.arcs.items():
            usd = boundary_gb * float(market.boundary_usd_per_gb[here, there])
            total = total + round(scale * usd) * arc
        for count, on in own.counts.items():
            iteration_s = job.iteration_s(count)
            repair_s = job.restart_s + job.checkpoint_interval_iterations * iteration_s / 2
            second_usd = weigher.time_usd_per_s + count * market.mean_usd_per_s
            total = total + round(scale * iteration_s * weigher.time_usd_per_s) * on
            for region, gpus in own.split[count].items():
                usd = float(market.usd_per_s[region])
                total = total + gpus * round(scale * iteration_s * usd)
            risk = scale * iteration_s * repair_s * second_usd
            if market.interruptions_per_s.any():
                total = total + self._risk(own, market, risk, on)
        return total

    def _risk(self, own: _JobVariables, market: MarketPrices, risk: float, on: Any) -> Any:
        cost = self.model.new_int_var(0, 16 * _PARTS, "")
        # A region is on the path where its circuit enters it.
        entered: Any = 0
        for region in own.gpus:
            weight = round(risk * float(market.interruptions_per_s[region]))
            into = [arc for (_, there), arc in own.arcs.items() if there == region]
            entered = entered + weight * (own.starts[region] + sum(into))
        self.model.add(cost >= entered).only_enforce_if(on)
        return cost

    def add_hint(self, known: dict[str, Placement | NoPlacement], moment: PlacementMoment) -> None:
        """Start from answers that are known."""
        index = moment.residual.graph.index
        for queued, own in zip(self._jobs, self._variables, strict=True):
            answer = known.get(queued.job.job_id)
            if answer is None:
                continue
            placement = answer if isinstance(answer, Placement) else None
            shares = {index[s.region_id]: s.gpus for s in placement.path} if placement else {}
            self.model.add_hint(own.waits, placement is None)
            for count, on in own.counts.items():
                self.model.add_hint(on, placement is not None and count == placement.gpus)
            for region, gpus in own.gpus.items():
                self.model.add_hint(gpus, shares.get(region, 0))

    def answers(self, solver: Any) -> tuple[Placement | NoPlacement, ...]:
        """Read a solution; free bandwidth is enough for all by construction."""
        answers: list[Placement | NoPlacement] = []
        for queued, own in zip(self._jobs, self._variables, strict=True):
            if solver.value(own.waits):
                answers.append(NoPlacement(job_id=queued.job.job_id, reason="better placed later"))
                continue
            path = [next(region for region, on in own.starts.items() if solver.value(on))]
            following = {
                here: there for (here, there), arc in own.arcs.items() if solver.value(arc)
            }
            while path[-1] in following:
                path.append(following[path[-1]])
            gpus = [int(solver.value(own.gpus[region])) for region in path]
            way = queued.weigher.way(path, gpus, queued.job.iteration_s(sum(gpus)))
            answers.append(placed(queued.job, self._free, path, gpus, usd_per_iteration=way.usd))
        return tuple(answers)
