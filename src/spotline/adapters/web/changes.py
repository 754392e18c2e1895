"""The last changes of jobs and market, kept once for all who follow them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from spotline.application.read_model.messages import LogPlace, ViewChange, WatchQuery
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.reasons import Reason

MOST_CHANGES = 20_000

Finish = Callable[[ViewChange], Awaitable[ViewChange]]
"""Adds to a change what is told of its job at the moment when it is sent."""


class RecentChanges:
    """A ring of changes in the order of the log; readers keep nothing but their place in it.

    Parameters
    ----------
    finish
        Completes a change for a reader.
    most
        How many are kept: a reader that falls further behind is dropped.
    """

    def __init__(self, finish: Finish, *, most: int = MOST_CHANGES) -> None:
        self._finish = finish
        self._ring: list[ViewChange | None] = [None] * most
        # Changes are numbered from 0 on; the ring holds the last of them.
        self._count = 0
        self._changed = asyncio.Event()
        self._ended = False

    def note(self, change: ViewChange) -> None:
        """Take a change; its place counts on from the last of its entry. Never waits."""
        last = self._at(self._count - 1) if self._count else None
        part = 1
        if last is not None and last.place.seq == change.place.seq:
            part = last.place.part + 1
        place = LogPlace(seq=change.place.seq, part=part)
        self._ring[self._count % len(self._ring)] = replace(change, place=place)
        self._count += 1
        self._wake()

    def end(self) -> None:
        """End every watch: the server stops."""
        self._ended = True
        self._wake()

    def watch(self, query: WatchQuery) -> ChangeWatch:
        """Follow what comes after the query's place.

        Raises
        ------
        ViewRefused
            What followed that place is not kept any more, or the place lies ahead.
        """
        if query.after is None:
            return ChangeWatch(self, query, self._count)
        return ChangeWatch(self, query, self._number_after(query.after))

    def _number_after(self, place: LogPlace) -> int:
        kept = self._kept()
        if kept and kept[-1].place.seq < place.seq:
            raise _not_kept(place, f"a place up to {_text(kept[-1].place)}")
        later = sum(change.place > place for change in kept)
        whole = self._count <= len(self._ring)
        if later == len(kept) and not whole:
            raise _not_kept(place, f"a place from {_text(kept[0].place)} on")
        return self._count - later

    def _kept(self) -> Sequence[ViewChange]:
        first = self._first()
        return [self._at(number) for number in range(first, self._count)]

    def _first(self) -> int:
        return max(0, self._count - len(self._ring))

    def _at(self, number: int) -> ViewChange:
        change = self._ring[number % len(self._ring)]
        if change is None:
            raise IndexError(f"change {number} is not kept")
        return change

    async def take(self, number: int) -> ViewChange:
        """Wait for a change by its number; `ViewRefused` where it is not kept, or none follows."""
        while number >= self._count:
            if self._ended:
                raise ViewRefused(
                    Reason.SERVER_STOPPING, "the read model is stopping; follow again"
                )
            await self._changed.wait()
        if number < self._first():
            raise ViewRefused(
                Reason.WATCH_TOO_SLOW,
                f"the reader fell more than {len(self._ring)} changes behind; read the jobs again, "
                "then follow from there",
            )
        return self._at(number)

    async def finished(self, change: ViewChange) -> ViewChange:
        """A change with what is told of its job now."""
        return await self._finish(change)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class ChangeWatch:
    """One reader's place in the ring."""

    def __init__(self, changes: RecentChanges, query: WatchQuery, number: int) -> None:
        self._changes = changes
        self._query = query
        self._number = number

    async def next(self) -> ViewChange:
        """Wait for the next change that was asked for; raises as `ViewWatch`."""
        while True:
            change = await self._changes.take(self._number)
            self._number += 1
            if self._is_asked(change):
                return await self._changes.finished(change)

    def close(self) -> None:
        """Follow no more: nothing is kept for it."""

    def _is_asked(self, change: ViewChange) -> bool:
        query = self._query
        if not change.job_id:
            return True
        return query.job_id in ("", change.job_id) and query.tenant in ("", change.tenant)


def _not_kept(place: LogPlace, expected: str) -> ViewRefused:
    return refused_input(
        InputProblem(
            field="after",
            expected=f"{expected} (read the jobs again, then follow without one)",
            found=_text(place),
        )
    )


def _text(place: LogPlace) -> str:
    return f"{place.seq}-{place.part}" if place.part < 1 << 62 else str(place.seq)
