"""How far a partition has been worked off, where sequence numbers have holes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableSet


class Progress:
    """Which delivered offsets are still being worked on.

    Kafka's offsets are dense in a partition, so Faust takes a missing one for unfinished work. A
    stream's sequence runs over all partitions: what was delivered is all there is.
    """

    __slots__ = ("_delivered",)

    def __init__(self) -> None:
        self._delivered: deque[int] = deque()

    def deliver(self, offset: int) -> None:
        """Note that the message at `offset` is being worked on. Offsets rise."""
        self._delivered.append(offset)

    def advance(self, acked: MutableSet[int]) -> int | None:
        """Forget finished work up to the first that is not, and return where to go on reading.

        Parameters
        ----------
        acked
            Offsets whose work is finished; what is forgotten is removed from it.

        Returns
        -------
        int or None
            One more than the last forgotten offset, None if nothing was.
        """
        delivered = self._delivered
        last = None
        while delivered and delivered[0] in acked:
            last = delivered.popleft()
            acked.remove(last)
        return None if last is None else last + 1

    def __len__(self) -> int:
        return len(self._delivered)
