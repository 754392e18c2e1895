"""What a server of views needs: answers from a fold, wherever that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spotline.application.allocator.messages import JobPage, JobStatus
from spotline.application.board.messages import FleetView
from spotline.application.market_view import ClockReading
from spotline.application.read_model.messages import (
    HappeningPage,
    HappeningQuery,
    MarketBoard,
    ViewChange,
    ViewQuery,
    WatchQuery,
)
from spotline.contracts.errors import SpotlineError
from spotline.contracts.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class InputProblem:
    """Something that is wrong with a request; `field` is empty for the whole of it."""

    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return f"{where}expected {self.expected}, found {self.found}"


class ViewRefused(SpotlineError):
    """A question is not answered: `reason` says why, `problems` what is wrong with it."""

    def __init__(self, reason: Reason, message: str, problems: Sequence[InputProblem] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.problems = tuple(problems)


def refused_input(*problems: InputProblem) -> ViewRefused:
    """The refusal for input that is wrong, in the words of its problems."""
    return ViewRefused(Reason.FIELD_INVALID, "; ".join(map(str, problems)), problems)


class ViewWatch(Protocol):
    """A reader that follows changes; it keeps nothing of its own but its place."""

    async def next(self) -> ViewChange:
        """Wait for the next change.

        Raises
        ------
        ViewRefused
            The reader fell too far behind, or the server stops: nothing more follows.
        """
        ...

    def close(self) -> None:
        """Follow no more. Safe to repeat."""
        ...


class Views(Protocol):
    """Where jobs and market stand. No method changes anything; all may be asked at any time.

    Those that name a job raise `ViewRefused` where there is none, or an id's beginning is that of
    several.
    """

    def clock(self) -> ClockReading | None:
        """Market and wall time, None before a market is known."""
        ...

    async def jobs(self, query: ViewQuery) -> JobPage:
        """A page of jobs with their views, and what all of them hold together."""
        ...

    async def job(self, job_id: str, *, tenant: str = "") -> JobStatus:
        """A job by its id, or by the beginning of it that no other has.

        With a `tenant` there are no jobs but its own.
        """
        ...

    async def happenings(self, job_id: str, query: HappeningQuery) -> HappeningPage:
        """What happened to a job."""
        ...

    async def market(self) -> MarketBoard:
        """The market."""
        ...

    async def fleet(self, tenant: str) -> FleetView:
        """What all jobs of a tenant (empty: of all) hold together."""
        ...

    async def watch(self, query: WatchQuery) -> ViewWatch:
        """Follow changes from a place on; raises `ViewRefused` where it is not kept any more."""
        ...

    def health(self) -> Mapping[str, str | int | bool]:
        """What the server says of itself; `healthy` says whether its answers are up to date."""
        ...
