"""Notices and stops: the handler sets a flag, the work is done at the boundary of a step."""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from spotline.trainer.environment import RankEnvironment, WatchedFile

TERMINATION = "termination"
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionInfo:
    """Instances are taken back.

    Parameters
    ----------
    deadline_s
        When the first of them is gone, wall seconds since the epoch.
    lead_s
        Seconds from now until then; negative once it is past.
    instance_ids, ranks
        Which, and the ranks of theirs as far as the agent has named the members.
    kind
        As the platform calls it.
    notice_ids
        Ascending.
    """

    deadline_s: float
    lead_s: float
    instance_ids: tuple[str, ...]
    ranks: tuple[int, ...]
    kind: str
    notice_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNotice:
    """A notice as it stands in the notice file; `deadline_s` in wall seconds since the epoch."""

    notice_id: str
    kind: str
    instance_ids: tuple[str, ...]
    deadline_s: float

    @classmethod
    def read(cls, row: Any, at: str) -> ReadNotice:
        """Take a notice out of its JSON.

        Raises
        ------
        ValueError
            A field is missing or of the wrong type; the message names it.
        """
        try:
            return cls(
                notice_id=str(row["notice_id"]),
                kind=str(row.get("kind") or TERMINATION),
                instance_ids=tuple(str(name) for name in row.get("instance_ids") or ()),
                deadline_s=float(row["deadline_s"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{at} must have notice_id and deadline_s (seconds), was {row!r}"
            ) from error

    @property
    def key(self) -> int:
        """A number that all ranks give it, > 0 and below 2^48."""
        return int.from_bytes(hashlib.sha256(self.notice_id.encode()).digest()[:6], "big") | 1


class StopFlag:
    """Set by SIGTERM. Its handler does nothing else, so that it can come at any moment."""

    def __init__(self) -> None:
        self.since_s: float | None = None

    def install(self) -> bool:
        """Take over SIGTERM; False: this is no main thread, so it is not ours to take."""
        if threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGTERM, self._set)
        return True

    def _set(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.set()

    def set(self) -> None:
        """Note that the program is to stop, and since when."""
        if self.since_s is None:
            self.since_s = time.time()


class NoticeBoard:
    """What the agent's files say, looked at no more than five times a second."""

    def __init__(self, environment: RankEnvironment) -> None:
        self._place = environment.allocation
        self._notice_file = environment.notice_file
        self._notices = WatchedFile(environment.notice_file)
        run_dir = environment.run_dir
        self._allocation = WatchedFile(run_dir and run_dir / "allocation.json")
        self._looked_s = -_LOOK_EVERY_S
        self._handled: set[int] = set()
        self.stop = StopFlag()
        self.notices: tuple[ReadNotice, ...] = ()
        self.instance_ids: tuple[str, ...] = ()

    def look(self, *, now: bool = False) -> None:
        """Read what is new; with `now` whenever it was read last.

        Raises
        ------
        ValueError
            A file does not hold what ADR 0031 says.
        """
        if not now and time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = time.monotonic()
        rows = self._notices.content()
        if not isinstance(rows, list | None):
            raise ValueError(  # noqa: TRY004 - it is what the file holds that is wrong
                f"{self._notice_file} must be a list of notices, was {rows!r}"
            )
        self.notices = tuple(
            ReadNotice.read(row, f"{self._notice_file} [{index}]")
            for index, row in enumerate(rows or ())
        )
        allocation = self._allocation.content() or {}
        self.instance_ids = member_ids(allocation)
        if allocation.get("state") == "stop" or (
            allocation.get("generation", self._place.generation) > self._place.generation
        ):
            self.stop.set()

    @property
    def unhandled(self) -> tuple[ReadNotice, ...]:
        """Notices that nothing was saved for, and that were not given up."""
        return tuple(notice for notice in self.notices if notice.key not in self._handled)

    def handled(self, key: int) -> None:
        """Take the notice of this key, and all that is known now, as dealt with."""
        self._handled |= {key, *(notice.key for notice in self.notices)}

    def preemption(self) -> PreemptionInfo | None:
        """Sum up the open notices."""
        if not self.notices:
            return None
        first = min(self.notices, key=lambda notice: (notice.deadline_s, notice.notice_id))
        gone = {name for notice in self.notices for name in notice.instance_ids}
        per_instance = max(1, self._place.world_size // self._place.nnodes)
        ranks = [
            node * per_instance + local
            for node, name in enumerate(self.instance_ids)
            if name in gone
            for local in range(per_instance)
        ]
        return PreemptionInfo(
            deadline_s=first.deadline_s,
            lead_s=first.deadline_s - time.time(),
            instance_ids=tuple(sorted(gone)),
            ranks=tuple(ranks),
            kind=first.kind,
            notice_ids=tuple(sorted(notice.notice_id for notice in self.notices)),
        )


def member_ids(allocation: Any) -> tuple[str, ...]:
    """Return the instances of a generation in rank order, as `allocation.json` names them."""
    if not isinstance(allocation, dict):
        raise ValueError(  # noqa: TRY004 - it is what the file holds that is wrong
            f"allocation.json must be an object, was {allocation!r}"
        )
    members = allocation.get("members") or ()
    if not isinstance(members, list | tuple):
        return ()  # a count: the members are in `instances`
    return tuple(
        str(member["instance_id"] if isinstance(member, dict) else member) for member in members
    )
