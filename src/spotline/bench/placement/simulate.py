"""Jobs placed over time: an event-driven simulation.

Events are arrivals, completions, changes of prices, and regions and links that fail and recover; at
each of them the method goes through the queue. A placement holds its GPUs and its bandwidth until
the job is done or moved; iterations pass at `iteration_s`; GPUs cost the price of each hour while
they are held, from the start of loading the checkpoint; activations cost egress per iteration, also
for iterations that are lost later.

After every event what placements hold is added up anew and compared with what there is.

Who is struck loses what was done since the last checkpoint and goes back to the queue: all
placements in a region that fails or whose spot capacity is taken back, and of those on a link that
has become too narrow the fewest without which the rest fits. Nobody else is touched. A job that
starts again, or is moved, waits `restart_s` and for its checkpoint, which is read from object
storage at 10 Gbit/s and pays egress from the region of the pipeline's first stage to that of the
new one, if they differ. A job that is moved writes a checkpoint before and loses nothing but the
iteration it is in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from spotline.bench.placement.course import JobCourse, MethodRun, PlacedStay
from spotline.bench.placement.setting import Setting, disrupted
from spotline.domain.placement.cost import egress_usd_per_iteration
from spotline.domain.placement.interface import (
    PlacementMethod,
    PlacementMoment,
    Release,
    Residual,
)
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.replacing import affected, checkpointed_iterations

CHECKPOINT_BYTES_PER_S = 1.25e9

_S_PER_HOUR = 3600.0
_BYTES_PER_GB = 1e9
# Jobs, not work, bound a run: each has a handful of events and each change of price one more.
_MOST_EVENTS = 1_000_000
# A placement may not promise to be faster than the formula, but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job at work: `job.iterations` is what was left when it started here.

    It holds its placement from `started_s`; iterations pass from `ready_s` on.
    """

    job: PipelineJob
    placement: Placement
    started_s: float
    ready_s: float

    @property
    def finish_s(self) -> float:
        """When it is done, if nothing happens."""
        return self.ready_s + self.job.iterations * self.placement.iteration_s

    def done_by(self, now_s: float) -> int:
        """Whole iterations done here."""
        done = math.floor((now_s - self.ready_s) / self.placement.iteration_s * (1 + 1e-12))
        return min(max(done, 0), self.job.iterations)


class Replacing(Protocol):
    """Moves running jobs where that pays."""

    def __call__(
        self, one: RunningJob, moment: PlacementMoment, setting: Setting
    ) -> Placement | None:
        """Where to move a running job, if anywhere; `moment` counts what it holds as taken."""
        ...


def simulate(
    setting: Setting, method: PlacementMethod, *, replacing: Replacing | None = None
) -> MethodRun:
    """Run all jobs of a setting to their end under one method.

    Raises
    ------
    ValueError
        A placement does not fit, promises to be faster than its links let it be, or placements
        hold more than a region or link has.
    RuntimeError
        Jobs are left that the method never places, with nothing to come that could change it.
    """
    return _Run(setting, method, replacing).to_end()


class _Run:
    def __init__(
        self, setting: Setting, method: PlacementMethod, replacing: Replacing | None
    ) -> None:
        self.setting, self.method, self.replacing = setting, method, replacing
        self.graph = setting.graph
        self.now_s = 0.0
        # Methods count reading the checkpoint as part of the restart.
        self.arrivals = sorted(
            (replace(job, restart_s=restart_s(job)) for job in setting.jobs),
            key=lambda job: (job.arrival_s, job.job_id),
        )
        self.queue: dict[str, PipelineJob] = {}
        self.running: dict[str, RunningJob] = {}
        self.courses = {job.job_id: JobCourse(job=job) for job in setting.jobs}
        if len(self.courses) != len(self.arrivals):
            raise ValueError(f"jobs of {setting.name} must have different ids")
        self.edges = sorted(
            {one.at_s for one in setting.disruptions}
            | {one.until_s for one in setting.disruptions if math.isfinite(one.until_s)}
        )
        self.struck: list[tuple[str, ...]] = []
        self.untouched: list[tuple[str, ...]] = []
        self.passes = self.events = 0

    def to_end(self) -> MethodRun:
        for _ in range(_MOST_EVENTS):
            if not (self.arrivals or self.queue or self.running):
                break
            self.advance()
        else:
            raise RuntimeError(f"{self.setting.name}: no end after {_MOST_EVENTS} events")
        return MethodRun(
            setting=self.setting.name,
            method_id=self.method.method_id,
            jobs=self.courses,
            struck=tuple(self.struck),
            untouched=tuple(self.untouched),
            passes=self.passes,
            events=self.events,
        )

    def advance(self) -> None:
        """Go to the next event and let the method act on it."""
        change_s = self.setting.prices.next_change_s(self.now_s)
        coming = [
            self.arrivals[0].arrival_s if self.arrivals else math.inf,
            min((one.finish_s for one in self.running.values()), default=math.inf),
            self.edges[0] if self.edges else math.inf,
            change_s if self.queue or self.running else math.inf,
        ]
        next_s = min(coming)
        if not math.isfinite(next_s):
            raise RuntimeError(
                f"{self.setting.name}: {self.method.method_id} never places "
                f"{', '.join(sorted(self.queue))}, and nothing changes any more"
            )
        self.now_s = next_s
        self.complete()
        while self.edges and self.edges[0] <= self.now_s:
            del self.edges[0]
            self.disrupt()
        while self.arrivals and self.arrivals[0].arrival_s <= self.now_s:
            job = self.arrivals.pop(0)
            self.queue[job.job_id] = job
        if self.queue:
            self.place()
        # GPUs that jobs wait for are not for those that have some.
        if self.replacing is not None and self.running and not self.queue:
            self.replace(self.replacing)
        self.check()

    # --- what happens -----------------------------------------------------------------------------

    def complete(self) -> None:
        for job_id in sorted(self.running):
            one = self.running[job_id]
            if one.finish_s <= self.now_s:
                self.leave(one, one.job.iterations)
                self.courses[job_id].finish_s = one.finish_s

    def disrupt(self) -> None:
        """Rebuild the graph as it is now, and strike whoever no longer has what it holds."""
        begun = [one for one in self.setting.disruptions if one.at_s == self.now_s]
        active = [one for one in self.setting.disruptions if one.at_s <= self.now_s < one.until_s]
        self.graph = disrupted(self.setting.graph, active)
        gone = {one.region_id for one in begun if one.region_id}
        before = dict(self.running)
        victims = [
            one
            for one in self.running.values()
            if any(share.region_id in gone for share in one.placement.path)
        ]
        for one in victims:
            self.strike(one)
        short = affected([one.placement for one in self.running.values()], self.graph)
        victims += [self.running[job_id] for job_id in short.job_ids]
        for job_id in short.job_ids:
            self.strike(self.running[job_id])
        if begun:
            names = tuple(sorted(one.job.job_id for one in victims))
            self.struck.append(names)
            self.untouched.append(
                tuple(sorted(key for key, one in before.items() if self.running.get(key) is one))
            )

    def strike(self, one: RunningJob) -> None:
        """Send a job back to its last checkpoint and to the queue."""
        job_id = one.job.job_id
        course = self.courses[job_id]
        done = one.done_by(self.now_s)
        kept = checkpointed_iterations(one.job, done)
        course.lost_iterations += done - kept
        course.strikes += 1
        self.leave(one, done, kept)
        # It computes only once it has restarted; what was begun is not refused.
        self.queue[job_id] = replace(
            one.job,
            iterations=one.job.iterations - kept,
            deadline_s=course.job.deadline_s - one.job.restart_s,
            promised=True,
        )

    def leave(self, one: RunningJob, done: int, kept: int | None = None) -> None:
        """Bill a placement and give it up."""
        course = self.courses[one.job.job_id]
        index = self.setting.graph.index
        paid = self.setting.prices.paid(one.started_s, self.now_s)
        course.gpu_usd += math.fsum(
            share.gpus * float(paid[index[share.region_id]]) for share in one.placement.path
        )
        path = [index[share.region_id] for share in one.placement.path]
        course.egress_usd += done * egress_usd_per_iteration(one.job, self.setting.graph, path)
        course.done_iterations += done if kept is None else kept
        course.placements[-1] = replace(course.placements[-1], end_s=self.now_s)
        del self.running[one.job.job_id]

    # --- what the method does ---------------------------------------------------------------------

    def residual(self) -> Residual:
        return Residual.of(
            self.graph, [self.running[job_id].placement for job_id in sorted(self.running)]
        )

    def moment(self) -> PlacementMoment:
        return PlacementMoment(
            now_s=self.now_s,
            usd_per_gpu_hour=self.setting.prices.at(self.now_s),
            residual=self.residual(),
            releases=tuple(
                Release(
                    at_s=self.running[job_id].finish_s, placement=self.running[job_id].placement
                )
                for job_id in sorted(self.running)
            ),
        )

    def place(self) -> None:
        moment = self.moment()
        room = moment.residual.copy()
        self.passes += 1
        queue = [self.queue[job_id] for job_id in sorted(self.queue)]
        answers = self.method.place(queue, moment)
        if sorted(answer.job_id for answer in answers) != sorted(self.queue):
            raise ValueError(f"{self.method.method_id} must answer every job of the queue once")
        for answer in answers:
            if isinstance(answer, NoPlacement):
                self.leave_waiting(answer)
                continue
            room.take(answer)
            self.start(self.queue.pop(answer.job_id), answer)

    def leave_waiting(self, answer: NoPlacement) -> None:
        """Who is not refused was promised its deadline."""
        job = self.queue[answer.job_id]
        if answer.earliest_finish_s is None:
            self.queue[answer.job_id] = replace(job, promised=True)
            return
        course = self.courses[answer.job_id]
        course.refused = True
        course.after_waiting = job.promised
        course.earliest_finish_s = answer.earliest_finish_s
        del self.queue[answer.job_id]

    def start(self, job: PipelineJob, placement: Placement) -> None:
        check_speed(job, placement)
        course = self.courses[job.job_id]
        ready_s = self.now_s
        if course.placements:
            ready_s += job.restart_s
            index = self.setting.graph.index
            here = index[course.placements[-1].placement.path[0].region_id]
            there = index[placement.path[0].region_id]
            course.egress_usd += job.checkpoint_gb * float(
                self.setting.graph.egress_usd_per_gb[here, there]
            )
        else:
            course.first_start_s = self.now_s
        course.placements.append(
            PlacedStay(start_s=self.now_s, end_s=math.inf, placement=placement)
        )
        self.running[job.job_id] = RunningJob(
            job=job, placement=placement, started_s=self.now_s, ready_s=ready_s
        )

    def replace(self, replacing: Replacing) -> None:
        """Look at every running job once; what it did is saved before it moves."""
        for job_id in sorted(self.running):
            one = self.running[job_id]
            done = one.done_by(self.now_s)
            if one.started_s == self.now_s or done >= one.job.iterations:
                continue
            placement = replacing(one, self.moment(), self.setting)
            if placement is None:
                continue
            self.leave(one, done)
            self.residual().take(placement)
            self.courses[job_id].moves += 1
            self.start(replace(one.job, iterations=one.job.iterations - done), placement)

    def check(self) -> None:
        """Add up what is held, from nothing, and compare it with what there is."""
        self.events += 1
        gpus: dict[str, int] = {}
        carried: dict[tuple[str, str], float] = {}
        for one in self.running.values():
            for share in one.placement.path:
                gpus[share.region_id] = gpus.get(share.region_id, 0) + share.gpus
            for link in one.placement.links:
                carried[link] = carried.get(link, 0.0) + one.placement.reserved_bytes_per_s
        index = self.graph.index
        for region_id, held in gpus.items():
            if held > self.graph.gpus[index[region_id]]:
                raise ValueError(
                    f"{self.method.method_id} holds {held} GPUs in {region_id}, which has "
                    f"{self.graph.gpus[index[region_id]]}, at {self.now_s:.0f} s"
                )
        for (here, there), bytes_per_s in carried.items():
            most = float(self.graph.bytes_per_s[index[here], index[there]])
            if bytes_per_s > most:
                raise ValueError(
                    f"{self.method.method_id} holds {bytes_per_s:g} bytes/s on {here} -> {there}, "
                    f"which carries {most:g}, at {self.now_s:.0f} s"
                )


def restart_s(job: PipelineJob) -> float:
    """Seconds until a job computes again: its restart, and its checkpoint to be read."""
    return job.restart_s + job.checkpoint_gb * _BYTES_PER_GB / CHECKPOINT_BYTES_PER_S


def check_speed(job: PipelineJob, placement: Placement) -> None:
    """Refuse a placement that is said to run faster than its GPUs and reservation allow."""
    reserved = placement.reserved_bytes_per_s if len(placement.path) > 1 else math.inf
    least_s = job.iteration_s(placement.gpus, reserved)
    if placement.iteration_s < least_s * (1 - _ROUNDING):
        raise ValueError(
            f"iteration_s of {job.job_id} must be >= {least_s:g} on {placement.gpus} GPUs with "
            f"{reserved:g} bytes/s, was {placement.iteration_s:g}"
        )
    if not job.min_gpus <= placement.gpus <= job.max_gpus:
        raise ValueError(
            f"gpus of {job.job_id} must be in {job.min_gpus}..{job.max_gpus}, was {placement.gpus}"
        )
