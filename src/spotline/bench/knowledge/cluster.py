"""What cluster schedulers are compared on: nodes, jobs, what is believed of them, and what came.

Execution follows the truth of a job's class, whatever the scheduler believes. A start costs
`START_S` without progress; a configuration that does not fit holds its GPUs for `FAILED_START_S`
before that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spotline.bench.knowledge.sia import RESTART_S

START_S = RESTART_S
# Loading takes as long as for any start; memory runs out in the first steps after it.
FAILED_START_S = 60.0

KNOWLEDGE_LEVELS = ("none", "predicted", "true")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes of a cluster."""

    gpu_type: str
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """Of all nodes."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOption:
    """One way to run a job: GPUs of one type and the batch on each of them, in samples."""

    gpu_type: str
    gpus: int
    nodes: int
    batch_per_gpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Jobs that run alike: what they truly do, and what a knowledge source predicts.

    Parameters
    ----------
    options
        All that may be tried.
    true_rate, predicted_rate
        Work per second, shape (options,). Truth is 0 where the run fails; a prediction is 0 where
        the source expects that.
    efficiency
        Worth of a sample against one in the smallest batch, shape (options,). Known to everybody:
        it is a property of the training, not of the machines.
    defaults
        What somebody without knowledge tries in turn: every step names options, at most one of a
        GPU type.
    batches_are_profiled
        Whether a round on one GPU tells the speed of all its batch sizes (they fit surely) or of
        the default one only.
    """

    options: tuple[RunOption, ...]
    true_rate: Floats
    predicted_rate: Floats
    efficiency: Floats
    defaults: tuple[tuple[int, ...], ...]
    batches_are_profiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """A job of some class; `work` in units of its rates."""

    name: str
    arrival_s: float
    work: float
    job_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs by arrival, and the cluster they share."""

    name: str
    groups: tuple[NodeGroup, ...]
    classes: Mapping[str, JobClass]
    jobs: tuple[ClusterJob, ...]
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOption:
    """A job held one option from `start_s` to `end_s`; `progress` is the work done in it."""

    job: str
    option: RunOption
    start_s: float
    end_s: float
    progress: float
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """What came of a workload under one scheduler: everything that was held, and ends by job."""

    segments: tuple[HeldOption, ...]
    completed_s: Mapping[str, float]
    starts: int

    def figures(self, workload: Workload) -> dict[str, float]:
        """Completion times from arrival, makespan from the first arrival, GPU-hours, failures."""
        times = np.array([self.completed_s[job.name] - job.arrival_s for job in workload.jobs])
        first_s = min(job.arrival_s for job in workload.jobs)
        held_s = sum((one.end_s - one.start_s) * one.option.gpus for one in self.segments)
        return {
            "mean_jct_s": float(times.mean()),
            "p99_jct_s": float(np.percentile(times, 99)),
            "makespan_s": float(max(self.completed_s.values()) - first_s),
            "gpu_hours": held_s / 3600,
            "failed_starts": float(sum(one.failed for one in self.segments)),
            "starts": float(self.starts),
        }


# --- nodes ----------------------------------------------------------------------------------------

Placement = tuple[tuple[int, int], ...]


class FreeNodes:
    """Free GPUs of every node; a placement is pairs of node and GPUs."""

    def __init__(self, groups: Sequence[NodeGroup]) -> None:
        self._size = {one.gpu_type: one.gpus_per_node for one in groups}
        self._free = {one.gpu_type: [one.gpus_per_node] * one.nodes for one in groups}

    def free_gpus(self, gpu_type: str = "") -> int:
        """Free GPUs of a type, or of all."""
        if gpu_type:
            return sum(self._free[gpu_type])
        return sum(sum(free) for free in self._free.values())

    def place(self, option: RunOption, prefer: Placement = ()) -> Placement | None:
        """Take GPUs for an option, `None` where they do not fit; a preferred node first."""
        free = self._free[option.gpu_type]
        per_node = option.gpus // option.nodes
        liked = {node for node, _ in prefer}
        fitting = [node for node, left in enumerate(free) if left >= per_node]
        # The fullest that fits, so that whole nodes stay whole.
        fitting.sort(key=lambda node: (node not in liked, free[node], node))
        if len(fitting) < option.nodes:
            return None
        placement = tuple((node, per_node) for node in sorted(fitting[: option.nodes]))
        for node, gpus in placement:
            free[node] -= gpus
        return placement

    def release(self, gpu_type: str, placement: Placement) -> None:
        """Give GPUs back.

        Raises
        ------
        ValueError
            More would be free than there is.
        """
        free = self._free[gpu_type]
        for node, gpus in placement:
            free[node] += gpus
            if free[node] > self._size[gpu_type]:
                raise ValueError(
                    f"free GPUs of a {gpu_type} node must be <= {self._size[gpu_type]}, "
                    f"were {free[node]}"
                )


# --- beliefs --------------------------------------------------------------------------------------


class Beliefs(Protocol):
    """What a scheduler believes of one job; changes only by what it observes of it."""

    def rates(self) -> Floats:
        """Work per second by option, 0 where it is not to be tried."""
        ...

    def observe(self, option: int, rate: float) -> None:
        """An option was run: its rate, 0 where it failed."""
        ...


@dataclass(slots=True)
class _Tried:
    """Options that failed, and those that certainly would."""

    options: tuple[RunOption, ...]
    failed: npt.NDArray[np.bool_] = field(init=False)
    observed: dict[int, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.failed = np.zeros(len(self.options), dtype=bool)

    def note(self, option: int, rate: float) -> None:
        if rate > 0:
            self.observed[option] = rate
            return
        for index in certain_failures(self.options, option):
            if index not in self.observed:
                self.failed[index] = True


def certain_failures(options: Sequence[RunOption], failed: int) -> set[int]:
    """Options that fail if one did: no fewer samples per GPU on no more GPUs of that type."""
    bad = options[failed]
    return {
        index
        for index, one in enumerate(options)
        if one.gpu_type == bad.gpu_type
        and one.gpus <= bad.gpus
        and one.batch_per_gpu >= bad.batch_per_gpu
    }


class TrueBeliefs:
    """Knows everything."""

    def __init__(self, job_class: JobClass) -> None:
        self._rates = job_class.true_rate

    def rates(self) -> Floats:
        """The truth."""
        return self._rates

    def observe(self, option: int, rate: float) -> None:
        """Nothing is new."""


class PredictedBeliefs:
    """Starts from a source's predictions; what is observed of the job overrules them.

    A rate that was measured rescales the job's other predictions too, or an optimistic guess
    elsewhere would look better than every truth. Where nothing is left that the source believes
    in, what has not failed is tried, smallest batch and most GPUs first.
    """

    def __init__(self, job_class: JobClass) -> None:
        self._class = job_class
        self._tried = _Tried(job_class.options)

    def rates(self) -> Floats:
        """Predictions, rescaled, with what was observed and without what failed."""
        predicted = self._class.predicted_rate
        ratios = [
            rate / predicted[option]
            for option, rate in self._tried.observed.items()
            if predicted[option] > 0
        ]
        scale = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
        rates = np.where(self._tried.failed, 0.0, predicted * scale)
        for option, rate in self._tried.observed.items():
            rates[option] = rate
        return rates if (rates > 0).any() else _last_resort(self._class, self._tried)

    def observe(self, option: int, rate: float) -> None:
        """Take in a rate, or a failure."""
        self._tried.note(option, rate)


def _last_resort(job_class: JobClass, tried: _Tried) -> Floats:
    hopes = np.array([one.gpus / one.batch_per_gpu for one in job_class.options])
    return np.where(tried.failed, 0.0, hopes * 1e-6)


class LearningBeliefs:
    """Sia without knowledge: one GPU of each type first, then at most twice what it has run on.

    While a type is unknown only `probe` is offered. Afterwards a type's rate is what was seen on
    the fewest GPUs, scaled with the GPUs: in proportion at first, later with the exponent that
    the job's own runs show.
    """

    def __init__(self, job_class: JobClass, groups: Sequence[NodeGroup]) -> None:
        self._class = job_class
        self._tried = _Tried(job_class.options)
        self._open = [one.gpu_type for one in groups]
        self._index = {one: index for index, one in enumerate(job_class.options)}

    def probe(self) -> int:
        """The option that tells the speed of a type not yet known, -1 where all are known."""
        while self._open:
            option = self._probe_of(self._open[0])
            if option >= 0:
                return option
            self._open.pop(0)
        return -1

    def _probe_of(self, gpu_type: str) -> int:
        for step in self._class.defaults:
            for index in step:
                same_type = self._class.options[index].gpu_type == gpu_type
                if same_type and not self._tried.failed[index]:
                    return index
        return -1

    def observe(self, option: int, rate: float) -> None:
        """Take in a rate, or a failure."""
        self._tried.note(option, rate)
        gpu_type = self._class.options[option].gpu_type
        if rate > 0 and gpu_type in self._open:
            self._open.remove(gpu_type)

    def rates(self) -> Floats:
        """What can be said from the runs so far."""
        options, observed = self._class.options, self._tried.observed
        rates = np.zeros(len(options))
        if not observed:
            return _last_resort(self._class, self._tried)
        most = 2 * max(options[index].gpus for index in observed)
        exponent = self._exponent()
        for index, one in enumerate(options):
            if index in observed:
                rates[index] = observed[index]
            elif not self._tried.failed[index] and one.gpus <= most:
                rates[index] = self._extrapolated(one, self._class.efficiency[index], exponent)
        return rates

    def _base(self, gpu_type: str) -> int:
        seen = [
            index
            for index in self._tried.observed
            if self._class.options[index].gpu_type == gpu_type
        ]
        return min(seen, key=lambda index: (self._class.options[index].gpus, index), default=-1)

    def _extrapolated(self, one: RunOption, efficiency: float, exponent: float) -> float:
        base = self._base(one.gpu_type)
        if base < 0:
            return 0.0
        known = self._class.options[base]
        if one.gpus < known.gpus:
            return 0.0
        source = base
        if one.batch_per_gpu != known.batch_per_gpu:
            if not self._class.batches_are_profiled:
                return 0.0
            source = self._sibling(known, one.batch_per_gpu)
            if source < 0:
                return 0.0
        # Speed without the worth of samples is what profiling tells.
        rate = self._tried.observed.get(source, float(self._class.true_rate[source]))
        speed = rate / self._class.efficiency[source]
        return float(speed * (one.gpus / known.gpus) ** exponent * efficiency)

    def _sibling(self, known: RunOption, batch_per_gpu: float) -> int:
        return self._index.get(replace(known, batch_per_gpu=batch_per_gpu), -1)

    def _exponent(self) -> float:
        slopes = []
        for index in sorted(self._tried.observed):
            one = self._class.options[index]
            base = self._base(one.gpu_type)
            known = self._class.options[base]
            if one.gpus > known.gpus:
                gained = (self._tried.observed[index] / self._class.efficiency[index]) / (
                    self._tried.observed[base] / self._class.efficiency[base]
                )
                if one.batch_per_gpu == known.batch_per_gpu:
                    slopes.append(np.log(gained) / np.log(one.gpus / known.gpus))
        return float(np.clip(np.mean(slopes), 0.0, 1.0)) if slopes else 1.0
