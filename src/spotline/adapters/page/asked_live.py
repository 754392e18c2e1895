"""What pages ask of a running system beside its log: each thing of the allocator, as of now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.shared_answer import SharedAnswer
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.operations.messages import LimitsInForce, SystemStatus
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.acting_ports import Acting
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.outlook import JobOutlook

T = TypeVar("T")

_WAIT_S = 2.0
_NONE: Mapping[str, JobOutlook] = MappingProxyType({})


class KnownOutlooks(Protocol):
    """What is expected of open jobs, as it was said last; `AskedOutlooks` is one."""

    @property
    def known(self) -> Mapping[str, JobOutlook]:
        """By job; another mapping where anything was said anew. Never waits."""
        ...

    async def refresh(self) -> None:
        """Ask again where that was long ago, and wait a moment for the answer."""
        ...


class AskedExplainer:
    """Has the allocator explain, in the name of whoever asks."""

    def __init__(self, acting: Acting) -> None:
        self._acting = acting

    async def explain(self, query: DecisionQuery, *, token: str = "") -> DecisionExplanation:
        """See `Explainer`."""
        async with self._acting.of_caller(token) as acts:
            return await acts.jobs.explain(query)


class LiveOutlooks:
    """What the allocator expects of a job now, asked in the name of whoever asks.

    Of the past it says nothing: the allocator works out what is, not what was.
    """

    def __init__(self, acting: Acting) -> None:
        self._acting = acting

    async def outlook(self, job_id: str, at: int | None, *, token: str = "") -> JobOutlook | None:
        """See `Outlooks`."""
        if at is not None:
            return None
        async with self._acting.of_caller(token) as acts:
            status = await acts.jobs.get(job_id)
        return None if status.view is None else status.view.outlook


class LiveAbout:
    """What is known of a running system beside its log, for a page of now.

    It is the same for all readers, and asked once for those that look within a moment.

    Parameters
    ----------
    outlooks, system, limits
        Whom to ask; None: nobody is asked.
    wait_s
        How long a page waits for each answer: one that is looked at because something is wrong must
        not wait for what is wrong.
    """

    def __init__(
        self,
        *,
        outlooks: KnownOutlooks | None = None,
        system: Callable[[], Awaitable[SystemStatus]] | None = None,
        limits: Callable[[], Awaitable[LimitsInForce | None]] | None = None,
        wait_s: float = _WAIT_S,
    ) -> None:
        self._outlooks = outlooks
        self._system = None if system is None else SharedAnswer(system)
        self._limits = None if limits is None else SharedAnswer(limits)
        self._wait_s = wait_s

    async def of(self, asked: PageAsked) -> About:
        """What a page that is asked for may say; of a past slot it says what the log says alone."""
        if asked.at is not None:
            return NOTHING_KNOWN
        outlooks = _NONE
        if self._outlooks is not None:
            await self._outlooks.refresh()
            outlooks = self._outlooks.known
        system = None
        if self._system is not None and not asked.tenant:
            system = await self._in_time(self._system)
        limits = None if self._limits is None else await self._in_time(self._limits)
        return About(outlooks=outlooks, system=system, limits=limits)

    def close(self) -> None:
        """Ask no more. Safe to repeat."""
        for shared in (self._system, self._limits):
            if shared is not None:
                shared.close()

    async def _in_time(self, shared: SharedAnswer[T]) -> T | None:
        """What is answered in time, None where nothing is: the page says that it is not known."""
        try:
            async with asyncio.timeout(self._wait_s):
                return await shared.get()
        except TimeoutError:
            return None


def limits_of(
    ask: Callable[[], Awaitable[LimitsInForce]],
) -> Callable[[], Awaitable[LimitsInForce | None]]:
    """The limits in force; None where nobody answers: the page says that they are not known."""

    async def limits() -> LimitsInForce | None:
        try:
            return await ask()
        except SpotlineError:
            return None

    return limits
