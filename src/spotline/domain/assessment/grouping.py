"""Runs put together as jobs: by a history, by a tag, or by beginning together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.domain.assessment.facts import (
    BoughtAs,
    HiredMachine,
    InstanceRun,
    Rebuilding,
    RebuiltJob,
)
from spotline.domain.assessment.runs import mark_of
from spotline.domain.units import PPM, S_PER_HOUR

JOB_TAGS = (
    "x-jobid",
    "spotline-job",
    "skypilot-cluster-name",
    "ray-cluster-name",
    "ray-io-cluster",
    "kueue-x-k8s-io-workload-name",
    "batch-kubernetes-io-job-name",
    "job-name",
    "job-id",
    "jobid",
    "job",
    "run-name",
    "run-id",
    "experiment",
)
"""Keys of tags that name a job, in the form of `plain_key`; the first that is there counts."""

OWNER_TAGS = ("x-tenant", "owner", "user", "team", "skypilot-user", "tenant", "cost-center")
"""Keys of tags that name to whom a job belongs."""

NODE_TAGS = (
    "karpenter-sh-nodepool",
    "eks-cluster-name",
    "eks-nodegroup-name",
    "goog-k8s-cluster-name",
    "goog-k8s-node-pool-name",
    "slurm-cluster",
    "parallelcluster-cluster-name",
)
"""Keys of tags of machines that a cluster hands to one job after another, or to several at once."""

FAILED_S = 600
"""A run that ended sooner, and which another of its job followed, is a launch that failed."""

ANOTHER_JOB_S = 24 * 3600
"""After so long without a machine, what comes under the same name is another job."""

GANG_S = 300
"""Untagged machines that begin within so long of each other are one gang."""


@dataclass(slots=True, kw_only=True)
class JobRuns:
    """Runs of one job; `instances` and `restarts` are 0 where no history tells them."""

    job_id: str
    owner: str
    rebuilt_by: Rebuilding
    runs: list[InstanceRun]
    instances: int = 0
    restarts: int = 0
    beside_micro: int = 0
    names: set[str] = field(default_factory=set)


def in_order(runs: Iterable[InstanceRun]) -> list[InstanceRun]:
    """By beginning, then end and id: never by how a file was sorted."""
    return sorted(runs, key=lambda run: (run.begin_s, run.end_s, run.instance_id))


def by_tags(runs: Sequence[InstanceRun]) -> tuple[list[JobRuns], list[InstanceRun]]:
    """Jobs of runs that a tag names, and the runs without one."""
    named: dict[str, list[InstanceRun]] = {}
    untagged: list[InstanceRun] = []
    for run in in_order(runs):
        name = mark_of(run.tags, JOB_TAGS)
        if name:
            named.setdefault(name, []).append(run)
        else:
            untagged.append(run)
    groups = [group for name in sorted(named) for group in _spells(name, named[name])]
    return groups, untagged


def _spells(name: str, runs: Sequence[InstanceRun]) -> Iterator[JobRuns]:
    """A name's jobs: a pause of a day makes another one, but not of what says it is a job's id."""
    number = 1
    held: list[InstanceRun] = []
    until_s = 0
    exact = any(mark_of(run.tags, JOB_TAGS[:2]) for run in runs)
    for run in runs:
        if held and not exact and run.begin_s - until_s > ANOTHER_JOB_S:
            yield _tagged(name, number, held)
            number, held = number + 1, []
        held.append(run)
        until_s = max(until_s, run.end_s)
    yield _tagged(name, number, held)


def _tagged(name: str, number: int, runs: list[InstanceRun]) -> JobRuns:
    return JobRuns(
        job_id=name if number == 1 else f"{name}#{number}",
        owner=owner_of(runs),
        rebuilt_by=Rebuilding.TAG,
        runs=runs,
        names={name},
    )


def owner_of(runs: Iterable[InstanceRun]) -> str:
    """The first owner that a tag names."""
    return next((name for run in runs if (name := mark_of(run.tags, OWNER_TAGS))), "")


def by_overlap(runs: Sequence[InstanceRun]) -> tuple[list[JobRuns], list[InstanceRun]]:
    """Gangs of untagged runs that began together on the same machines, and those that began alone."""
    alike: dict[tuple[str, str, str, str], list[InstanceRun]] = {}
    for run in in_order(runs):
        on = run.machine
        key = on.provider, on.region, on.zone, on.instance_type
        alike.setdefault(key, []).append(run)
    groups: list[JobRuns] = []
    alone: list[InstanceRun] = []
    for key in sorted(alike):
        for together in _begun_together(alike[key]):
            if len(together) < 2:
                alone += together
                continue
            groups.append(
                JobRuns(
                    job_id=f"gang-{together[0].instance_id}",
                    owner=owner_of(together),
                    rebuilt_by=Rebuilding.OVERLAP,
                    runs=together,
                )
            )
    return groups, in_order(alone)


def _begun_together(runs: Sequence[InstanceRun]) -> Iterator[list[InstanceRun]]:
    held: list[InstanceRun] = []
    for run in runs:
        if held and run.begin_s - held[0].begin_s > GANG_S:
            yield held
            held = []
        held.append(run)
    if held:
        yield held


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpans:
    """How many instances a job held over time: spans of a constant count, in order."""

    spans: Sequence[tuple[int, int, int]]  # begin, end, count

    @classmethod
    def of(cls, runs: Iterable[InstanceRun]) -> GangSpans:
        """An instance that ends when another begins leaves a span of no length between."""
        changes = sorted(
            change
            for run in runs
            if run.end_s > run.begin_s
            for change in ((run.begin_s, 1), (run.end_s, -1))
        )
        spans: list[tuple[int, int, int]] = []
        count = 0
        # At the same second what ends comes first, being the smaller change.
        for index, (at_s, by) in enumerate(changes):
            count += by
            if index + 1 < len(changes):
                following = changes[index + 1]
                if following[0] > at_s or (by < 0 < following[1]):
                    spans.append((at_s, following[0], count))
        return cls(spans=spans)

    def gang(self) -> int:
        """The count that was held longest; of two the larger. 0 of none."""
        longest: dict[int, int] = {}
        for begin_s, end_s, count in self.spans:
            if count:
                longest[count] = longest.get(count, 0) + end_s - begin_s
        return max(longest, key=lambda count: (longest[count], count), default=0)

    def seconds_with(self, count: int) -> int:
        """Seconds in which at least so many were held."""
        return sum(end_s - begin_s for begin_s, end_s, held in self.spans if held >= count)

    def times_with(self, count: int) -> int:
        """How often the count rose to at least so many."""
        times, before = 0, False
        for _, _, held in self.spans:
            if held >= count and not before:
                times += 1
            before = held >= count
        return times


def failed_launches(runs: Sequence[InstanceRun]) -> list[InstanceRun]:
    """Short runs which another run of the job followed."""
    last_begin_s = max((run.begin_s for run in runs), default=0)
    return [run for run in runs if run.seconds < FAILED_S and run.end_s <= last_begin_s]


def job_of(group: JobRuns, prices: Mapping[tuple[str, str, str], int]) -> RebuiltJob:
    """The job that a group of runs tells of.

    Parameters
    ----------
    group
        At least one run.
    prices
        On-demand list price per instance-hour by provider, region and type, for runs whose own
        lines name none.
    """
    runs = in_order(group.runs)
    failed = failed_launches(runs)
    no_work = set(failed)
    worked = [run for run in runs if run not in no_work] or runs
    held = GangSpans.of(worked)
    instances = group.instances or held.gang() or len(worked)
    seconds = sum(run.seconds for run in worked)
    # Jobs of ours grow and shrink, and go on meanwhile; of others a gang is taken to wait for all.
    elastic = any(mark_of(run.tags, JOB_TAGS[:1]) for run in worked)
    spot = [run for run in worked if run.purchase is BoughtAs.SPOT]
    committed = [run for run in worked if run.purchase is BoughtAs.COMMITTED]
    listed = sum(list_price(run, prices) * run.seconds for run in worked)
    return RebuiltJob(
        job_id=group.job_id,
        owner=group.owner,
        machine=_machine_of(worked),
        instances=instances,
        begin_s=runs[0].begin_s,
        end_s=max(run.end_s for run in runs),
        work_s=seconds // instances if elastic else held.seconds_with(instances),
        restarts=max(group.restarts, held.times_with(1 if elastic else instances) - 1),
        paid_micro=sum(run.paid_micro for run in runs) + group.beside_micro,
        list_price_micro=round(listed / seconds) if seconds else 0,
        egress_micro=group.beside_micro,
        failed_micro=sum(run.paid_micro for run in failed),
        rebuilt_by=group.rebuilt_by,
        spot_share_ppm=sum(run.seconds for run in spot) * PPM // seconds if seconds else 0,
        spot_micro=sum(run.paid_micro for run in spot),
        spot_listed_micro=sum(list_price(run, prices) * run.seconds for run in spot) // S_PER_HOUR,
        committed_ppm=sum(run.seconds for run in committed) * PPM // seconds if seconds else 0,
        committed_micro=sum(run.paid_micro for run in committed),
    )


def list_price(run: InstanceRun, prices: Mapping[tuple[str, str, str], int]) -> int:
    """A run's on-demand list price per instance-hour; 0 where nobody names one."""
    on = run.machine
    return run.list_price_micro or prices.get((on.provider, on.region, on.instance_type), 0)


def _machine_of(runs: Sequence[InstanceRun]) -> HiredMachine:
    """Where it ran longest; of equals the first in order of names."""
    seconds: dict[HiredMachine, int] = {}
    for run in runs:
        seconds[run.machine] = seconds.get(run.machine, 0) + run.seconds

    def order(machine: HiredMachine) -> tuple[int, str, str, str]:
        return -seconds[machine], machine.instance_type, machine.region, machine.zone

    return min(seconds, key=order)
