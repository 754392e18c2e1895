"""What pages are made from beside the book; what is None is not asked, and the page says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from spotline.adapters.page.desk import PageDesk, yield_to_others
from spotline.application.page.ports import Explainer, JobOutlooks, JobOutlooksBeside

T = TypeVar("T")


class Workbench:
    """Works out beside the book's thread what takes long, one piece at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "page-work", initializer=yield_to_others)

    async def work(self, piece: Callable[[], T]) -> T:
        """What `piece` returns, or raises."""
        return await asyncio.wrap_future(self._thread.submit(piece))

    def close(self) -> None:
        """Work no more; waits for the piece at hand. Safe to repeat."""
        self._thread.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSources:
    """Whom pages ask.

    `desk` and `bench` are what costs are compared with. `outlooks_wait` says that outlooks take
    seconds: they are loaded after the page. `listed` works those of whole lists out; None where lists
    know them already.
    """

    explainer: Explainer | None = None
    outlooks: JobOutlooks | None = None
    outlooks_wait: bool = False
    listed: JobOutlooksBeside | None = None
    desk: PageDesk | None = None
    bench: Workbench | None = None
