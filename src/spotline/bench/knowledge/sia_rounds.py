"""Sia's rounds of 60 s over a cluster, and how long one of its integer programs takes.

Every round solves `sia.py` over the jobs present, places what it chose (running
jobs stay where they are unless a type must be packed anew), and runs to the next round. A job that
changed anything makes no progress for `START_S`. Without knowledge a job first spends a round on
one GPU of each type (more where the model does not fit one); those GPUs are taken off the program's
capacity, and the job enters the program when all types are known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from spotline.bench.knowledge.cluster import (
    START_S,
    Beliefs,
    ClusterJob,
    ClusterRun,
    Floats,
    FreeNodes,
    HeldOption,
    JobClass,
    LearningBeliefs,
    NodeGroup,
    Placement,
    PredictedBeliefs,
    RunOption,
    TrueBeliefs,
    Workload,
)
from spotline.bench.knowledge.sia import (
    NOTHING,
    SiaConfiguration,
    SiaJob,
    allowed_configurations,
    solve_round,
)

ROUND_S = 60.0
# A million rounds are two years: a simulation that is not over then never will be.
_MAX_ROUNDS = 1_000_000


def cluster_configurations(groups: Sequence[NodeGroup]) -> tuple[SiaConfiguration, ...]:
    """Configurations of all GPU types, type by type."""
    return tuple(
        one
        for group in groups
        for one in allowed_configurations(
            group.gpu_type, gpus_per_node=group.gpus_per_node, nodes=group.nodes
        )
    )


def run_sia(workload: Workload, knowledge: str) -> ClusterRun:
    """Run a workload to its last job, round by round.

    Parameters
    ----------
    knowledge
        `none`, `predicted` or `true`.

    Raises
    ------
    ValueError
        There is no such level of knowledge, or some job makes no progress for ever.
    """
    return _Sia(workload, knowledge).run()


@dataclass(slots=True)
class _Running:
    """A job that has arrived and is not done."""

    job: ClusterJob
    job_class: JobClass
    beliefs: Beliefs
    by_configuration: tuple[tuple[int, ...], ...]
    left: float
    option: int = NOTHING
    placement: Placement = ()
    restarts: int = 0
    ran: bool = False
    pays_s: float = 0.0
    seen: set[int] = field(default_factory=set)
    goodput: tuple[float, ...] = ()
    best: tuple[int, ...] = ()

    def refresh(self) -> None:
        """Best option of every configuration, as believed now."""
        rates: Floats = self.beliefs.rates()
        best, goodput = [], []
        for options in self.by_configuration:
            top = max(options, key=lambda index: (rates[index], -index), default=NOTHING)
            best.append(top)
            goodput.append(float(rates[top]) if top != NOTHING else 0.0)
        self.best, self.goodput = tuple(best), tuple(goodput)

    def probe(self) -> int:
        """The option to learn from before anything else, `NOTHING` where there is none."""
        return self.beliefs.probe() if isinstance(self.beliefs, LearningBeliefs) else NOTHING

    def runs(self) -> RunOption:
        """What it holds."""
        return self.job_class.options[self.option]


class _Sia:
    def __init__(self, workload: Workload, knowledge: str) -> None:
        self._workload = workload
        self._new_beliefs = _beliefs(workload, knowledge)
        self._configurations = cluster_configurations(workload.groups)
        self._capacity = {group.gpu_type: group.gpus for group in workload.groups}
        self._nodes = FreeNodes(workload.groups)
        self._by_configuration = {
            name: _options_by_configuration(one, self._configurations)
            for name, one in workload.classes.items()
        }
        self._active: list[_Running] = []
        self._segments: list[HeldOption] = []
        self._completed_s: dict[str, float] = {}
        self._starts = 0

    def run(self) -> ClusterRun:
        waiting = list(reversed(self._workload.jobs))
        now_s = 0.0
        for _ in range(_MAX_ROUNDS):
            if not self._active:
                if not waiting:
                    break
                now_s = max(now_s, math.ceil(waiting[-1].arrival_s / ROUND_S) * ROUND_S)
            while waiting and waiting[-1].arrival_s <= now_s:
                self._active.append(self._admit(waiting.pop()))
            self._allocate(self._decide(now_s))
            self._advance(now_s)
            now_s += ROUND_S
        else:
            raise ValueError(f"job {self._active[0].job.name} must end, it makes no progress")
        return ClusterRun(
            segments=tuple(_merged(self._segments)),
            completed_s=self._completed_s,
            starts=self._starts,
        )

    def _admit(self, job: ClusterJob) -> _Running:
        job_class = self._workload.classes[job.job_class]
        one = _Running(
            job=job,
            job_class=job_class,
            beliefs=self._new_beliefs(job_class),
            by_configuration=self._by_configuration[job.job_class],
            left=job.work,
        )
        one.refresh()
        return one

    def _decide(self, now_s: float) -> list[int]:
        """An option per active job, `NOTHING` where it is to wait."""
        capacity = dict(self._capacity)
        chosen = [NOTHING] * len(self._active)
        in_program: list[int] = []
        for place, one in enumerate(self._active):
            probe = one.probe()
            if probe == NOTHING:
                in_program.append(place)
                continue
            option = one.job_class.options[probe]
            if option.gpus <= capacity[option.gpu_type]:
                capacity[option.gpu_type] -= option.gpus
                chosen[place] = probe
        solved = solve_round(
            self._configurations,
            capacity,
            [self._as_sia(self._active[place], now_s) for place in in_program],
        )
        for place, configuration in zip(in_program, solved.chosen, strict=True):
            if configuration != NOTHING:
                chosen[place] = self._option(self._active[place], configuration)
        return chosen

    def _configuration_of(self, one: _Running) -> int:
        if one.option == NOTHING:
            return NOTHING
        held = one.runs()
        return self._configurations.index(
            SiaConfiguration(gpu_type=held.gpu_type, gpus=held.gpus, nodes=held.nodes)
        )

    def _as_sia(self, one: _Running, now_s: float) -> SiaJob:
        return SiaJob(
            goodput=one.goodput,
            current=self._configuration_of(one),
            age_s=now_s - one.job.arrival_s,
            restarts=one.restarts,
        )

    def _option(self, one: _Running, configuration: int) -> int:
        # A job that keeps its GPUs keeps its batch: a better one would not pay for the restart.
        if configuration == self._configuration_of(one):
            return one.option
        return one.best[configuration]

    def _allocate(self, chosen: Sequence[int]) -> None:
        before = [(one.option, one.placement) for one in self._active]
        moving: list[int] = []
        for place, (one, option) in enumerate(zip(self._active, chosen, strict=True)):
            if one.option != NOTHING and one.option != option:
                self._nodes.release(one.runs().gpu_type, one.placement)
                one.placement = ()
            if option not in (NOTHING, one.option):
                moving.append(place)
            one.option = option
        moving.sort(key=lambda place: (-self._active[place].runs().gpus, place))
        for place in moving:
            one = self._active[place]
            if one.placement:  # packed with the others of its type
                continue
            placement = self._nodes.place(one.runs())
            if placement is None:
                self._pack(one.runs().gpu_type)
            else:
                one.placement = placement
        for one, (option, placement) in zip(self._active, before, strict=True):
            if one.option != NOTHING and (one.option, one.placement) != (option, placement):
                # What a job is moved about for to be learnt is not held against it.
                one.restarts += one.ran and one.probe() == NOTHING
                one.ran = True
                self._starts += 1
                one.pays_s = START_S

    def _pack(self, gpu_type: str) -> None:
        """Place all jobs of a type anew, largest first: then what adds up also fits."""
        here = [
            (place, one)
            for place, one in enumerate(self._active)
            if one.option != NOTHING and one.runs().gpu_type == gpu_type
        ]
        previous = {place: one.placement for place, one in here}
        for placement in previous.values():
            self._nodes.release(gpu_type, placement)
        for place, one in sorted(here, key=lambda pair: (-pair[1].runs().gpus, pair[0])):
            found = self._nodes.place(one.runs(), previous[place])
            if found is None:
                raise ValueError(f"{one.job.name} must fit: the program keeps within capacity")
            one.placement = found

    def _advance(self, now_s: float) -> None:
        self._active = [
            one for one in self._active if one.option == NOTHING or not self._run(one, now_s)
        ]

    def _run(self, one: _Running, now_s: float) -> bool:
        """Run a job for a round; whether it ended."""
        rate = float(one.job_class.true_rate[one.option])
        option, held = one.runs(), one.option
        works_s = ROUND_S - one.pays_s
        progress = min(rate * works_s, one.left)
        done = rate > 0 and rate * works_s >= one.left
        end_s = now_s + (one.pays_s + one.left / rate if done else ROUND_S)
        one.left -= progress
        one.pays_s = 0.0
        self._segments.append(
            HeldOption(
                job=one.job.name,
                option=option,
                start_s=now_s,
                end_s=end_s,
                progress=progress,
                failed=rate <= 0,
            )
        )
        if held not in one.seen:
            one.seen.add(held)
            one.beliefs.observe(held, rate)
            one.refresh()
        if done or rate <= 0:
            self._nodes.release(option.gpu_type, one.placement)
            one.option, one.placement = NOTHING, ()
        if done:
            self._completed_s[one.job.name] = end_s
        return done


def _beliefs(workload: Workload, knowledge: str) -> Callable[[JobClass], Beliefs]:
    if knowledge == "none":
        return lambda one: LearningBeliefs(one, workload.groups)
    if knowledge == "predicted":
        return PredictedBeliefs
    if knowledge == "true":
        return TrueBeliefs
    raise ValueError(f"knowledge must be none, predicted or true, was {knowledge!r}")


def _options_by_configuration(
    job_class: JobClass, configurations: Sequence[SiaConfiguration]
) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in configurations]
    places = {one: place for place, one in enumerate(configurations)}
    for index, option in enumerate(job_class.options):
        key = SiaConfiguration(gpu_type=option.gpu_type, gpus=option.gpus, nodes=option.nodes)
        if key in places:
            found[places[key]].append(index)
    return tuple(tuple(one) for one in found)


def _merged(segments: Sequence[HeldOption]) -> list[HeldOption]:
    """Rounds in which a job went on as before, as one segment."""
    merged: dict[str, list[HeldOption]] = {}
    for one in segments:
        mine = merged.setdefault(one.job, [])
        last = mine[-1] if mine else None
        if (
            last is not None
            and (last.option, last.end_s, last.failed) == (one.option, one.start_s, False)
            and not one.failed
        ):
            mine[-1] = HeldOption(
                job=one.job,
                option=one.option,
                start_s=last.start_s,
                end_s=one.end_s,
                progress=last.progress + one.progress,
            )
        else:
            mine.append(one)
    return [one for mine in merged.values() for one in mine]


# --- how long a round takes -----------------------------------------------------------------------


def measure_round(
    jobs: int = 500, gpus: int = 512, *, rounds: int = 40, seed: int = 5
) -> dict[str, float]:
    """Time the integer program of successive rounds of a full cluster.

    Every job has its own concave speed-ups on three GPU types (4, 8 and 8 to a node; a quarter,
    three eighths and three eighths of all GPUs) and its own limit of GPUs; from round to round 3 %
    of the jobs end and others come, and all estimates move by 2 %.

    Returns
    -------
    dict
        Milliseconds per round (`p50_ms`, `p99_ms`, `max_ms`), the share proven optimal, and the
        largest relative gap.
    """
    rng = np.random.default_rng([seed, jobs, gpus])
    groups = (
        NodeGroup(gpu_type="t4", nodes=gpus // 16, gpus_per_node=4),
        NodeGroup(gpu_type="a100", nodes=gpus * 3 // 64, gpus_per_node=8),
        NodeGroup(gpu_type="rtx", nodes=gpus * 3 // 64, gpus_per_node=8),
    )
    configurations = cluster_configurations(groups)
    capacity = {group.gpu_type: group.gpus for group in groups}
    goodput = np.array([_goodputs(configurations, rng) for _ in range(jobs)])
    current, restarts = [NOTHING] * jobs, [0] * jobs
    age_s = rng.uniform(0, 3600, jobs)
    spent_ms, gaps, optimal = [], [], 0
    for _ in range(rounds):
        seen = goodput * np.exp(0.02 * rng.standard_normal(goodput.shape))
        programs = [
            SiaJob(
                goodput=tuple(seen[index].tolist()),
                current=current[index],
                age_s=float(age_s[index]),
                restarts=restarts[index],
            )
            for index in range(jobs)
        ]
        began = time.perf_counter()
        solved = solve_round(configurations, capacity, programs)
        spent_ms.append(1000 * (time.perf_counter() - began))
        gaps.append(solved.gap)
        optimal += solved.optimal
        for index, chosen in enumerate(solved.chosen):
            restarts[index] += chosen != current[index] and current[index] != NOTHING
            current[index] = chosen
        age_s += ROUND_S
        for index in rng.choice(jobs, max(1, jobs * 3 // 100), replace=False):
            goodput[index] = _goodputs(configurations, rng)
            current[index], restarts[index], age_s[index] = NOTHING, 0, 0.0
    return {
        "jobs": float(jobs),
        "gpus": float(sum(capacity.values())),
        "rounds": float(rounds),
        "p50_ms": float(np.percentile(spent_ms, 50)),
        "p99_ms": float(np.percentile(spent_ms, 99)),
        "max_ms": float(max(spent_ms)),
        "optimal_share": optimal / rounds,
        "largest_gap": float(max(gaps)),
    }


def _goodputs(configurations: Sequence[SiaConfiguration], rng: np.random.Generator) -> list[float]:
    speed = {"t4": 1.0, "a100": 4.0, "rtx": 2.0}
    speed = {name: value * math.exp(0.3 * rng.standard_normal()) for name, value in speed.items()}
    exponent = rng.uniform(0.6, 0.99)
    most = int(rng.integers(1, 65))
    return [
        speed[one.gpu_type] * one.gpus**exponent if one.gpus <= most else 0.0
        for one in configurations
    ]
