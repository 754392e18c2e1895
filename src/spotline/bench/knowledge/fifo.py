"""First in, first out: jobs start in the order of arrival, hold what they got, and end.

Without knowledge a job gets the usual defaults (one GPU and the training library's batch size) and,
each time it runs out of memory, the next step of `JobClass.defaults`: half the batch, then more
GPUs; it goes to whichever type has most GPUs free. With knowledge it gets the fastest option, as
believed, that fits into the free GPUs and into its share of them: free GPUs divided by the jobs
that wait plus one to come. The head of the queue is never overtaken.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from spotline.bench.knowledge.cluster import (
    FAILED_START_S,
    START_S,
    Beliefs,
    ClusterJob,
    ClusterRun,
    FreeNodes,
    HeldOption,
    JobClass,
    Placement,
    PredictedBeliefs,
    TrueBeliefs,
    Workload,
    certain_failures,
)


def run_fifo(workload: Workload, knowledge: str) -> ClusterRun:
    """Run a workload to its last job, from event to event.

    Parameters
    ----------
    knowledge
        `none`, `predicted` or `true`.

    Raises
    ------
    ValueError
        There is no such level of knowledge, or a job can never start.
    """
    return _Fifo(workload, knowledge).run()


@dataclass(slots=True)
class _Defaults:
    """Steps through the defaults: the next one after every failure."""

    job_class: JobClass
    step: int = 0
    failed: set[int] = field(default_factory=set)

    def choices(self, nodes: FreeNodes) -> list[int]:
        """Options of the present step, the type with most free GPUs first."""
        steps = self.job_class.defaults
        for ahead in range(len(steps)):
            step = steps[(self.step + ahead) % len(steps)]
            found = [index for index in step if index not in self.failed]
            if found:
                options = self.job_class.options
                return sorted(found, key=lambda i: (-nodes.free_gpus(options[i].gpu_type), i))
        return []

    def fail(self, option: int) -> None:
        self.failed |= certain_failures(self.job_class.options, option)
        self.step += 1


@dataclass(slots=True)
class _Known:
    """The fastest option as believed, within a share of the free GPUs."""

    job_class: JobClass
    beliefs: Beliefs

    def choices(self, nodes: FreeNodes, waiting: int) -> list[int]:
        """Options within the share, fastest first."""
        rates = self.beliefs.rates()
        usable = np.flatnonzero(rates > 0)
        options = self.job_class.options
        if not len(usable):
            return []
        least = min(options[index].gpus for index in usable)
        share = max(nodes.free_gpus() // (waiting + 1), least)
        ranked = sorted(usable, key=lambda index: (-rates[index], index))
        return [int(index) for index in ranked if options[index].gpus <= share]

    def fail(self, option: int) -> None:
        self.beliefs.observe(option, 0.0)


@dataclass(frozen=True, slots=True)
class _Holding:
    job: int
    option: int
    placement: Placement
    start_s: float
    failed: bool


class _Fifo:
    def __init__(self, workload: Workload, knowledge: str) -> None:
        self._workload = workload
        self._nodes = FreeNodes(workload.groups)
        self._choosers: list[_Defaults | _Known] = [
            _chooser(workload.classes[job.job_class], knowledge) for job in workload.jobs
        ]
        self._queue: list[int] = []
        self._segments: list[HeldOption] = []
        self._completed_s: dict[str, float] = {}
        self._events: list[tuple[float, int, int, _Holding | None]] = []
        self._starts = 0
        for index, job in enumerate(workload.jobs):
            heapq.heappush(self._events, (job.arrival_s, index, index, None))

    def run(self) -> ClusterRun:
        order = len(self._workload.jobs)
        while self._events:
            now_s = self._events[0][0]
            while self._events and self._events[0][0] == now_s:
                _, _, job, holding = heapq.heappop(self._events)
                if holding is None:
                    heapq.heappush(self._queue, job)
                else:
                    self._end(holding, now_s)
            while self._queue:
                held = self._start(self._queue[0], now_s)
                if held is None:
                    break
                heapq.heappop(self._queue)
                heapq.heappush(self._events, (self._ends_s(held), order, held.job, held))
                order += 1
        if self._queue:
            stuck, _ = self._job(self._queue[0])
            raise ValueError(f"job {stuck.name} must fit the cluster, no option of it did")
        return ClusterRun(
            segments=tuple(self._segments), completed_s=self._completed_s, starts=self._starts
        )

    def _job(self, index: int) -> tuple[ClusterJob, JobClass]:
        job = self._workload.jobs[index]
        return job, self._workload.classes[job.job_class]

    def _start(self, index: int, now_s: float) -> _Holding | None:
        _, job_class = self._job(index)
        chooser = self._choosers[index]
        if isinstance(chooser, _Defaults):
            choices = chooser.choices(self._nodes)
        else:
            choices = chooser.choices(self._nodes, len(self._queue))
        for option in choices:
            placement = self._nodes.place(job_class.options[option])
            if placement is not None:
                self._starts += 1
                failed = bool(job_class.true_rate[option] <= 0)
                return _Holding(index, option, placement, now_s, failed)
        return None

    def _ends_s(self, held: _Holding) -> float:
        job, job_class = self._job(held.job)
        if held.failed:
            return held.start_s + FAILED_START_S
        return held.start_s + START_S + job.work / float(job_class.true_rate[held.option])

    def _end(self, held: _Holding, now_s: float) -> None:
        job, job_class = self._job(held.job)
        option = job_class.options[held.option]
        self._nodes.release(option.gpu_type, held.placement)
        self._segments.append(
            HeldOption(
                job=job.name,
                option=option,
                start_s=held.start_s,
                end_s=now_s,
                progress=0.0 if held.failed else job.work,
                failed=held.failed,
            )
        )
        if held.failed:
            self._choosers[held.job].fail(held.option)
            heapq.heappush(self._queue, held.job)
        else:
            self._completed_s[job.name] = now_s


def _chooser(job_class: JobClass, knowledge: str) -> _Defaults | _Known:
    if knowledge == "none":
        return _Defaults(job_class)
    if knowledge == "predicted":
        return _Known(job_class, PredictedBeliefs(job_class))
    if knowledge == "true":
        return _Known(job_class, TrueBeliefs(job_class))
    raise ValueError(f"knowledge must be none, predicted or true, was {knowledge!r}")
