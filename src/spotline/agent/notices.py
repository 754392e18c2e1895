"""Notices from all sources: merged, passed on to the program, and answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from spotline.adapters.grpc.agent.messages import NoticeNews
from spotline.agent.files import write_whole
from spotline.agent.ports import AgentClock
from spotline.agent.timing import MarketTime
from spotline.contracts.errors import ContractError
from spotline.domain.events.training import CheckpointFault, NoticeAction

PLATFORM = "platform"
INTERRUPTION = "interruption"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNotice:
    """A notice as this machine knows it; the deadline in wall seconds since the epoch."""

    notice_id: str
    instance_ids: tuple[str, ...]
    deadline_s: float
    kind: str = INTERRUPTION


@dataclass(slots=True, kw_only=True)
class _Open:
    """A notice that stands: as it was first said, by which sources under which ids."""

    notice: LocalNotice
    since_s: float
    ids: dict[str, str] = field(default_factory=dict)
    done: set[tuple[str, NoticeAction]] = field(default_factory=set)
    forwarded: bool = False
    outcome: NoticeAction | None = None


class NoticesInForce:
    """The notices that stand, in the file that the program reads.

    An interruption of this instance that its cloud says here and the platform tells too is one
    notice: the program saves once for it. It is answered under the platform's id.

    Parameters
    ----------
    file
        `notice.json`, rewritten on every change; a withdrawn notice is removed.
    post
        Takes the answers.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        file: Path,
        post: Callable[[NoticeNews], None],
        clock: AgentClock,
        market: MarketTime,
    ) -> None:
        self._instance_id = instance_id
        self._file = file
        self._post = post
        self._clock = clock
        self._market = market
        self._open: list[_Open] = []
        self._running = False
        self._unwritten = False
        self._write()

    @property
    def standing(self) -> tuple[LocalNotice, ...]:
        """The notices that stand, in the order in which they came."""
        return tuple(entry.notice for entry in self._open)

    def tell(self, source: str, notices: Iterable[LocalNotice]) -> bool:
        """Take in all that a source says now; what it says no more is withdrawn.

        Returns
        -------
        bool
            Whether a notice is new.
        """
        before, new = self.standing, False
        said = {notice.notice_id: notice for notice in notices}
        for entry in self._open:
            if entry.ids.get(source) is not None and entry.ids[source] not in said:
                del entry.ids[source]
        self._open = [entry for entry in self._open if entry.ids]
        for notice in said.values():
            entry = self._entry_of(source, notice) or self._begin(notice)
            new = new or not entry.ids
            if entry.ids and source != PLATFORM:
                # The machine knows its deadline in its own time.
                entry.notice = replace(entry.notice, deadline_s=notice.deadline_s, kind=notice.kind)
            entry.ids[source] = notice.notice_id
        if self.standing != before or self._unwritten:
            self._write()
        self._answer()
        return new

    def _begin(self, notice: LocalNotice) -> _Open:
        entry = _Open(notice=notice, since_s=self._clock.wall_s())
        self._open.append(entry)
        return entry

    def _entry_of(self, source: str, notice: LocalNotice) -> _Open | None:
        for entry in self._open:
            if notice.notice_id in (entry.notice.notice_id, entry.ids.get(source)):
                return entry
        own = (self._instance_id,)
        for entry in self._open:
            if notice.instance_ids == entry.notice.instance_ids == own and source not in entry.ids:
                return entry
        return None

    def running(self, runs: bool) -> None:
        """Note whether a program is there to be told."""
        self._running = runs
        self._answer()

    def saved(self, at_s: float) -> None:
        """Note that a checkpoint was committed at a moment, wall seconds."""
        self._decide(at_s, NoticeAction.SAVED)

    def not_saved(self, at_s: float, fault: CheckpointFault) -> None:
        """Note that none was, at a moment."""
        skipped = fault is CheckpointFault.SKIPPED
        self._decide(at_s, NoticeAction.SKIPPED if skipped else NoticeAction.NOT_SAVED)

    def _decide(self, at_s: float, action: NoticeAction) -> None:
        for entry in self._open:
            if entry.outcome is None and entry.forwarded and at_s >= entry.since_s:
                entry.outcome = action
                if action is NoticeAction.SAVED and at_s > entry.notice.deadline_s:
                    entry.outcome = NoticeAction.NOT_SAVED
        self._answer(at_s)

    def _answer(self, at_s: float | None = None) -> None:
        """Say what was done on the notices that the platform knows, once each."""
        at_s = self._clock.wall_s() if at_s is None else at_s
        for entry in self._open:
            entry.forwarded = entry.forwarded or self._running
            notice_id = entry.ids.get(PLATFORM)
            if notice_id is None:
                continue
            actions = [NoticeAction.FORWARDED] if entry.forwarded else []
            if entry.outcome is not None:
                actions.append(entry.outcome)
            for action in actions:
                if (notice_id, action) not in entry.done:
                    entry.done.add((notice_id, action))
                    after_s = self._market.market_s(at_s - entry.since_s)
                    self._post(NoticeNews(notice_id=notice_id, action=action, after_s=after_s))

    def _write(self) -> None:
        notices = [
            {
                "notice_id": notice.notice_id,
                "kind": notice.kind,
                "instance_ids": list(notice.instance_ids),
                "deadline_s": notice.deadline_s,
            }
            for notice in self.standing
        ]
        try:
            write_whole(self._file, json.dumps(notices, separators=(",", ":")) + "\n")
            self._unwritten = False
        except OSError as error:
            # A full disk. Every look at a source tries again.
            if not self._unwritten:
                _log.error("notices_not_written", error=str(error))
            self._unwritten = True


class NoticeFolder:
    """The cloud's own word on this machine: `notice.json` in its metadata folder.

    It holds `{notice_id, kind, deadline_s}`, or a list of such; no file, or an empty one, is none.
    """

    def __init__(self, folder: Path, instance_id: str) -> None:
        self._path = folder / "notice.json"
        self._instance_id = instance_id
        self._seen: tuple[int, int, int] | None = None
        self._notices: tuple[LocalNotice, ...] = ()

    def read(self) -> tuple[LocalNotice, ...]:
        """The notices that stand; the file is read only where it changed.

        Raises
        ------
        ContractError
            The file is not what it must be.
        """
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                self._notices = self._parsed(self._path.read_text(encoding="utf-8"))
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._notices = None, ()
        return self._notices

    def _parsed(self, text: str) -> tuple[LocalNotice, ...]:
        try:
            said = json.loads(text) if text.strip() else []
        except ValueError as error:
            raise ContractError(str(self._path), f"expected JSON: {error}") from error
        entries = said if isinstance(said, list) else [] if said is None else [said]
        return tuple(self._notice(entry) for entry in entries)

    def _notice(self, entry: Any) -> LocalNotice:
        if not isinstance(entry, dict) or not isinstance(entry.get("notice_id"), str):
            problem = f"expected an object with notice_id, kind and deadline_s, found {entry!r}"
            raise ContractError(str(self._path), problem)
        deadline_s = entry.get("deadline_s")
        if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float):
            problem = f"expected wall seconds since the epoch, found {deadline_s!r}"
            raise ContractError(f"{self._path}: deadline_s", problem)
        return LocalNotice(
            notice_id=entry["notice_id"],
            instance_ids=(self._instance_id,),
            deadline_s=float(deadline_s),
            kind=str(entry.get("kind") or INTERRUPTION),
        )
