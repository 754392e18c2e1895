"""A task that is cancelled while an answer comes is cancelled, whatever nats-py makes of it."""

import asyncio
from types import SimpleNamespace

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from spotline.adapters.faust.session import Session
from spotline.adapters.nats.client import HeedfulClient, heeding_cancel
from spotline.adapters.nats.connection import NatsConnection


class Answered(HeedfulClient):
    """A client whose answers come at once; with the one numbered `at`, a cancellation comes, too."""

    def __init__(self, *, at: int = 0, error: Exception | None = None) -> None:
        super().__init__()
        self.asked = 0
        self._at = at
        self._error = error
        self._resp_sub_prefix = bytearray(b"_INBOX.test.")

    async def publish(self, subject, payload=b"", reply="", headers=None) -> None:
        self.asked += 1
        assert not self._at or self.asked <= self._at, "asked although it was cancelled"
        asyncio.get_running_loop().call_soon(
            self._answer, reply.rpartition(".")[2], asyncio.current_task(), self.asked == self._at
        )

    def _answer(self, token, task, cancels) -> None:
        waiting = self._resp_map[token]
        if self._error is None:
            waiting.set_result(Msg(_client=self, subject="answer", data=b"{}"))
        else:
            waiting.set_exception(self._error)
        if cancels:
            # Before the task runs again: the answer is there, and not taken yet.
            asyncio.get_running_loop().call_soon(task.cancel)


async def ask_without_end(client: Client) -> None:
    while True:
        try:
            await client.request("question", timeout=5)
        except nats.errors.Error:
            continue


@pytest.mark.parametrize("error", [None, nats.errors.NoRespondersError()])
async def test_cancellation_that_comes_with_an_answer_ends_the_one_who_asks(error):
    client = Answered(at=3, error=error)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(ask_without_end(client))

    assert client.asked == 3


async def test_question_of_a_session_that_is_cancelled_is_not_asked_again():
    client = Answered(at=2)

    class Connection:
        async def link(self, *, timeout_s):
            return SimpleNamespace(client=client)

    session = Session("nats://127.0.0.1:1", name="test")
    session._connection = Connection()

    async def follow():
        while True:
            await session.ask(lambda js: js._nc.request("question", timeout=5))

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(follow())

    assert client.asked == 2


async def test_cancelled_task_may_ask_while_it_cleans_up():
    client = Answered()
    told = []

    async def work():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            told.append(await client.request("goodbye", timeout=5))

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(told) == 1


async def test_without_a_cancellation_result_and_error_are_those_of_the_work():
    async def fails():
        raise LookupError("not there")

    assert (await heeding_cancel(Answered().request("question", timeout=5))).data == b"{}"
    with pytest.raises(LookupError, match="not there"):
        await heeding_cancel(fails())


async def test_connecting_that_is_cancelled_leaves_no_connection_open():
    gone = asyncio.get_running_loop().create_future()
    accepted = asyncio.Event()

    async def says_nothing(reader, writer):
        accepted.set()
        try:
            gone.set_result(await reader.read())
        finally:
            writer.close()

    async with await asyncio.start_server(says_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connecting = asyncio.create_task(NatsConnection(f"nats://127.0.0.1:{port}").__aenter__())
        await accepted.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

        async with asyncio.timeout(30):
            assert await gone == b""
