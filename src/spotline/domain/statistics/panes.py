"""Panes: the slices of time that windows are put together from.

An observation lies in the panes it covers, in pieces. Whatever came in is kept apart by its id and
by how late it was (`watermark_s`, the watermark it met), so a window is a function of the set of its
observations: neither order nor repetition can change it. What a pane adds up to is worked out once
and kept while nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from spotline.domain.statistics.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Which observation, and when it was complete: the latest of all that it is made of.

    `at_s` is its event time.
    """

    event_id: str
    seq: int
    watermark_s: int
    at_s: int


class Piece(Protocol):
    """The part of an observation that lies in one pane."""

    @property
    def arrival(self) -> Arrival:
        """Whose part."""
        ...

    @property
    def start_s(self) -> int:
        """Where it begins, within its pane."""
        ...


class Tally(Protocol):
    """What pieces add up to; panes are appended in order of time."""

    def append(self, other: Self) -> None:
        """Add what lies behind."""
        ...


PieceT = TypeVar("PieceT", bound=Piece)
CountedT = TypeVar("CountedT", bound=Piece, contravariant=True)
TallyT = TypeVar("TallyT", bound=Tally)


class Law(Protocol[CountedT, TallyT]):
    """How pieces become a tally."""

    def empty(self, before: TallyT | None = None) -> TallyT:
        """A tally of nothing, right behind what `before` counts."""
        ...

    def add(self, tally: TallyT, piece: CountedT) -> None:
        """Count a piece behind all that were counted."""
        ...


@dataclass(slots=True)
class _Pane(Generic[PieceT, TallyT]):
    pieces: dict[str, PieceT] = field(default_factory=dict)
    max_watermark_s: int = -(1 << 62)
    tally: TallyT | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined(Generic[TallyT]):
    """A window put together: its tally, and how many of its observations came after it closed."""

    tally: TallyT
    late: int


class Panes(Generic[PieceT, TallyT]):
    """The panes of one key.

    Parameters
    ----------
    pane_s
        How long a pane is; every window is a whole number of them.
    law
        How its pieces add up.
    """

    def __init__(self, pane_s: int, law: Law[PieceT, TallyT]) -> None:
        self._pane_s = pane_s
        self._law = law
        self._panes: dict[int, _Pane[PieceT, TallyT]] = {}

    def __len__(self) -> int:
        return len(self._panes)

    def add(self, piece: PieceT) -> None:
        """Add a piece; one that is there already changes nothing."""
        start_s = piece.start_s // self._pane_s * self._pane_s
        pane = self._panes.get(start_s)
        if pane is None:
            pane = self._panes[start_s] = _Pane()
        arrival = piece.arrival
        if arrival.event_id in pane.pieces:
            return
        pane.pieces[arrival.event_id] = piece
        pane.max_watermark_s = max(pane.max_watermark_s, arrival.watermark_s)
        pane.tally = None

    def combine(self, window: Window, grace_s: int) -> Combined[TallyT] | None:
        """Put a window together; None where nothing in it counts.

        What met a watermark `grace_s` or more behind the window's end does not.
        """
        found = [
            pane
            for start_s in range(window.start_s, window.end_s, self._pane_s)
            if (pane := self._panes.get(start_s)) is not None
        ]
        if not found:
            return None
        before = self._panes.get(window.start_s - self._pane_s)
        whole = self._law.empty(self._counted(before, window, grace_s)[0] if before else None)
        counts, late = False, set[str]()
        for pane in found:
            tally, pieces = self._counted(pane, window, grace_s)
            whole.append(tally)
            counts = counts or pieces is None or bool(pieces)
            for piece in pieces or ():
                if piece.arrival.watermark_s >= window.end_s:
                    late.add(piece.arrival.event_id)
        return Combined(tally=whole, late=len(late)) if counts else None

    def _counted(
        self, pane: _Pane[PieceT, TallyT], window: Window, grace_s: int
    ) -> tuple[TallyT, list[PieceT] | None]:
        """What counts of a pane for a window, with its pieces unless all were there in time."""
        if pane.max_watermark_s < window.end_s:
            if pane.tally is None:
                pane.tally = self._tally_of(pane.pieces.values())
            return pane.tally, None
        last_s = window.end_s + grace_s
        counted = [piece for piece in pane.pieces.values() if piece.arrival.watermark_s < last_s]
        return self._tally_of(counted), counted

    def forget_before(self, end_s: int) -> None:
        """Drop the panes that end by `end_s`."""
        for start_s in [pane_s for pane_s in self._panes if pane_s + self._pane_s <= end_s]:
            del self._panes[start_s]

    def _tally_of(self, pieces: Iterable[PieceT]) -> TallyT:
        tally = self._law.empty()
        for piece in sorted(pieces, key=lambda one: (one.start_s, one.arrival.event_id)):
            self._law.add(tally, piece)
        return tally


def cuts(start_s: int, end_s: int, pane_s: int) -> Iterator[tuple[int, int]]:
    """Cut `[start_s, end_s)` at the borders of panes."""
    while start_s < end_s:
        next_s = min(end_s, (start_s // pane_s + 1) * pane_s)
        yield start_s, next_s
        start_s = next_s
