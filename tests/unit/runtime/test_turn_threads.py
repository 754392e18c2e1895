"""Work before a turn and long turns: done in a thread, while others are served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.event import Event
from spotline.runtime.turn_threads import TurnThreads
from tests.samples.events import SAMPLES

EVENT, ANOTHER = SAMPLES[0], next(each for each in SAMPLES if type(each) is not type(SAMPLES[0]))
CONTEXT = Context(seq=1, now_ns=0, event_id="1", correlation_id="c")
ENVELOPE = envelope_for(
    EVENT, event_id="1", source="test", causation_id="", correlation_id="c", index=0
)


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


class Long(Plain):
    """A handler whose turns of `EVENT` are long, as its spec says."""

    spec = Spec(
        service="long", consumes=(type(EVENT), type(ANOTHER)), produces=(), long=(type(EVENT),)
    )


class Foresighted(Plain):
    """Names `work` for the first event."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def ahead(self, state: list[str], event: Event) -> Callable[[], object] | None:
        return None if state else self._work


async def test_others_are_served_while_it_is_done() -> None:
    served = threading.Event()
    where: list[int] = []

    def work() -> None:
        where.append(threading.get_ident())
        assert served.wait(10)

    threads = TurnThreads(Foresighted(work))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(threads.ahead([], EVENT))
        asyncio.get_running_loop().call_soon(served.set)

    assert where != [threading.get_ident()]


async def test_nothing_is_done_where_nothing_is_named() -> None:
    done: list[str] = []

    await TurnThreads(Foresighted(lambda: done.append("x"))).ahead(["one"], EVENT)
    await TurnThreads(Plain()).ahead([], EVENT)

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

    await TurnThreads(Failing(fail)).ahead([], EVENT)


def in_which_thread(event: Event, ctx: Context, envelope: Envelope) -> int:
    """A turn that tells where it is taken."""
    return threading.get_ident()


async def test_a_long_turn_is_taken_in_a_thread_and_a_short_one_is_not() -> None:
    threads, here = TurnThreads(Long()), threading.get_ident()

    assert await threads.taken(in_which_thread, EVENT, CONTEXT, ENVELOPE) != here
    assert await threads.taken(in_which_thread, ANOTHER, CONTEXT, ENVELOPE) == here


async def test_on_a_loop_without_threads_all_is_done_where_it_is() -> None:
    done: list[str] = []
    named = TurnThreads(Foresighted(lambda: done.append("x")), threads=False)
    threads = TurnThreads(Long(), threads=False)

    await named.ahead([], EVENT)

    assert not done
    assert await threads.taken(in_which_thread, EVENT, CONTEXT, ENVELOPE) == threading.get_ident()


async def test_others_are_served_in_a_long_turn_and_may_not_look_into_its_state() -> None:
    threads, served = TurnThreads(Long()), threading.Event()
    refused: list[str] = []

    def turn(event: Event, ctx: Context, envelope: Envelope) -> str:
        assert served.wait(10)
        return "taken"

    async def look() -> None:
        while not refused:
            try:
                threads.at_rest(["state"])
            except InvariantViolation as error:
                refused.append(str(error))
            await asyncio.sleep(0)
        served.set()

    async with asyncio.TaskGroup() as tasks:
        took = tasks.create_task(threads.taken(turn, EVENT, CONTEXT, ENVELOPE))
        tasks.create_task(look())

    assert took.result() == "taken"
    assert refused == ["long is in a turn: its state is not to be read"]
    assert threads.at_rest(["state"]) == ["state"]


async def test_a_turn_that_is_no_longer_waited_for_keeps_its_state_until_it_ends() -> None:
    threads, began, goes_on = TurnThreads(Long()), threading.Event(), threading.Event()
    ended = threading.Event()

    def turn(event: Event, ctx: Context, envelope: Envelope) -> None:
        began.set()
        assert goes_on.wait(10)
        ended.set()

    waiting = asyncio.create_task(threads.taken(turn, EVENT, CONTEXT, ENVELOPE))
    assert await asyncio.to_thread(began.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(InvariantViolation):
        threads.at_rest([])

    goes_on.set()

    assert await asyncio.to_thread(ended.wait, 10)
    assert await threads.taken(in_which_thread, EVENT, CONTEXT, ENVELOPE)
    assert threads.at_rest(["state"]) == ["state"]


async def test_a_long_turn_does_not_wait_for_other_work_in_threads() -> None:
    busy = threading.Event()
    loop = asyncio.get_running_loop()
    others = [loop.run_in_executor(None, busy.wait, 20) for _ in range(64)]

    where = await asyncio.wait_for(
        TurnThreads(Long()).taken(in_which_thread, EVENT, CONTEXT, ENVELOPE), 10
    )

    busy.set()
    assert all(await asyncio.gather(*others))
    assert where != threading.get_ident()


async def test_after_a_long_turn_that_failed_its_state_may_be_read() -> None:
    threads = TurnThreads(Long())

    def fail(event: Event, ctx: Context, envelope: Envelope) -> None:
        raise KeyError("no such job")

    with pytest.raises(KeyError):
        await threads.taken(fail, EVENT, CONTEXT, ENVELOPE)

    assert threads.at_rest(["state"]) == ["state"]


def test_what_is_not_consumed_has_no_long_turn() -> None:
    class Wrong(Plain):
        spec = Spec(service="wrong", consumes=(type(EVENT),), produces=(), long=(type(ANOTHER),))

    with pytest.raises(InvariantViolation, match="wrong must consume all that is long"):
        TurnThreads(Wrong())
