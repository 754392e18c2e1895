"""Which job of a scheduler's history a machine's run belongs to, and how jobs share a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spotline.domain.assessment.facts import InstanceRun, Rebuilding
from spotline.domain.assessment.findings import FindingLedger
from spotline.domain.assessment.grouping import (
    JOB_TAGS,
    NODE_TAGS,
    OWNER_TAGS,
    JobRuns,
    in_order,
)
from spotline.domain.assessment.lines import HistoryJob
from spotline.domain.assessment.runs import mark_of

# A machine is paid for before its job begins, and after it ended.
BESIDE_S = 900
_DAY_S = 24 * 3600
_MOST_DAYS = 400
_FOREVER_S = 1 << 40


@dataclass(slots=True)
class Matched:
    """Jobs of the history with their runs, and the runs that are no job's of it."""

    groups: list[JobRuns] = field(default_factory=list)
    remaining: list[InstanceRun] = field(default_factory=list)


def matched(
    runs: Sequence[InstanceRun], history: Sequence[HistoryJob], found: FindingLedger
) -> Matched:
    """Give each run to the jobs that the history says were on it.

    By node where the history names nodes, else by tags that have a job's name, else by time, owner
    and GPUs where only one job fits.
    """
    index = _Index(history)
    pieces: dict[int, list[InstanceRun]] = {}
    result = Matched()
    for run in in_order(runs):
        jobs = index.jobs_on(run)
        if not jobs:
            result.remaining.append(run)
            continue
        if len(jobs) == 1:
            pieces.setdefault(jobs[0], []).append(run)
            continue
        if _at_once([history[job] for job in jobs], run):
            found.add("shared_node", 1, run.paid_micro)
        for job, piece in zip(jobs, _split(run, [history[job] for job in jobs]), strict=True):
            pieces.setdefault(job, []).append(piece)
    for number, remembered in enumerate(history):
        if number not in pieces:
            found.add("unmatched_history", 1, 0)
            continue
        result.groups.append(
            JobRuns(
                job_id=remembered.job_id,
                owner=remembered.owner,
                rebuilt_by=Rebuilding.HISTORY,
                runs=pieces[number],
                instances=remembered.instances,
                restarts=remembered.restarts,
                names={mark_of(run.tags, JOB_TAGS) for run in pieces[number]} - {""},
            )
        )
    return result


class _Index:
    """The history's jobs, by node and by name."""

    def __init__(self, history: Sequence[HistoryJob]) -> None:
        self._history = history
        self._by_node: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        for number, job in enumerate(history):
            for node in job.nodes:
                self._by_node.setdefault(node, []).append(number)
            for name in dict.fromkeys((job.job_id, *job.names)):
                self._by_name.setdefault(name, []).append(number)
        self._by_day: dict[int, list[int]] = {}
        self._always: list[int] = []
        for number, job in enumerate(history):
            if not job.nodes:
                self._note_days(number, job)

    def _note_days(self, number: int, job: HistoryJob) -> None:
        """Of ten thousand jobs few are there on the day of a run."""
        end_s = _FOREVER_S if job.end_s is None else job.end_s
        first, last = (job.begin_s - BESIDE_S) // _DAY_S, (end_s + BESIDE_S) // _DAY_S
        if last - first > _MOST_DAYS:
            self._always.append(number)
            return
        for day in range(first, last + 1):
            self._by_day.setdefault(day, []).append(number)

    def jobs_on(self, run: InstanceRun) -> list[int]:
        """The jobs of a run by their numbers: several where they shared its machine."""
        hosts = (run.instance_id, mark_of(run.tags, ("name",)), mark_of(run.tags, ("hostname",)))
        for host in hosts:
            there = [job for job in self._by_node.get(host, ()) if self._overlap_s(job, run) > 0]
            if there:
                return there
        name = mark_of(run.tags, JOB_TAGS)
        if name:
            # A cluster is named after its job, with a mark of the cloud's behind.
            shorter = name.rpartition("-")[0]
            known = self._by_name.get(name) or self._by_name.get(shorter) or []
            return self._latest(known, run)
        return self._by_time(run)

    def _latest(self, jobs: Sequence[int], run: InstanceRun) -> list[int]:
        """Of several jobs of one name the one that was there longest, of equals the first."""
        there = [job for job in jobs if self._overlap_s(job, run, beside_s=BESIDE_S) > 0]
        return [max(there, key=lambda job: (self._overlap_s(job, run), -job))] if there else []

    def _by_time(self, run: InstanceRun) -> list[int]:
        owner = mark_of(run.tags, OWNER_TAGS)
        there = (*self._by_day.get(run.begin_s // _DAY_S, ()), *self._always)
        fitting = [job for job in there if self._fits(job, run, owner)]
        return fitting if len(fitting) == 1 else []

    def _fits(self, number: int, run: InstanceRun, owner: str) -> bool:
        job = self._history[number]
        end_s = _FOREVER_S if job.end_s is None else job.end_s
        if run.begin_s < job.begin_s - BESIDE_S or run.end_s > end_s + BESIDE_S:
            return False
        if owner and job.owner and owner != job.owner:
            return False
        return not (job.gpus and run.machine.gpus) or job.gpus == run.machine.gpus

    def _overlap_s(self, number: int, run: InstanceRun, beside_s: int = 0) -> int:
        return overlap_s(self._history[number], run, beside_s)


def overlap_s(job: HistoryJob, run: InstanceRun, beside_s: int = 0) -> int:
    """Seconds for which a job was there during a run; below 0 where it was not."""
    end_s = _FOREVER_S if job.end_s is None else job.end_s
    return min(end_s + beside_s, run.end_s) - max(job.begin_s - beside_s, run.begin_s)


def _at_once(jobs: Sequence[HistoryJob], run: InstanceRun) -> bool:
    """Whether two of the jobs were there at the same time."""
    until_s = run.begin_s
    for job in sorted(jobs, key=lambda job: job.begin_s):
        if job.begin_s < until_s:
            return True
        until_s = max(until_s, run.end_s if job.end_s is None else job.end_s)
    return False


def _split(run: InstanceRun, jobs: Sequence[HistoryJob]) -> list[InstanceRun]:
    """A run's pieces: its whole cost by GPUs and seconds, idle time by the same shares."""
    weights = [max(job.gpus, 1) * overlap_s(job, run) for job in jobs]
    total = sum(weights)
    pieces: list[InstanceRun] = []
    given = 0
    for job, weight in zip(jobs, weights, strict=True):
        until = given + weight
        pieces.append(_piece(run, job, _share(run.paid_micro, given, until, total)))
        given = until
    return pieces


def _share(money: int, given: int, until: int, total: int) -> int:
    """What falls between two places of a scale; the parts add up to the whole."""
    return money * until // total - money * given // total


def _piece(run: InstanceRun, job: HistoryJob, paid_micro: int) -> InstanceRun:
    gpus = run.machine.gpus
    part = bool(job.gpus and gpus and job.gpus < gpus)
    return replace(
        run,
        begin_s=max(job.begin_s, run.begin_s),
        end_s=run.end_s if job.end_s is None else min(job.end_s, run.end_s),
        paid_micro=paid_micro,
        machine=replace(run.machine, gpus=job.gpus) if part else run.machine,
        list_price_micro=run.list_price_micro * job.gpus // gpus if part else run.list_price_micro,
    )


def note_nodes(runs: Sequence[InstanceRun], found: FindingLedger) -> None:
    """Find machines that a cluster may have handed to several jobs, where nobody tells which."""
    for run in runs:
        if mark_of(run.tags, NODE_TAGS):
            found.add("shared_node", 1, run.paid_micro)
