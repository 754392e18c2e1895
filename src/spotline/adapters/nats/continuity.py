"""Whether a stream is still the one that was opened, with all that was seen of it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo, StreamInfo

from spotline.application.incarnations import FIRST, IncarnationMark, LogSeen, rebased
from spotline.contracts.build import event_of
from spotline.contracts.codec import decode
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError, LogCut
from spotline.contracts.subjects import KINDS, filter_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.market import SlotOpened

MARK_SUBJECTS = (filter_of(IncarnationBegun),)
# What we say of a durable place, and of a stream, in its metadata.
OWNER, INCARNATION = "owner", "incarnation"
INSTALLATION = "spotline_installation"


class Continuity:
    """What is known of a stream; asked on every new connection, and told what is stored.

    Parameters
    ----------
    checked
        Whether nothing of it may ever go. Of other streams only the places are kept within bounds.
    """

    def __init__(self, name: str, *, checked: bool) -> None:
        self._name = name
        self._checked = checked
        self._created = ""
        self._marks: tuple[IncarnationMark, ...] = ()
        self._last_slot_before = -1
        self.known_seq = 0
        self.installation_id = ""

    @property
    def created(self) -> str:
        """When the stream was made, in the broker's words."""
        return self._created

    @property
    def incarnation(self) -> int:
        """Which incarnation of the log this is."""
        return max((mark.incarnation for mark in self._marks), default=FIRST)

    @property
    def lineage(self) -> str:
        """Names this incarnation of this stream, as one token: what was kept of another is not its."""
        digits = "".join(character for character in self._created if character.isdigit())
        return f"{self.incarnation}_{digits}"

    async def look(
        self, js: JetStreamContext, begun: Sequence[tuple[int, IncarnationBegun]]
    ) -> None:
        """Take the stream for what it is now, with these marks in it."""
        info = await js.stream_info(self._name)
        self._created = created_of(info)
        self.installation_id = (info.config.metadata or {}).get(INSTALLATION, "")
        self.known_seq = info.state.last_seq
        self._marks = tuple(
            IncarnationMark(incarnation=event.incarnation, seq=seq) for seq, event in begun
        )
        self._last_slot_before = max((event.last_slot_before for _, event in begun), default=-1)

    async def seen(self, js: JetStreamContext) -> LogSeen:
        """The stream as it is, with the furthest floor of those who follow it."""
        # Before the end is read: whoever is at work acknowledges nothing beyond the end.
        floors = [rebased(*place_of(place), self._marks) async for place in _places(js, self._name)]
        info = await js.stream_info(self._name)
        return LogSeen(
            created=created_of(info),
            last_seq=info.state.last_seq,
            installation_id=(info.config.metadata or {}).get(INSTALLATION, ""),
            marks=self._marks,
            floor_seq=max(floors, default=0),
            last_slot=max(await _last_slot(js, self._name), self._last_slot_before),
        )

    async def check(self, js: JetStreamContext) -> None:
        """Look whether the stream is the one that was looked at, with all that was seen of it.

        Raises
        ------
        LogCut
            It is gone, is another one, or has lost its end.
        """
        if not self._checked or not self._created:
            return
        # What is seen while the broker is asked may be newer than its answer.
        known_seq = self.known_seq
        try:
            info = await js.stream_info(self._name)
        except nats.js.errors.NotFoundError:
            raise LogCut(self._name, "the stream is gone", known_seq=known_seq) from None
        created = created_of(info)
        if created != self._created:
            problem = f"the stream was made {self._created}, the one that is there {created}"
            raise LogCut(self._name, problem, last_seq=info.state.last_seq, known_seq=known_seq)
        last_seq = info.state.last_seq
        if last_seq < known_seq:
            problem = f"it ends at entry {last_seq}, entries up to {known_seq} were there"
            raise LogCut(self._name, problem, last_seq=last_seq, known_seq=known_seq)
        # What others have stored since may have made it as long again.
        begun = await _last_incarnation(js, self._name)
        if begun > self.incarnation:
            problem = f"it goes on as incarnation {begun}, this was {self.incarnation}"
            raise LogCut(self._name, problem, last_seq=last_seq, known_seq=known_seq)

    def saw(self, seq: int) -> None:
        """Note that an entry is there."""
        self.known_seq = max(self.known_seq, seq)

    def stored(self, seq: int, *, behind: int) -> None:
        """Note that a new entry was stored, which must be behind one that was known before.

        Raises
        ------
        LogCut
            It is not.
        """
        if self._checked and seq <= behind:
            problem = f"a new entry was stored as {seq}, entries up to {behind} were there"
            raise LogCut(self._name, problem, last_seq=seq, known_seq=behind)
        self.saw(seq)

    async def last_seq(self, js: JetStreamContext) -> int:
        """The last entry that is there."""
        return (await js.stream_info(self._name)).state.last_seq

    async def holds(self, js: JetStreamContext, floor_seq: int, incarnation: int) -> int:
        """How far what was acknowledged of an incarnation holds in the stream as it is.

        Raises
        ------
        LogCut
            The log ends before, and no incarnation was begun since.
        """
        floor_seq = rebased(floor_seq, incarnation, self._marks)
        last_seq = await self.last_seq(js)
        if floor_seq > last_seq and self._checked:
            problem = f"it ends at entry {last_seq}, entries up to {floor_seq} were acknowledged"
            raise LogCut(self._name, problem, last_seq=last_seq, known_seq=floor_seq)
        return min(floor_seq, last_seq)


def created_of(info: StreamInfo) -> str:
    """When a stream was made, as one comparable text."""
    return "" if info.created is None else info.created.isoformat()


def place_of(info: ConsumerInfo) -> tuple[int, int]:
    """How far a durable place has acknowledged, and of which incarnation.

    A server that starts on a stream that was cut sets the floor back to its end; where the place
    began, which is behind what was acknowledged by then, it keeps.
    """
    floor = info.ack_floor.stream_seq if info.ack_floor is not None else 0
    floor = max(floor, (info.config.opt_start_seq or 1) - 1)
    said = (info.config.metadata or {}).get(INCARNATION, "")
    return floor, int(said) if said.isdecimal() else FIRST


async def begun_in(
    entries: AsyncIterable[StoredEntry],
) -> AsyncIterator[tuple[int, IncarnationBegun]]:
    """The incarnations that entries begin, by seq; what cannot be read is for others to report."""
    async for entry in entries:
        try:
            event = event_of(entry)
        except ContractError:
            continue
        if isinstance(event, IncarnationBegun):
            yield entry.seq, event


async def _last_slot(js: JetStreamContext, stream: str) -> int:
    """The slot that was opened last, -1 for none that can be read."""
    try:
        message = await js.get_last_msg(stream, filter_of(SlotOpened))
        opened = decode(KINDS[SlotOpened], message.data or b"")
    except (nats.js.errors.NotFoundError, ContractError):
        return -1
    return opened.slot if isinstance(opened, SlotOpened) else -1


async def _last_incarnation(js: JetStreamContext, stream: str) -> int:
    """The incarnation that was begun last, `FIRST` for none that can be read."""
    try:
        message = await js.get_last_msg(stream, filter_of(IncarnationBegun))
        begun = decode(KINDS[IncarnationBegun], message.data or b"")
    except (nats.js.errors.NotFoundError, ContractError):
        return FIRST
    return begun.incarnation if isinstance(begun, IncarnationBegun) else FIRST


async def _places(js: JetStreamContext, stream: str) -> AsyncIterator[ConsumerInfo]:
    """The durable places of ours on a stream."""
    offset = 0
    while True:
        page = await js.consumers_info(stream, offset=offset)
        for place in page:
            if place.config.durable_name and OWNER in (place.config.metadata or {}):
                yield place
        offset += len(page)
        if not page:
            return
