"""A log in memory that keeps the promises of `runtime.stream`, with the ways of JetStream.

The broker drops a repeated message id within a window and no longer; a place remembers what was
acknowledged, not what was delivered; who opens a place last keeps it; a stopped broker loses
nothing, and what is under way at its clients is sent and fetched again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from spotline.application.health.flow import LogFacts, PlaceFacts
from spotline.application.incarnations import FIRST, LogSeen
from spotline.bench.faults.continuity import MemoryContinuity
from spotline.contracts.batch import MOST_EVENTS
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable

MESSAGE_ID = "Nats-Msg-Id"
DUPLICATE_WINDOW_S = 120.0
MOST_PAYLOAD_BYTES = 8 * 1024 * 1024
_PUBLISH_TIMEOUT_S = 30.0

Pause = Callable[[], Awaitable[None]]
"""What a trip to the broker takes; a fault may lie in it."""


async def no_pause() -> None:
    """Let others go first, and no more."""
    await asyncio.sleep(0)


@dataclass(slots=True)
class DurablePlace:
    """A durable place as the broker keeps it; `began_seq` is behind what it began with."""

    acked_seq: int
    owner: MemorySubscription | None = None
    incarnation: int = FIRST
    began_seq: int = 0

    @property
    def done_seq(self) -> int:
        """Up to where its owner is done: an acknowledgement that was lost does not come again."""
        return self.acked_seq if self.owner is None else max(self.acked_seq, self.owner.acked_seq)

    def facts(self, last_seq: int) -> PlaceFacts:
        """How the broker tells of it."""
        waiting = max(0, last_seq - self.acked_seq)
        return PlaceFacts(floor_seq=self.acked_seq, waiting=waiting, incarnation=self.incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCopy:
    """A copy of a broker's disk."""

    entries: tuple[StoredEntry, ...]
    places: dict[str, DurablePlace]
    snapshots: dict[str, bytes]


@dataclass(slots=True)
class MemoryBroker:
    """The server's side: what survives whoever uses it.

    `now_ns` is its clock, which need not be right. `connections` counts its starts. While its disk
    is `full` it stores nothing. `lost` are the entries that were in the log once, in the order in
    which they were lost.
    """

    now_ns: Callable[[], int]
    entries: list[StoredEntry] = field(default_factory=list)
    places: dict[str, DurablePlace] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    set_aside: dict[str, bytes] = field(default_factory=dict)
    connections: int = 1
    full: bool = False
    name: str = "SPOTLINE_0"
    installation_id: str = ""
    lost: list[StoredEntry] = field(default_factory=list)
    _made: int = 1
    _ids: dict[str, tuple[int, float]] = field(default_factory=dict)
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _grew: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._up.set()

    @property
    def last_seq(self) -> int:
        """The greatest stored `seq`."""
        return len(self.entries)

    @property
    def created(self) -> str:
        """When the stream was made, in the broker's words."""
        return f"stream {self._made}"

    @property
    def is_up(self) -> bool:
        """Whether anybody is answered."""
        return self._up.is_set()

    def stop(self) -> None:
        """Answer nobody any more; every connection is lost."""
        self._up.clear()
        self.connections += 1
        self.wake()

    def start(self) -> None:
        """Answer again."""
        self._up.set()
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits for entries look again."""
        self._grew.set()
        self._grew = asyncio.Event()

    def grown(self) -> asyncio.Event:
        """Set when there is something new to look at."""
        return self._grew

    async def reached(self, timeout_s: float) -> None:
        """Wait until the broker answers; `ProviderUnavailable` where it does not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            raise ProviderUnavailable(f"NATS does not answer within {timeout_s} s") from None

    def store(self, subject: str, headers: dict[str, str], payload: bytes) -> int:
        """Store a message unless its id was seen of late; the seq of it."""
        now_s = asyncio.get_running_loop().time()
        message_id = headers.get(MESSAGE_ID, "")
        known = self._ids.get(message_id)
        if message_id and known is not None and now_s - known[1] <= DUPLICATE_WINDOW_S:
            return known[0]
        entry = StoredEntry(
            seq=len(self.entries) + 1,
            stored_ns=self.now_ns(),
            subject=subject,
            headers=headers,
            payload=payload,
        )
        self.entries.append(entry)
        if message_id:
            self._ids[message_id] = (entry.seq, now_s)
        self.wake()
        return entry.seq

    def store_again(self, entry: StoredEntry, message_id: str) -> int:
        """Store a message a second time under an id of its own, as a bridge or a mirror may."""
        return self.store(entry.subject, {**entry.headers, MESSAGE_ID: message_id}, entry.payload)

    def forget_ids(self) -> None:
        """Let the duplicate window of all be over."""
        self._ids.clear()

    def cut(self, last_seq: int) -> None:
        """Lose everything behind an entry, as a torn file does; places and snapshots stay.

        As a server does that starts on such a file, it sets what was acknowledged back to the end;
        where a place began it keeps.
        """
        self.lost += self.entries[last_seq:]
        del self.entries[last_seq:]
        self._ids = {key: seen for key, seen in self._ids.items() if seen[0] <= last_seq}
        for place in self.places.values():
            place.acked_seq = max(min(place.acked_seq, last_seq), place.began_seq)

    def wipe(self) -> None:
        """Lose the stream with its places, and make another one; snapshots are kept elsewhere."""
        self.cut(0)
        self.places.clear()
        self._made += 1
        self.installation_id = ""

    def copy(self) -> BrokerCopy:
        """What is on the broker's disk."""
        return BrokerCopy(
            entries=tuple(self.entries),
            places={name: replace(place, owner=None) for name, place in self.places.items()},
            snapshots=dict(self.snapshots),
        )

    def restore(self, copy: BrokerCopy) -> None:
        """Put back an older copy of this stream, with its places and snapshots."""
        self.cut(len(copy.entries))
        self.places = {name: replace(place) for name, place in copy.places.items()}
        self.snapshots = dict(copy.snapshots)

    def waits_for(self, name: str, subjects: Sequence[str]) -> bool:
        """Whether a place has entries that its owner is not done with."""
        place = self.places.get(name)
        floor = 0 if place is None else place.done_seq
        on = matching(tuple(subjects))
        return any(on(entry.subject) for entry in self.entries[floor:])


class MemoryStream:
    """Implements `EventStream` on a `MemoryBroker`."""

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        pause: Pause = no_pause,
        publish_timeout_s: float = _PUBLISH_TIMEOUT_S,
    ) -> None:
        self.most_events = MOST_EVENTS
        self.broker = broker
        self.name = broker.name
        self.continuity = MemoryContinuity(broker)
        self._pause = pause
        self._timeout_s = publish_timeout_s

    @property
    def incarnation(self) -> int:
        """Which incarnation it was when it was looked at."""
        return self.continuity.incarnation

    @property
    def lineage(self) -> str:
        """Names this incarnation of this stream."""
        return self.continuity.lineage

    @property
    def may_begin(self) -> bool:
        """Anybody may say that an incarnation begins."""
        return True

    async def look(self) -> None:
        """Take the stream as it is now for what it is to be from here on."""
        await self._asked()
        self.continuity.look()

    async def seen(self) -> LogSeen:
        """The stream as it is, with the furthest floor of those who follow it."""
        await self._asked()
        places = self.broker.places.values()
        return self.continuity.seen([(place.acked_seq, place.incarnation) for place in places])

    async def claim(self, installation_id: str) -> None:
        """Mark the stream as an installation's."""
        await self._asked()
        self.broker.installation_id = installation_id

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Store `envelopes` in order; see the port."""
        stored: list[int] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while len(stored) < len(envelopes):
            envelope = envelopes[len(stored)]
            if len(envelope.payload) > MOST_PAYLOAD_BYTES:
                raise InvariantViolation(
                    f"an event exceeds the server's max_payload of {MOST_PAYLOAD_BYTES} bytes"
                )
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise ProviderUnavailable(
                    f"{len(envelopes) - len(stored)} of {len(envelopes)} events could not be stored"
                    f" within {self._timeout_s} s"
                )
            await self.broker.reached(left_s)
            if self.broker.full:
                await asyncio.sleep(min(1.0, left_s))
                continue
            connection = self.broker.connections
            self.continuity.check()
            known_seq, last_seq = self.continuity.known_seq, self.broker.last_seq
            seq = self.broker.store(envelope.subject, envelope.headers(), envelope.payload)
            await self._pause()
            if connection == self.broker.connections:
                if seq > last_seq:
                    self.continuity.stored(seq, behind=known_seq)
                stored.append(seq)
        return stored

    async def facts(self, places: Sequence[str] = ()) -> LogFacts:
        """How the stream and these places are; see the port."""
        await self._asked()
        last_seq, known = self.broker.last_seq, self.broker.places
        told = {name: known[name].facts(last_seq) for name in places if name in known}
        return LogFacts(first_seq=1, last_seq=last_seq, places=told)

    async def last_seq(self) -> int:
        """The greatest stored `seq`, 0 when empty."""
        await self._asked()
        return self.broker.last_seq

    async def first_seq_since(self, stored_ns: int) -> int:
        """The `seq` of the first entry stored then or later; one more than the last if none was."""
        await self._asked()
        return 1 + sum(entry.stored_ns < stored_ns for entry in self.broker.entries)

    async def read(
        self, subjects: Sequence[str], *, first_seq: int = 1, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        """Yield the stored entries on `subjects` with seq in the range, in order."""
        on = matching(tuple(subjects))
        seq = first_seq
        while seq <= last_seq:
            await self._asked()
            connection = self.broker.connections
            for entry in self.broker.entries[seq - 1 : last_seq]:
                seq = entry.seq + 1
                if on(entry.subject):
                    yield entry
                if connection != self.broker.connections:
                    break
            else:
                return

    async def subscribe(
        self, name: str, subjects: Sequence[str], *, first_seq: int = 1
    ) -> MemorySubscription:
        """Open the durable place `name`; the one that had it open before is shut out."""
        await self._asked()
        self.continuity.check()
        place = self.broker.places.get(name)
        incarnation = self.continuity.incarnation
        if place is None:
            # A place that is wanted beyond the end is one in another log.
            claimed = first_seq - 1
            floor_seq = claimed if claimed <= self.broker.last_seq else 0
            rebased = floor_seq < claimed
        else:
            claimed = place.acked_seq
            floor_seq = self.continuity.holds(claimed, place.incarnation)
            rebased = floor_seq < claimed or place.incarnation < incarnation
        # What followed from what was acknowledged may be gone: all is looked at again.
        began_seq = 0 if rebased else floor_seq
        self.broker.places[name] = DurablePlace(
            began_seq, incarnation=incarnation, began_seq=began_seq
        )
        subscription = MemorySubscription(
            self.broker, name, subjects, began_seq, pause=self._pause, continuity=self.continuity
        )
        subscription.floor_seq, subscription.rebased = floor_seq, rebased
        return subscription

    async def _asked(self) -> None:
        await self._pause()
        await self.broker.reached(self._timeout_s)


class MemorySubscription:
    """A place that goes on behind the last acknowledged entry whenever its connection was lost."""

    def __init__(
        self,
        broker: MemoryBroker,
        name: str,
        subjects: Sequence[str],
        floor_seq: int,
        *,
        pause: Pause,
        continuity: MemoryContinuity,
    ) -> None:
        self._continuity = continuity
        self.floor_seq = floor_seq
        self.rebased = False
        self._broker, self._name = broker, name
        self._on = matching(tuple(subjects))
        self._pause = pause
        self._acked_seq = floor_seq
        self._next_seq = floor_seq + 1
        self._fetched = False
        self._connection = broker.connections
        broker.places[name].owner = self

    async def fetch(self, *, limit: int, timeout_s: float) -> Sequence[StoredEntry]:
        """Return up to `limit` next entries; see the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            grown = self._broker.grown()
            if self._broker.is_up:
                found = self._take(limit)
                if found:
                    await self._pause()
                    return found
            left_s = deadline - loop.time()
            if left_s <= 0:
                return ()
            try:
                async with asyncio.timeout(left_s):
                    await grown.wait()
            except TimeoutError:
                return ()

    def _take(self, limit: int) -> list[StoredEntry]:
        if self._connection != self._broker.connections:
            self._continuity.check()
        place = self._broker.places.get(self._name)
        if place is None:
            # Lost with the broker's store: it is made anew where this one knows it was.
            place = self._broker.places[self._name] = DurablePlace(self._acked_seq, self)
        if place.owner is not self:
            raise InvariantViolation(
                f"another process follows {self._broker.name} as {self._name}; run only one"
            )
        if self._connection != self._broker.connections:
            self._connection = self._broker.connections
            self._next_seq = self._acked_seq + 1
        found: list[StoredEntry] = []
        for entry in self._broker.entries[self._next_seq - 1 :]:
            self._next_seq = entry.seq + 1
            if self._on(entry.subject):
                found.append(entry)
                if len(found) == limit:
                    break
        self._fetched = True
        if found:
            self._continuity.saw(found[-1].seq)
        return found

    def rewind(self) -> bool:
        """Let what is not acknowledged come again, as after a lost connection; whether any does."""
        before, self._next_seq = self._next_seq, self._acked_seq + 1
        self._broker.wake()
        return before > self._next_seq

    @property
    def acked_seq(self) -> int:
        """The last entry that was acknowledged, whether the broker heard of it or not."""
        return self._acked_seq

    @property
    def waiting(self) -> int:
        """Entries stored for this place and not fetched yet, as far as it has heard."""
        if not self._fetched:
            return 0
        return sum(self._on(entry.subject) for entry in self._broker.entries[self._next_seq - 1 :])

    async def ack(self, entry: StoredEntry) -> None:
        """Say that `entry` and everything before it is done; lost where the broker is down."""
        self._acked_seq = max(self._acked_seq, entry.seq)
        place = self._broker.places.get(self._name)
        if self._broker.is_up and place is not None:
            place.acked_seq = max(place.acked_seq, entry.seq)

    async def close(self) -> None:
        """Stop following; the place is kept."""


class MemorySnapshots:
    """Implements `SnapshotStore` on a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, *, pause: Pause = no_pause) -> None:
        self._broker, self._pause = broker, pause

    async def put(self, name: str, data: bytes) -> None:
        """Replace the snapshot of `name`; see the port."""
        await self._asked()
        self._broker.snapshots[name] = data

    async def get(self, name: str) -> bytes | None:
        """The snapshot of `name`; see the port."""
        await self._asked()
        return self._broker.snapshots.get(name)

    async def set_aside(self, name: str) -> None:
        """Keep the snapshot of `name` where `get` does not find it; see the port."""
        await self._asked()
        data = self._broker.snapshots.pop(name, None)
        if data is not None:
            self._broker.set_aside[name] = data

    async def _asked(self) -> None:
        await self._pause()
        if not self._broker.is_up or self._broker.full:
            raise ProviderUnavailable("the broker does not answer, or has no room")


@lru_cache(maxsize=256)
def matching(subjects: tuple[str, ...]) -> Callable[[str], bool]:
    """Say of a subject whether one of the filters takes it; no filter takes all."""
    if not subjects:
        return lambda subject: True
    patterns = [
        re.escape(subject).replace(r"\*", "[^.]+").replace(">", ".+") for subject in subjects
    ]
    pattern = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))

    @lru_cache(maxsize=4096)
    def on(subject: str) -> bool:
        return pattern.fullmatch(subject) is not None

    return on
