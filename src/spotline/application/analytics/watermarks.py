"""The watermark along the log: what moved it, and what came late for it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.analytics.observations import LONGEST_SLOT_S
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import NEVER
from spotline.domain.statistics.panes import Arrival
from spotline.domain.statistics.windows import Window


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermark from the entry `seq` on, and the latest opening behind it."""

    seq: int
    watermark_s: int
    opened_s: int


@dataclass(frozen=True, slots=True, order=True)
class LateObservation:
    """An observation, from `start_s` to `end_s`, that at least one window had closed without."""

    seq: int
    event_id: str
    start_s: int
    end_s: int
    watermark_s: int
    dropped: bool


class Watermarks:
    """Where the watermark was at every entry, and which windows its moves close.

    Parameters
    ----------
    options
        The windows, and how long late observations are waited for.
    """

    def __init__(self, options: StatisticsOptions) -> None:
        self._options = options
        self._marks: list[Mark] = []
        self._openings: list[tuple[int, int]] = []  # start_s and the watermark met, by time
        self._late: list[LateObservation] = []

    @property
    def watermark_s(self) -> int:
        """As of the last entry known; `NEVER` before the first slot."""
        return self._marks[-1].watermark_s if self._marks else NEVER

    def before(self, seq: int) -> int:
        """The watermark that the entry `seq` meets."""
        place = bisect.bisect_left(self._marks, seq, key=_seq_of)
        return self._marks[place - 1].watermark_s if place else NEVER

    def open_slot(self, arrival: Arrival, slot_s: int) -> None:
        """Note that a slot opens, and that it moves the watermark, if it does."""
        start_s = arrival.at_s
        bisect.insort(self._openings, (start_s, arrival.watermark_s))
        watermark_s = start_s - self._options.delay_slots * slot_s
        marks = self._marks
        place = bisect.bisect_left(marks, arrival.seq, key=_seq_of)
        if place and marks[place - 1].watermark_s >= watermark_s:
            return
        behind = [mark for mark in marks[place:] if mark.watermark_s > watermark_s]
        marks[place:] = [Mark(arrival.seq, watermark_s, start_s), *behind]

    def note_late(self, arrival: Arrival, end_s: int) -> None:
        """Remember an observation until `end_s`, if a window had closed without it."""
        closed_s = min(spec.first_end_s(arrival.at_s) for spec in self._options.windows)
        if arrival.watermark_s >= closed_s:
            late = LateObservation(
                arrival.seq,
                arrival.event_id,
                arrival.at_s,
                end_s,
                arrival.watermark_s,
                arrival.watermark_s >= closed_s + self._options.grace_s,
            )
            bisect.insort(self._late, late)

    def late_between(self, after_seq: int, until_seq: int) -> Sequence[LateObservation]:
        """What came late behind `after_seq`, up to `until_seq`."""
        first = bisect.bisect_left(self._late, after_seq + 1, key=_seq_of)
        last = bisect.bisect_left(self._late, until_seq + 1, key=_seq_of)
        return self._late[first:last]

    def closed_by(self, seq: int) -> list[Window]:
        """The windows that the slot stored as `seq` closes, and those that late ones changed."""
        place = bisect.bisect_left(self._marks, seq, key=_seq_of)
        if not 0 < place < len(self._marks) or self._marks[place].seq != seq:
            return []
        before, now = self._marks[place - 1], self._marks[place]
        windows: set[Window] = set()
        for spec in self._options.windows:
            # Nothing begins in a window that begins behind the latest slot.
            until_s = min(now.watermark_s, before.opened_s + spec.size_s)
            windows.update(spec.closed_between(before.watermark_s, until_s))
            for late in self.late_between(before.seq, seq):
                # A window right behind it sees what changed at its beginning.
                for window in spec.over(late.start_s, late.end_s + 1):
                    closed = window.end_s <= before.watermark_s
                    if closed and late.watermark_s < window.end_s + self._options.grace_s:
                        windows.add(window)
        ordered = sorted(windows, key=lambda window: (window.end_s, window.size_s, window.hop_s))
        return [window for window in ordered if self._opens_in(window)]

    def forget_before(self, watermark_s: int) -> None:
        """Drop what no entry that meets this watermark can need."""
        horizon_s = self._options.horizon_s
        first_s = watermark_s - horizon_s - LONGEST_SLOT_S
        self._openings = [opening for opening in self._openings if opening[0] > first_s]
        first = bisect.bisect_left(self._marks, watermark_s, key=lambda mark: mark.watermark_s)
        del self._marks[: max(0, first - 1)]
        self._late = [late for late in self._late if late.end_s + horizon_s > watermark_s]

    def _opens_in(self, window: Window) -> bool:
        """Whether a slot opens in a window; one in which none does says nothing new."""
        first = bisect.bisect_left(self._openings, (window.start_s, NEVER))
        for start_s, met_s in self._openings[first:]:
            if start_s >= window.end_s:
                return False
            if met_s < window.end_s + self._options.grace_s:
                return True
        return False


def _seq_of(placed: Mark | LateObservation) -> int:
    return placed.seq
