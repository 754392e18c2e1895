"""Explaining decisions of a log that runs, beside the service that is asked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.explaining.ports import ExplainerBusy
from spotline.application.selector.options import (
    SelectorOptions,
    crowd_values,
    for_crowds,
    where_uncounted,
)
from spotline.bootstrap.clouds import SIMULATED, follows_market
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.domain.beliefs.count_paths import FEEDBACK_PATHS
from spotline.domain.limits.spending import DEFAULT_SPENDING
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.selection.prior import shipped_weights
from spotline.replay.explain import Entries, LogExplainer
from spotline.runtime.settings import OptionVariables

SELECTOR_VARIABLES = OptionVariables(
    left_out=("rehearsals_per_job", "history_slots", "most_revisions", "competing")
)
"""How a service's environment states the selector's options."""


def _known_cloud(name: str) -> str:
    try:
        follows_market(name)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return name


CloudName = Annotated[str, AfterValidator(_known_cloud)]
"""The name of a cloud that is installed."""


def served_options(stated: object, info: ValidationInfo) -> object:
    """The options that an environment states, by default with all that a service has.

    That is limits, prior weights, even cells, and where counts are shown clearing and shadow prices. A live market
    shows none: they are believed, a deadline does not count on spot there, and there is nothing to clear.
    """
    firm = not follows_market(info.data.get("cloud", SIMULATED))
    if isinstance(stated, SelectorOptions):
        return stated if firm else where_uncounted(stated)
    if not isinstance(stated, Mapping):
        return stated
    by_default = {
        "limits": True,
        "spending": DEFAULT_SPENDING.to_json(),
        "spot_firm": firm,
        "warm_start": shipped_weights(),
        "even_cells": True,
        **crowd_values(on=firm),
        "beliefs": "" if firm else shipped_priors().sha256,
        "belief_paths": 0 if firm else FEEDBACK_PATHS,
    }
    return {**by_default, **stated}


SERVED = for_crowds(
    SelectorOptions(
        limits=True,
        spending=DEFAULT_SPENDING.to_json(),
        warm_start=shipped_weights(),
        even_cells=True,
    )
)
"""The options of a service whose environment states none: money has limits by default."""

# Entries are asked of the broker in portions: between two of them the thread can be stopped.
_PORTION = 500
# Deciding goes before explaining.
_NICENESS = 10


class LiveExplainer:
    """Explains decisions of a partition's log, one at a time, in a thread of its own.

    The thread reads on a connection of its own and yields to all others. What it has folded is
    kept: a later decision is explained from there.
    """

    def __init__(self, bus: BusAddress, options: SelectorOptions) -> None:
        self._bus = bus
        self._explainer = LogExplainer(options)
        self._threads: ThreadPoolExecutor | None = None
        self._turn = threading.Lock()
        self._closed = threading.Event()

    async def explain(self, query: DecisionQuery) -> DecisionExplanation:
        """Why a decision was what it was; see `DecisionExplainer`.

        Raises
        ------
        UnknownDecision
            There is no such job or decision.
        LogBeginsLate
            The beginning of the log is gone.
        ExplainerBusy
            Another one is being explained.
        ProviderUnavailable
            The log cannot be read now.
        """
        if not self._turn.acquire(blocking=False):
            raise ExplainerBusy("another decision is being explained; try again in a few seconds")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "explain", initializer=_yield_to_others)
        work = self._threads.submit(self._explained, query)
        # Who gives up waiting does not stop the thread: it is free again when that has ended.
        work.add_done_callback(lambda _: self._turn.release())
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        """Stop reading, and let go of the thread."""
        self._closed.set()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _explained(self, query: DecisionQuery) -> DecisionExplanation:
        with asyncio.Runner() as runner:
            opened = open_stream(self._bus, name="explain")
            _, stream = runner.run(opened.__aenter__())
            try:
                log = _StreamEntries(runner, stream, self._closed)
                return self._explainer.explain(log, query)
            finally:
                runner.run(opened.__aexit__(None, None, None))


def _yield_to_others() -> None:
    """Be scheduled behind the threads that decide, where the system knows niceness of threads."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class _StreamEntries:
    """A stream as a log that is read without waiting for an event loop."""

    def __init__(
        self, runner: asyncio.Runner, stream: NatsEventStream, closed: threading.Event
    ) -> None:
        self._runner = runner
        self._stream = stream
        self._closed = closed

    def read(self, first_seq: int, last_seq: int | None = None) -> Entries:
        """See `LogEntries`."""
        if last_seq is None:
            last_seq = self._runner.run(self._stream.last_seq())
        if first_seq > last_seq:
            return
        entries = self._stream.read((), first_seq=first_seq, last_seq=last_seq)
        try:
            while portion := self._runner.run(_portion(entries)):
                if self._closed.is_set():
                    raise ProviderUnavailable("the allocator is stopping")
                yield from portion
        finally:
            self._runner.run(_let_go(entries))


async def _portion(entries: AsyncIterator[StoredEntry]) -> list[StoredEntry]:
    found: list[StoredEntry] = []
    async for entry in entries:
        found.append(entry)
        if len(found) == _PORTION:
            break
    return found


async def _let_go(entries: AsyncIterator[StoredEntry]) -> None:
    close = getattr(entries, "aclose", None)
    if close is not None:
        await close()
