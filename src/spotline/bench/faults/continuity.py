"""Whether the log in memory is still the one that was opened, with all that was seen of it.

As the NATS adapter keeps it (`adapters/nats/continuity.py`): looked at on every new connection, and
told what is stored. A stream that nobody has looked at is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from spotline.application.incarnations import FIRST, IncarnationMark, LogSeen, rebased
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError, LogCut
from spotline.contracts.subjects import filter_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened


class StoredLog(Protocol):
    """The server's side of a log."""

    name: str
    entries: list[StoredEntry]
    installation_id: str
    connections: int

    @property
    def created(self) -> str:
        """When the stream was made, in the broker's words."""
        ...

    @property
    def last_seq(self) -> int:
        """The greatest stored `seq`."""
        ...


class MemoryContinuity:
    """What one client knows of a log."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log
        self._marks: tuple[IncarnationMark, ...] = ()
        self._last_slot_before = -1
        self._connection = log.connections
        self.created = ""
        self.known_seq = 0

    @property
    def incarnation(self) -> int:
        """Which incarnation of the log this is."""
        return max((mark.incarnation for mark in self._marks), default=FIRST)

    @property
    def lineage(self) -> str:
        """Names this incarnation of this stream."""
        return f"{self.incarnation}_{self.created.rpartition(' ')[2]}"

    def look(self) -> None:
        """Take the log for what it is now."""
        begun = self._begun()
        self._marks = tuple(
            IncarnationMark(incarnation=event.incarnation, seq=seq) for seq, event in begun
        )
        self._last_slot_before = max((event.last_slot_before for _, event in begun), default=-1)
        self._connection = self._log.connections
        self.created, self.known_seq = self._log.created, self._log.last_seq

    def seen(self, floors: Iterable[tuple[int, int]]) -> LogSeen:
        """The log as it is. `floors` are how far places have come, each of which incarnation."""
        opened = next(_events_on(filter_of(SlotOpened), self._log.entries[::-1]), None)
        last_slot = opened[1].slot if opened and isinstance(opened[1], SlotOpened) else -1
        return LogSeen(
            created=self._log.created,
            last_seq=self._log.last_seq,
            installation_id=self._log.installation_id,
            marks=self._marks,
            floor_seq=max((rebased(*floor, self._marks) for floor in floors), default=0),
            last_slot=max(last_slot, self._last_slot_before),
        )

    def _begun(self) -> list[tuple[int, IncarnationBegun]]:
        return [
            (seq, event)
            for seq, event in _events_on(filter_of(IncarnationBegun), self._log.entries)
            if isinstance(event, IncarnationBegun)
        ]

    def check(self) -> None:
        """Look, on a new connection, whether the log is the one that was looked at.

        Raises
        ------
        LogCut
            It is another one, or has lost its end.
        """
        if not self.created or self._connection == self._log.connections:
            return
        name, last_seq, known_seq = self._log.name, self._log.last_seq, self.known_seq
        if self._log.created != self.created:
            problem = f"it was made as {self.created}, there is {self._log.created}"
            raise LogCut(name, problem, last_seq=last_seq, known_seq=known_seq)
        if last_seq < known_seq:
            problem = f"it ends at entry {last_seq}, entries up to {known_seq} were there"
            raise LogCut(name, problem, last_seq=last_seq, known_seq=known_seq)
        begun = max((mark.incarnation for _, mark in self._begun()), default=FIRST)
        if begun > self.incarnation:
            problem = f"it goes on as incarnation {begun}, this was {self.incarnation}"
            raise LogCut(name, problem, last_seq=last_seq, known_seq=known_seq)
        # Not before: whoever asks next is to be told, too.
        self._connection = self._log.connections

    def saw(self, seq: int) -> None:
        """Note that an entry is there."""
        self.known_seq = max(self.known_seq, seq)

    def stored(self, seq: int, *, behind: int) -> None:
        """Note that a new entry was stored; `LogCut` where it is not behind one that was known."""
        if self.created and seq <= behind:
            problem = f"a new entry was stored as {seq}, entries up to {behind} were there"
            raise LogCut(self._log.name, problem, last_seq=seq, known_seq=behind)
        self.saw(seq)

    def holds(self, floor_seq: int, incarnation: int) -> int:
        """How far what was acknowledged of an incarnation holds; `LogCut` where the log ends before."""
        floor_seq = rebased(floor_seq, incarnation, self._marks)
        last_seq = self._log.last_seq
        if floor_seq > last_seq and self.created:
            problem = f"it ends at entry {last_seq}, entries up to {floor_seq} were acknowledged"
            raise LogCut(self._log.name, problem, last_seq=last_seq, known_seq=floor_seq)
        return min(floor_seq, last_seq)


def _events_on(subject: str, entries: Sequence[StoredEntry]) -> Iterator[tuple[int, Event]]:
    """What entries of one kind say, each with its seq; what cannot be read is for others to report."""
    prefix = subject.removesuffix(">")
    for entry in entries:
        if not entry.subject.startswith(prefix):
            continue
        try:
            for event in unpacked(entry):
                yield entry.seq, event_of(event)
        except ContractError:
            continue
