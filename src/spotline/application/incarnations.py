"""Whether a log is what it was: what floors, a store and a ledger remember, against what is there.

A log may lose its end (the server cut what it could not read, or an older copy was put back) or all
of it. It goes on as another incarnation then, which an entry of it begins: `IncarnationBegun`. What
somebody remembers of an incarnation holds up to where the next one begins, and no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from spotline.contracts.envelope import StoredEntry

FIRST = 1
"""The incarnation of a log that never lost anything; no entry begins it."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class IncarnationMark:
    """An incarnation begins with the entry `seq`."""

    incarnation: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """A log as it is: `created` is when its stream was made, in the broker's words.

    `installation_id` is empty where nobody has claimed it. `floor_seq` is the furthest that anyone
    who follows it has acknowledged, of what holds still (see `rebased`), `last_slot` the last slot that was opened, or
    behind which an incarnation goes on; -1 for none.
    """

    created: str
    last_seq: int
    installation_id: str = ""
    marks: Sequence[IncarnationMark] = ()
    floor_seq: int = 0
    last_slot: int = -1

    @property
    def incarnation(self) -> int:
        """Which incarnation it is."""
        return max((mark.incarnation for mark in self.marks), default=FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRemembered:
    """A log as a store or a ledger remembers it: 0, -1 and empty where they do not.

    `used` says that the ledger holds something which a log must have led to, `restored` which copy
    was put back and not yet said in the log. `last_digest` is that of the entry `last_seq`.
    """

    installation_id: str
    restored: str = ""
    incarnation: int = FIRST
    created: str = ""
    last_seq: int = 0
    last_slot: int = -1
    used: bool = False
    last_digest: str = ""


class LogFinding(Enum):
    """What became of a log."""

    SAME = "same"
    CUT = "cut"
    WIPED = "wiped"
    OLDER = "older"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConclusion:
    """What became of a log, and how it goes on.

    `incarnation` is the one that it goes on as, `last_seq_before` the last entry that is known to
    have existed. `detail` says it in a line.
    """

    finding: LogFinding
    incarnation: int
    last_seq_before: int
    detail: str

    @property
    def begins(self) -> bool:
        """Whether the log goes on as another incarnation, which is to be said in it."""
        return self.finding in (LogFinding.CUT, LogFinding.WIPED, LogFinding.OLDER)


def rebased(seq: int, incarnation: int, marks: Iterable[IncarnationMark]) -> int:
    """How far `seq`, remembered of an incarnation, holds in a log that has these marks."""
    return min(
        [seq, *(mark.seq - 1 for mark in marks if mark.incarnation > incarnation)], default=seq
    )


def digest_of(entry: StoredEntry) -> str:
    """Tells an entry from any other that may stand in its place."""
    found = sha256()
    for part in (entry.subject.encode(), entry.headers.get("ce-id", "").encode(), entry.payload):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()


def conclude(
    log: LogSeen, remembered: LogRemembered | None = None, digest: str = ""
) -> LogConclusion:
    """Compare a log with what is remembered of it; the same two give the same conclusion.

    Parameters
    ----------
    remembered
        None where there is no store and no ledger: then only floors tell.
    digest
        Of the entry that the log has as the last one that is remembered; empty where it has none.
    """
    known, kept = log.floor_seq, 0
    incarnation = log.incarnation
    if remembered is not None:
        if log.installation_id not in ("", remembered.installation_id):
            return LogConclusion(
                finding=LogFinding.FOREIGN,
                incarnation=incarnation,
                last_seq_before=0,
                detail=f"the log belongs to installation {log.installation_id}, the store to "
                f"{remembered.installation_id}",
            )
        kept = rebased(remembered.last_seq, remembered.incarnation, log.marks)
        gone = _gone(log, remembered)
        incarnation = max(incarnation, remembered.incarnation)
        if remembered.restored:
            return _begun(LogFinding.OLDER, incarnation, remembered.last_seq, remembered.restored)
        if gone:
            return _begun(LogFinding.WIPED, incarnation, remembered.last_seq, gone)
        if remembered.incarnation > log.incarnation:
            return _begun(
                LogFinding.OLDER,
                incarnation,
                remembered.last_seq,
                f"the log is of incarnation {log.incarnation}, the store has seen "
                f"{remembered.incarnation}",
            )
        known = max(known, kept)
    if known > log.last_seq:
        return _begun(
            LogFinding.CUT,
            incarnation,
            known,
            f"the log ends at entry {log.last_seq}, entries up to {known} were acknowledged",
        )
    if remembered is not None and _is_another(remembered, kept, digest):
        return _begun(
            LogFinding.CUT,
            incarnation,
            known,
            f"entry {kept} is not the one that was there: others were stored behind a cut",
        )
    if remembered is not None and remembered.last_slot > log.last_slot:
        return _begun(
            LogFinding.CUT,
            incarnation,
            max(known, log.last_seq),
            f"the log ends in slot {log.last_slot}, the ledger in slot {remembered.last_slot}",
        )
    return LogConclusion(
        finding=LogFinding.SAME, incarnation=incarnation, last_seq_before=0, detail=""
    )


def _gone(log: LogSeen, remembered: LogRemembered) -> str:
    """Why the log that is remembered is not there any more, empty where it is."""
    if remembered.created and log.created != remembered.created:
        if log.incarnation > remembered.incarnation:
            return ""  # it was said, and not noted any more
        return f"the log was made {log.created}, the one that is remembered {remembered.created}"
    if log.installation_id or log.last_seq or remembered.created:
        return ""
    # It is new, and a store or ledger of before this, which could not note whose log it had, is not.
    return "the log is empty, the ledger is not" if remembered.used else ""


def _is_another(remembered: LogRemembered, kept: int, digest: str) -> bool:
    """Whether the last entry that is remembered, and holds still, is not what is there."""
    told = remembered.last_digest and digest and kept == remembered.last_seq
    return bool(told) and digest != remembered.last_digest


def _begun(finding: LogFinding, incarnation: int, last_seq: int, detail: str) -> LogConclusion:
    return LogConclusion(
        finding=finding, incarnation=incarnation + 1, last_seq_before=last_seq, detail=detail
    )
