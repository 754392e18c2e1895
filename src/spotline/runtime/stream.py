"""The log as the runtime needs it: append, read back, follow. The NATS adapter implements it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from spotline.application.health.flow import LogFacts
from spotline.contracts.envelope import Envelope, StoredEntry


class Subscription(Protocol):
    """A durable place in the stream. Entries come in `seq` order without holes."""

    @property
    def floor_seq(self) -> int:
        """The last acknowledged `seq` when the subscription was opened, 0 for none."""
        ...

    @property
    def rebased(self) -> bool:
        """Whether what was acknowledged beyond the floor is of a log that was cut, or is gone.

        Of what was acknowledged before, that which followed from it may be gone as well: entries
        come from the first on.
        """
        ...

    async def fetch(self, *, limit: int, timeout_s: float) -> Sequence[StoredEntry]:
        """Return up to `limit` next entries, empty after `timeout_s` without any.

        After a lost connection it goes on behind the last acknowledged entry, so entries may come
        again; they never come out of order.
        """
        ...

    @property
    def waiting(self) -> int:
        """Entries stored for this place and not fetched yet, as far as it has heard."""
        ...

    async def ack(self, entry: StoredEntry) -> None:
        """Say that `entry` and everything before it is done. Safe to repeat."""
        ...

    async def close(self) -> None:
        """Stop following; the place is kept."""
        ...


class EventStream(Protocol):
    """One ordered stream of entries: the log of a partition."""

    @property
    def most_events(self) -> int:
        """How many events that belong together go into one entry."""
        ...

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Store `envelopes` in order and return their sequence numbers.

        Idempotent by event id within the broker's duplicate window. Returns only when all are
        stored; retries a lost connection until `publish_timeout_s` of the adapter is over, then
        raises `ProviderUnavailable`.
        """
        ...

    async def facts(self, places: Sequence[str] = ()) -> LogFacts:
        """How the stream is: its ends, the room left, and how far these durable places have come.

        A place that does not exist is left out. Places are read before the stream's end.
        """
        ...

    async def last_seq(self) -> int:
        """The greatest stored `seq`, 0 when empty."""
        ...

    async def first_seq_since(self, stored_ns: int) -> int:
        """The `seq` of the first entry stored then or later; one more than the last if none was."""
        ...

    def read(
        self, subjects: Sequence[str], *, first_seq: int = 1, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        """Yield the stored entries on `subjects` (all if empty) with seq in the range, in order."""
        ...

    async def subscribe(
        self, name: str, subjects: Sequence[str], *, first_seq: int = 1
    ) -> Subscription:
        """Open the durable place `name`; `first_seq` applies when it does not exist yet."""
        ...
