"""Whether log, ledger and cloud say the same: `agreement.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.limits.freezes import FreezeScope


class DisagreementKind(Enum):
    """In what log, ledger and cloud differ; see `agreement.proto`."""

    LOG_WIPED = "log_wiped"
    LOG_CUT = "log_cut"
    LEDGER_LOST = "ledger_lost"
    LEDGER_OLDER = "ledger_older"
    INSTANCE_WITHOUT_JOB = "instance_without_job"
    CHARGE_WITHOUT_DECISION = "charge_without_decision"
    JOB_NOT_IN_LOG = "job_not_in_log"
    NOT_IN_LEDGER = "not_in_ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One difference, and the smallest scope that is undecided by it.

    `continue_with` is the command that continues, empty where it mends itself. `affected_job_ids`
    are open jobs that cannot buy because of it, the nearest deadline first; `first_deadline_ns` is
    that deadline, 0 for none.
    """

    kind: DisagreementKind
    scope: FreezeScope
    key: str
    detail: str
    continue_with: str = ""
    affected_job_ids: tuple[str, ...] = ()
    first_deadline_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementChecked:
    """Log, ledger and cloud were compared, up to the log's `last_seq`."""

    slot: int
    ts_event_ns: int
    last_seq: int
    disagreements: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncarnationBegun:
    """The log begins anew, or goes on after a part of it was lost: its first entry then.

    `incarnation` counts from 1: that one is not announced. `last_seq_before` is the last entry that
    is known to have existed (0: none), `last_slot_before` the last slot that was open (-1: none is
    known): the market goes on behind it.
    """

    installation_id: str
    incarnation: int
    last_seq_before: int
    detail: str
    last_slot_before: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFound:
    """An instance of ours belongs to no job.

    `job_id` and `tenant` are those of its tags, which may be empty. It is not ended before
    `reap_after_ns` of market time (0: not before a person says so).
    """

    instance_id: str
    offering_id: str
    slot: int
    ts_event_ns: int
    reap_after_ns: int
    detail: str
    job_id: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSettled:
    """Such an instance is no concern any more: ended, adopted, or gone; `by` empty: the rules."""

    instance_id: str
    reaped: bool
    detail: str
    slot: int
    ts_event_ns: int
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReapRequested:
    """A person wants these instances ended, which belong to no job."""

    instance_ids: tuple[str, ...]
    by: str = ""
