"""The notifier: whose ids it gives, what it does where the log is away or cut, and nobody to tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotline.adapters.notify import delivering as delivering_module
from spotline.adapters.notify.outbox import OUTBOX_FILE, Outbox
from spotline.application.notify.alerts import AlertKind, AlertState, alert_id_of
from spotline.application.notify.target import NotifyTarget
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap import notifier as module
from spotline.bootstrap.health import HealthProbes
from spotline.bootstrap.notifier import NotifierHost, serve_notifier
from spotline.bootstrap.notifying import FollowPlace, Notifying, delivering
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError, LogCut, ProviderUnavailable
from tests.eventually import eventually
from tests.fakes.receiver import receiving
from tests.fakes.stream import FakeStream
from tests.samples.page_logs import LogWriter, offerings

pytestmark = pytest.mark.asyncio

OLD_S = 40_000
# Later than any clock of a test: what the log holds is news to whoever is there.
STORED_NS = 4_000_000_000 * 10**9
INSTALLATION = "an-installation"


class OwnedStream(FakeStream):
    """A log that says whose it is once it was looked at `looks` times, and may turn out to be cut."""

    def __init__(self, *, looks: int = 0) -> None:
        super().__init__()
        self.looks = looks
        self.is_cut = False
        self.continuity = SimpleNamespace(installation_id="", check=self._check)
        self._own()

    async def look(self) -> None:
        self.looks -= 1
        self._own()

    async def ask(self, question: Callable[[Any], Any]) -> None:
        await question(SimpleNamespace(jetstream=lambda: None))

    def _own(self) -> None:
        self.continuity.installation_id = "" if self.looks > 0 else INSTALLATION

    async def _check(self, js: object) -> None:
        if self.is_cut:
            raise LogCut("the log", "it goes on as another")


class Connected:
    """A connection that is made again only where its link is asked for, as the real one is."""

    def __init__(self) -> None:
        self.connected = True
        self.publishing = SimpleNamespace(failing=None)

    async def link(self, *, timeout_s: float) -> None:
        assert timeout_s > 0
        self.connected = True


class Opened:
    """What the notifier opens, one after the other; an error is raised, the last one stays."""

    def __init__(self, *streams: OwnedStream | Exception) -> None:
        self.streams = list(streams)
        self.connection = Connected()
        self.times = 0

    @asynccontextmanager
    async def open_stream(self, bus: BusAddress, *, name: str) -> AsyncIterator[Any]:
        assert name == "notifier"
        at = min(self.times, len(self.streams) - 1)
        self.times += 1
        stream = self.streams[at]
        if isinstance(stream, Exception):
            raise stream
        yield self.connection, stream


def entries_of(slots: int) -> list[StoredEntry]:
    log = LogWriter(offerings(1))
    for _ in range(slots):
        log.open(ages_s=(OLD_S,))
    return [replace(entry, stored_ns=STORED_NS) for entry in log.entries]


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, opened: Opened, store: Path, *urls: str
) -> AsyncIterator[HealthProbes]:
    monkeypatch.setattr(module, "open_stream", opened.open_stream)
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    monkeypatch.setattr(module, "POLL_S", 0.001)
    probes = HealthProbes()
    told = Notifying(
        targets=[NotifyTarget(name="ops", url=url, secret="s" * 16) for url in urls],
        bus=BusAddress(nats_url="nats://127.0.0.1:1"),
        store=store,
        selector=SelectorOptions(),
    )
    task = asyncio.create_task(
        serve_notifier(told, PartHooks(started=probes.note, health=probes)), name="notifier"
    )
    try:
        yield probes
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_ids_are_those_of_the_installation_whoever_claims_it_later(tmp_path, monkeypatch):
    stream = OwnedStream(looks=3)
    stream.entries = entries_of(3)
    with receiving() as receiver:
        async with serving(monkeypatch, Opened(stream), tmp_path, receiver.url) as probes:
            await eventually(lambda: receiver.posted)
            await eventually(lambda: probes.ready("notifier"))
            assert probes.overall().detail["notifier.applied_seq"] == len(stream.entries)
    (posted,) = receiver.posted
    # As `spotline up` would give it to the same entry.
    begun = next(e for e in stream.entries if e.seq == posted.said["entry"])
    assert posted.said["id"] == alert_id_of(
        INSTALLATION,
        AlertKind.FEED_DEAD,
        AlertState.BEGAN,
        posted.said["subject"],
        begun.envelope().event_id,
    )


async def test_what_waits_is_sent_while_the_log_is_away(tmp_path, monkeypatch):
    first = OwnedStream()
    first.entries = entries_of(3)
    opened = Opened(ProviderUnavailable("no server"), first, ProviderUnavailable("no server"))
    monkeypatch.setattr(delivering_module, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(delivering_module, "_LONGEST_PAUSE_S", 0.001)
    with receiving() as receiver:
        receiver.answers = [(503, {})] * 10_000
        async with serving(monkeypatch, opened, tmp_path, receiver.url) as probes:
            await eventually(lambda: receiver.posted)
            monkeypatch.setattr(first, "last_seq", _away)
            await eventually(lambda: opened.times > 3)
            receiver.answers.clear()
            await eventually(lambda: counts(tmp_path) == {"taken": 1})
            assert not probes.ready("notifier")
    assert len(set(receiver.ids())) == 1


async def _away() -> int:
    raise ProviderUnavailable("no server")


def counts(store: Path) -> dict[str, int]:
    with closing(Outbox(store / OUTBOX_FILE)) as outbox:
        return outbox.counts("ops")


async def test_a_log_that_was_cut_is_folded_again_and_told_no_second_time(tmp_path, monkeypatch):
    cut, after = OwnedStream(), OwnedStream()
    cut.entries = entries_of(2)
    after.entries = cut.entries[:]
    opened = Opened(cut, after)
    with receiving() as receiver:
        async with serving(monkeypatch, opened, tmp_path, receiver.url) as probes:
            await eventually(lambda: counts(tmp_path) == {"taken": 1})
            # It grew again before anybody looked.
            cut.is_cut, cut.entries = True, entries_of(4)
            await eventually(lambda: opened.times == 2)
            after.entries = entries_of(4)
            host = probes.hosts["notifier"]
            await eventually(lambda: host.applied_seq == len(after.entries))
        assert len(receiver.posted) == 1


async def test_with_nobody_to_tell_it_is_well_and_reads_nothing(tmp_path, monkeypatch):
    stream = OwnedStream()
    stream.entries = entries_of(3)
    async with serving(monkeypatch, Opened(stream), tmp_path) as probes:
        await eventually(lambda: probes.ready("notifier"))
        assert probes.overall().detail["notifier.receivers"] == 0
        assert probes.overall().detail["notifier.applied_seq"] == 0


async def test_with_nobody_to_tell_it_comes_back_when_the_broker_does(tmp_path, monkeypatch):
    opened = Opened(OwnedStream())
    async with serving(monkeypatch, opened, tmp_path) as probes:
        await eventually(lambda: probes.ready("notifier"))
        opened.connection.connected = False
        await eventually(lambda: probes.ready("notifier"))
    assert opened.times == 1


async def test_it_is_well_once_it_has_read_all_that_there_is():
    host = NotifierHost(receivers=1)
    assert not host.healthy
    host.place = FollowPlace(applied_seq=3, last_seq=5, stored_ns=1)
    assert (host.backlog, host.healthy) == (2, False)
    assert host.lag_s > 0
    host.place = FollowPlace(applied_seq=5, last_seq=5, stored_ns=1)
    assert (host.backlog, host.healthy, host.lag_s) == (0, True, 0.0)


async def test_a_second_process_does_not_send_from_the_same_outbox(tmp_path):
    told = Notifying(
        targets=[NotifyTarget(name="ops", url="http://127.0.0.1:1/")],
        bus=BusAddress(nats_url="nats://127.0.0.1:1"),
        store=tmp_path,
        selector=SelectorOptions(),
    )
    with delivering(told), pytest.raises(ConfigError, match="no other process sends from"):
        await serve_notifier(told, PartHooks())
    with delivering(told):
        pass


async def test_a_store_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "store").write_text("a file")
    told = Notifying(
        targets=(),
        bus=BusAddress(nats_url="nats://127.0.0.1:1"),
        store=tmp_path / "store",
        selector=SelectorOptions(),
    )
    with pytest.raises(ConfigError, match="expected a folder to write to"):
        await serve_notifier(told, PartHooks())
