"""The page's state at the head of the log, and at any slot before it.

The past is folded again from the last copy before it, so that a page of then is made from nothing
but what was known then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol

from spotline.application.page.applied import Applied
from spotline.application.page.keeping import copied, read, written
from spotline.application.page.state import PageState
from spotline.domain.events.market import SlotOpened

# A copy of all costs about as much as folding so many events.
_EVENTS_A_COPY = 4_000
_MOST_COPIES = 16
_MOST_RECENT = 4


class Shelf(Protocol):
    """Keeps bytes out of memory; what is put there comes back as it was."""

    def put(self, content: bytes) -> int:
        """Keep some, and say under which number."""
        ...

    def get(self, number: int) -> bytes:
        """What was put there under a number."""
        ...


class MemoryShelf:
    """Keeps bytes in memory: for logs that are short."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def put(self, content: bytes) -> int:
        """See `Shelf`."""
        self._kept.append(content)
        return len(self._kept) - 1

    def get(self, number: int) -> bytes:
        """See `Shelf`."""
        return self._kept[number]


@dataclass(frozen=True, slots=True)
class _SlotKept:
    """The events from a slot's opening to the next one's; `copy` is the state before it, or None."""

    slot: int
    events: int
    copy: PageState | None


class PageBook:
    """Folds what is applied, and opens the state at any slot that has begun.

    What was applied in the open slot is kept in memory, and goes to the shelf with the next one;
    copies of the state stay in memory, at most `_MOST_COPIES`.
    """

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf or MemoryShelf()
        self.head = PageState()
        self._slots: list[int] = []
        self._kept: list[_SlotKept] = []
        # The first page of all is before the first slot; it needs no copy.
        self._open_copy: PageState | None = PageState()
        self._open_events: list[Applied] = []
        self._since_copy = 0
        self._events_a_copy = _EVENTS_A_COPY
        self._recent: OrderedDict[int, PageState] = OrderedDict()

    def apply(self, told: Applied) -> None:
        """Fold an event into the head."""
        before = self.head.slot
        if isinstance(told.event, SlotOpened):
            self._close_slot(before)
        self.head.fold(told)
        self._open_events.append(told)
        self._since_copy += 1

    @property
    def first_slot(self) -> int:
        """The first slot that can be opened, -1 where there is none."""
        return next((slot for slot in self._slots if slot >= 0), self.head.slot)

    @property
    def last_slot(self) -> int:
        """The open slot, -1 before the first."""
        return self.head.slot

    def at(self, slot: int | None) -> PageState:
        """The state at the end of a slot, or as far as the open one has come; None: the head.

        The result must not be changed. A slot that nobody opened shows the one before it.
        """
        if slot is None or slot >= self.head.slot:
            return self.head
        place = bisect_right(self._slots, slot) - 1
        if place < 0:
            return PageState()
        known = self._recent.get(place)
        if known is None:
            known = self._fold_to(place)
            self._recent[place] = known
            while len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(place)
        return known

    def _fold_to(self, place: int) -> PageState:
        first = place
        while self._kept[first].copy is None:
            first -= 1
        state = copied(self._kept[first].copy or PageState())
        for kept in self._kept[first : place + 1]:
            for told in read(self._shelf.get(kept.events)):
                state.fold(told)
        return state

    def _close_slot(self, slot: int) -> None:
        kept = _SlotKept(slot, self._shelf.put(written(self._open_events)), self._open_copy)
        self._slots.append(slot)
        self._kept.append(kept)
        self._open_events = []
        self._open_copy = None
        if self._since_copy >= self._events_a_copy:
            self._open_copy = copied(self.head)
            self._since_copy = 0
            self._thin_out()

    def _thin_out(self) -> None:
        """Keep so many copies, spread over the whole log: every other one goes, and they come rarer."""
        with_copy = [place for place, kept in enumerate(self._kept) if kept.copy is not None]
        if len(with_copy) < _MOST_COPIES:
            return
        # The first is an empty state, and stays.
        for place in with_copy[1::2]:
            self._kept[place] = replace(self._kept[place], copy=None)
        self._events_a_copy *= 2
