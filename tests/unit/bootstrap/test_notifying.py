"""A followed log and its receivers: told as it grows, and again from the beginning after a failure."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest

from spotline.adapters.notify.delivering import AlertDelivery
from spotline.adapters.notify.outbox import OUTBOX_FILE, Outbox
from spotline.application.notify.fold import AlertFold
from spotline.application.notify.target import NotifyTarget
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap import notifying as module
from spotline.bootstrap.notifying import Notifying, followed, notifying
from spotline.bootstrap.parts import BusAddress
from spotline.contracts.errors import LogCut
from tests.eventually import eventually
from tests.fakes.receiver import receiving
from tests.fakes.stream import FakeStream
from tests.samples.page_logs import LogWriter, offerings

pytestmark = pytest.mark.asyncio

OLD_S = 40_000
# Later than any clock of a test: what the log holds is news to whoever is there.
STORED_NS = 4_000_000_000 * 10**9


def entries_of(slots: int):
    log = LogWriter(offerings(1))
    for _ in range(slots):
        log.open(ages_s=(OLD_S,))
    return [replace(entry, stored_ns=STORED_NS) for entry in log.entries]


def told_to(url, tmp_path):
    return Notifying(
        targets=[NotifyTarget(name="ops", url=url, secret="s" * 16)],
        bus=BusAddress(nats_url="nats://127.0.0.1:1"),
        store=tmp_path,
        selector=SelectorOptions(),
    )


async def test_a_log_that_grows_is_told_and_told_once(tmp_path, monkeypatch):
    stream, opened = FakeStream(), []
    stream.entries = entries_of(0)

    @asynccontextmanager
    async def open_stream(bus, *, name):
        opened.append(name)
        if len(opened) == 1:
            raise OSError("the bus is away")
        yield None, stream

    monkeypatch.setattr(module, "open_stream", open_stream)
    monkeypatch.setattr(module, "_AGAIN_S", (0.0, 0.0))
    monkeypatch.setattr(module, "POLL_S", 0.001)
    with receiving() as receiver:
        told = told_to(receiver.url, tmp_path)
        async with notifying(told):
            await eventually(lambda: len(opened) == 2)
            stream.entries = entries_of(3)
            await eventually(lambda: receiver.posted)
        async with notifying(told):
            await eventually(lambda: len(opened) == 3)
            await eventually(lambda: _counts(tmp_path) == {"taken": 1})

        assert len(receiver.posted) == 1
        assert receiver.posted[0].said["kind"] == "feed_dead"
    assert set(opened) == {"event_log"}


def _counts(store):
    with closing(Outbox(store / OUTBOX_FILE)) as outbox:
        return outbox.counts("ops")


async def test_a_log_that_was_cut_is_not_gone_on_with(tmp_path):
    stream = FakeStream()
    stream.entries = entries_of(3)
    with closing(Outbox(tmp_path / OUTBOX_FILE)) as outbox:
        delivery = AlertDelivery(outbox, [NotifyTarget(name="ops", url="http://127.0.0.1:1/")])
        following = asyncio.create_task(followed(stream, AlertFold("here"), delivery, poll_s=0.001))
        await eventually(lambda: outbox.counts("ops") == {"waiting": 1})
        stream.entries = stream.entries[:1]
        with pytest.raises(LogCut):
            await following


async def test_without_receivers_nothing_is_kept(tmp_path):
    async with notifying(replace(told_to("http://127.0.0.1:1/", tmp_path), targets=())):
        pass

    assert list(tmp_path.iterdir()) == []
