"""Whether log, ledger and cloud say the same, and what nothing is bought for where they do not.

The ledger is the authority on instances and spend, log and ledger together on accepted jobs, the
cloud on what exists. Each difference names the smallest scope that is undecided by it. One without
a command that continues (`continue_with`) mends itself in the step that found it: it is told, and
nothing stops because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from spotline.domain.events.agreement import Disagreement, DisagreementKind
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.units import usd_from_micro_usd

# So many of the jobs that a difference concerns are named.
MOST_AFFECTED = 100
FREEZE_PREFIX = "undecided"

REPAIR = "spotline store repair"
ORPHANS = "spotline orphans list"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """A job that the log knows and that has not ended; `deadline_ns` is its last moment of value.

    It runs on so many instances as `allowed_counts` says; empty: nobody has said.
    """

    tenant: str
    deadline_ns: int
    allowed_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSays:
    """What the log says. Mappings belong to the fold that made them: to be read, never changed.

    Parameters
    ----------
    last_slot, reported_slot
        The last slot that opened, and the last one whose holdings were reported; -1 for none.
    incarnation
        0 where the log never said; above 1 somebody has said that an earlier one was lost.
    jobs, closed, others
        Open jobs, the closed ones with the slot that each closed in, and what holds instances and
        is no job, such as a pipeline.
    accrued
        Micro-USD by job, of the slots up to `complete_slot`: all of theirs are recorded.
    held
        The job of every instance that the last report names.
    """

    last_seq: int = 0
    last_slot: int = -1
    reported_slot: int = -1
    incarnation: int = 0
    jobs: Mapping[str, OpenJob] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    others: AbstractSet[str] = frozenset()
    accrued: Mapping[str, int] = field(default_factory=dict)
    complete_slot: int = -1
    held: Mapping[str, str] = field(default_factory=dict)

    def knows(self, job_id: str) -> bool:
        """Whether it ever told of a job."""
        return job_id in self.jobs or job_id in self.closed or job_id in self.others

    def may_hold(self, job_id: str) -> bool:
        """Whether a job has a right to instances: one that closed just now is being released."""
        if job_id in self.jobs or job_id in self.others:
            return True
        closed_slot = self.closed.get(job_id)
        return closed_slot is not None and closed_slot >= self.last_slot - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSays:
    """What the ledger says.

    Parameters
    ----------
    latest_slot
        The latest slot in which anything was commanded or answered, -1 for none.
    charged
        Micro-USD by job, of the slots up to the log's `complete_slot`.
    spent
        Micro-USD by job, of all slots.
    admitted
        Jobs that it holds.
    ended
        Jobs that it holds as ended; all of them where the log lost anything.
    held
        The job of every instance that it holds.
    """

    latest_slot: int = -1
    charged: Mapping[str, int] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)
    admitted: AbstractSet[str] = frozenset()
    ended: AbstractSet[str] = frozenset()
    held: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """An instance that carries our tag, runs, and was not ordered by the ledger; tags may be empty."""

    instance_id: str
    job_id: str
    tenant: str
    offering_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudShows:
    """What the cloud shows of this installation: all that has not ended, and strangers among it.

    `withheld` are those of them that carry the tag which says hands off.
    """

    shown: AbstractSet[str] = frozenset()
    withheld: AbstractSet[str] = frozenset()
    strangers: tuple[Stranger, ...] = ()


def overdue(log: LogSays, ledger: LedgerSays, cloud: CloudShows) -> tuple[str, ...]:
    """Instances to be released: the ledger holds them for jobs of which it knows that they ended.

    The log would have released them, had it not lost that. What is withheld is left to a person.
    """
    return tuple(
        sorted(
            instance_id
            for instance_id, job_id in ledger.held.items()
            if job_id in ledger.ended
            and not log.may_hold(job_id)
            and instance_id not in cloud.withheld
        )
    )


def compare(log: LogSays, ledger: LedgerSays, cloud: CloudShows) -> tuple[Disagreement, ...]:
    """Name all differences, each once, in an order that depends on them alone."""
    found = [
        *_of_slots(log, ledger),
        *_of_jobs(log, ledger),
        *_of_spend(log, ledger),
        *_of_instances(log, ledger, cloud),
    ]
    found.sort(key=lambda one: (one.kind.value, one.scope.value, one.key, one.detail))
    return tuple(_with_affected(one, log) for one in found)


def lags(log: LogSays, ledger: LedgerSays) -> bool:
    """Whether the ledger ends before what the log says was done."""
    return log.reported_slot > ledger.latest_slot


def freezes_of(
    disagreements: Iterable[Disagreement], *, slot: int, ts_event_ns: int
) -> Mapping[str, Freeze]:
    """What is not bought because of them, by the freeze's id: the same trouble has the same one."""
    freezes: dict[str, Freeze] = {}
    for one in disagreements:
        if not one.continue_with:
            continue
        freeze_id = "/".join(
            filter(None, (FREEZE_PREFIX, one.scope.value, one.kind.value, one.key))
        )
        freezes.setdefault(
            freeze_id,
            Freeze(
                freeze_id=freeze_id,
                scope=one.scope,
                key=one.key,
                reason=FreezeReason.UNDECIDED,
                detail=one.detail,
                continue_with=one.continue_with,
                slot=slot,
                ts_event_ns=ts_event_ns,
            ),
        )
    return freezes


def _of_slots(log: LogSays, ledger: LedgerSays) -> Iterator[Disagreement]:
    if lags(log, ledger):
        lost = ledger.latest_slot < 0
        yield Disagreement(
            kind=DisagreementKind.LEDGER_LOST if lost else DisagreementKind.LEDGER_OLDER,
            scope=FreezeScope.SYSTEM,
            key="",
            detail=f"the log reports slot {log.reported_slot}, the ledger "
            + ("is empty" if lost else f"ends in slot {ledger.latest_slot}"),
        )
    # A later incarnation begins behind what the ledger knows, and says so.
    elif ledger.latest_slot > log.last_slot and log.incarnation <= 1:
        wiped = log.reported_slot < 0
        yield Disagreement(
            kind=DisagreementKind.LOG_WIPED if wiped else DisagreementKind.LOG_CUT,
            scope=FreezeScope.SYSTEM,
            key="",
            detail=f"the ledger has answered for slot {ledger.latest_slot}, the log "
            + ("knows of no report" if wiped else f"ends in slot {log.last_slot}"),
            continue_with=REPAIR,
        )


def _of_jobs(log: LogSays, ledger: LedgerSays) -> Iterator[Disagreement]:
    for job_id in ledger.admitted:
        if not log.knows(job_id) and job_id not in ledger.ended:
            yield Disagreement(
                kind=DisagreementKind.JOB_NOT_IN_LOG,
                scope=FreezeScope.JOB,
                key=job_id,
                detail="the ledger admitted it, the log does not know it",
                continue_with=REPAIR,
            )
    for job_id in log.jobs.keys() - ledger.admitted:
        yield Disagreement(
            kind=DisagreementKind.NOT_IN_LEDGER,
            scope=FreezeScope.JOB,
            key=job_id,
            detail="the log tells of this job, the ledger does not hold it",
        )


def _of_spend(log: LogSays, ledger: LedgerSays) -> Iterator[Disagreement]:
    for job_id in log.accrued.keys() | ledger.spent.keys():
        accrued, charged = log.accrued.get(job_id, 0), ledger.charged.get(job_id, 0)
        if not log.knows(job_id) and job_id not in log.accrued:
            # Whatever the slot: a charge comes after the job.
            charged = ledger.spent[job_id]
        said = (
            f"up to slot {log.complete_slot} the log accrued {_usd(accrued)}, the ledger charged "
        )
        if accrued > charged:
            yield Disagreement(
                kind=DisagreementKind.NOT_IN_LEDGER,
                scope=FreezeScope.JOB,
                key=job_id,
                detail=f"{said}{_usd(charged)}",
            )
        elif charged > accrued and not _ended_in_a_lost_part(job_id, log, ledger):
            yield Disagreement(
                kind=DisagreementKind.CHARGE_WITHOUT_DECISION,
                scope=FreezeScope.JOB,
                key=job_id,
                # The slot goes on; what an operator has looked at and accepted is the difference.
                detail=f"the ledger charged {_usd(charged - accrued)} that the log does not know",
                continue_with=REPAIR,
            )


def _ended_in_a_lost_part(job_id: str, log: LogSays, ledger: LedgerSays) -> bool:
    """Whether a job's end is known to the ledger: its charges are not said again in a later log."""
    return job_id in ledger.ended and (log.incarnation > 1 or not log.knows(job_id))


def _of_instances(log: LogSays, ledger: LedgerSays, cloud: CloudShows) -> Iterator[Disagreement]:
    released = frozenset(overdue(log, ledger, cloud))
    jobless: dict[tuple[str, bool], list[str]] = {}
    for instance_id, job_id in ledger.held.items():
        if not log.may_hold(job_id):
            jobless.setdefault((job_id, instance_id in released), []).append(instance_id)
    for (job_id, is_released), instance_ids in jobless.items():
        state = "ended" if job_id in log.closed else "is unknown to the log"
        if is_released:
            state = "ended, by the ledger"
        yield Disagreement(
            kind=DisagreementKind.INSTANCE_WITHOUT_JOB,
            scope=FreezeScope.JOB,
            key=job_id,
            detail=f"held for a job that {state}: {_names(instance_ids)}",
            continue_with="" if is_released else ORPHANS,
        )
    strange: dict[tuple[FreezeScope, str], list[str]] = {}
    for stranger in cloud.strangers:
        scope = FreezeScope.JOB if stranger.job_id else FreezeScope.OFFERING
        key = (scope, stranger.job_id or stranger.offering_id)
        strange.setdefault(key, []).append(stranger.instance_id)
    for (scope, name), instance_ids in strange.items():
        yield Disagreement(
            kind=DisagreementKind.INSTANCE_WITHOUT_JOB,
            scope=scope,
            key=name,
            detail=f"running, and not ordered by the ledger: {_names(instance_ids)}",
            continue_with=ORPHANS,
        )
    if not lags(log, ledger):
        return
    unseen: dict[str, list[str]] = {}
    for instance_id, job_id in log.held.items():
        known = instance_id in ledger.held or instance_id in cloud.shown
        if not known and job_id in log.jobs:
            unseen.setdefault(job_id, []).append(instance_id)
    for job_id, instance_ids in unseen.items():
        yield Disagreement(
            kind=DisagreementKind.NOT_IN_LEDGER,
            scope=FreezeScope.JOB,
            key=job_id,
            detail=f"the log says held, the cloud does not show: {_names(instance_ids)}",
            continue_with=ORPHANS,
        )


def _with_affected(one: Disagreement, log: LogSays) -> Disagreement:
    """Name the open jobs that cannot buy because of a difference, the nearest deadline first."""
    if not one.continue_with:
        return one
    if one.scope is FreezeScope.JOB:
        concerned = [one.key] if one.key in log.jobs else []
    else:
        concerned = sorted(log.jobs, key=lambda job_id: (log.jobs[job_id].deadline_ns, job_id))
    first = log.jobs[concerned[0]].deadline_ns if concerned else 0
    return replace(one, affected_job_ids=tuple(concerned[:MOST_AFFECTED]), first_deadline_ns=first)


def _names(instance_ids: Iterable[str]) -> str:
    ordered = sorted(instance_ids)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more


def _usd(micro_usd: int) -> str:
    return f"{usd_from_micro_usd(micro_usd):.6f} USD"
