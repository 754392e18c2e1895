"""Work before a turn: done in a thread, while others are served, and never instead of the turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.event import Event
from spotline.runtime.preparing import Preparing
from tests.samples.events import SAMPLES

EVENT = SAMPLES[0]


class Plain:
    """A handler that works nothing out before its turns."""

    spec = Spec(service="plain", consumes=(type(EVENT),), produces=(), decides=())

    def initial(self) -> list[str]:
        return []

    def evolve(self, state: list[str], event: Event) -> None:
        state.append(type(event).__name__)

    def decide(self, state: list[str], event: Event, ctx: Context) -> Outcome:
        return NOTHING

    def due(self, state: list[str]) -> Sequence[Timer]:
        return ()


class Foresighted(Plain):
    """Names `work` for the first event."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def ahead(self, state: list[str], event: Event) -> Callable[[], object] | None:
        return None if state else self._work


async def test_others_are_served_while_it_is_done() -> None:
    served = threading.Event()
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_ident())
        assert served.wait(10)

    preparing = Preparing(Foresighted(work))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(preparing.ahead([], EVENT))
        asyncio.get_running_loop().call_soon(served.set)

    assert threads != [threading.get_ident()]


async def test_nothing_is_done_where_nothing_is_named() -> None:
    done: list[str] = []

    await Preparing(Foresighted(lambda: done.append("x"))).ahead(["one"], EVENT)
    await Preparing(Plain()).ahead([], EVENT)

    assert done == []


@pytest.mark.parametrize("names", [True, False])
async def test_what_fails_is_left_to_the_turn(names: bool) -> None:
    def fail() -> None:
        raise KeyError("no such table")

    class Failing(Foresighted):
        def ahead(self, state: list[str], event: Event) -> Callable[[], object] | None:
            if names:
                return fail
            raise KeyError("no such job")

    await Preparing(Failing(fail)).ahead([], EVENT)
