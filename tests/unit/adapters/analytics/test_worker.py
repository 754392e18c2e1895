"""What a worker of the analytics does with its log and its tables, without a broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spotline.adapters.analytics.source import SourcedEntry, SourcedEvent
from spotline.adapters.analytics.worker import Analytics, AnalyticsSettings
from spotline.application.analytics.messages import StatisticsQuery, StatisticsScope
from spotline.application.analytics.store import LateCounts, StatisticsStore
from spotline.contracts.build import event_of
from tests.fakes.statistics_log import generated, stored

QUERY = StatisticsQuery(scope=StatisticsScope.TENANT, key="*")


class Log:
    """A stream that keeps what is issued."""

    def __init__(self) -> None:
        self.issued: list[str] = []

    async def first_seq_since(self, stored_ns):
        return 1

    async def last_seq(self):
        return len(self.issued)

    async def read(self, subjects, *, first_seq, last_seq):
        for event_id in list(self.issued):
            yield SimpleNamespace(headers={"ce-id": event_id})

    async def publish(self, envelopes):
        self.issued.extend(one.event_id for one in envelopes)
        return [0] * len(envelopes)


@pytest.fixture
def started(monkeypatch):
    """Makes a worker that holds `log`, with these tables."""
    monkeypatch.setattr(Analytics, "ready", property(lambda self: True))
    monkeypatch.setattr(Analytics, "_committed_seq", lambda self: 0)

    def start(log, store):
        worker = Analytics(AnalyticsSettings(nats_url="nats://127.0.0.1:1"), Log(), log)
        worker._store = store
        return worker

    return start


def sourced():
    log = generated(3, slots=30, slot_s=1800)
    return [
        SourcedEntry((SourcedEvent(event_of(one), 0, one),), one.seq, one.stored_ns)
        for one in stored(log, range(len(log)))
    ]


async def test_query_before_the_first_entry_lets_nothing_be_issued_twice(started):
    entries, log = sourced(), Log()
    first = started(log, StatisticsStore())
    for entry in entries:
        await first._handle(entry)
    issued = list(log.issued)

    # Killed before tables and offset were written, it goes on from the beginning.
    second = started(log, StatisticsStore())
    second.query(QUERY)
    for entry in entries:
        await second._handle(entry)

    assert issued
    assert log.issued == issued


async def test_query_before_the_first_entry_says_what_was_known(started):
    store = StatisticsStore()
    LateCounts(seq=3, merged=5, dropped=7).note(store)
    first = started(Log(), store)
    for entry in sourced():
        await first._handle(entry)

    page = started(Log(), store).query(QUERY)

    assert page.platform
    assert page == first.query(QUERY)
    assert page.watermark_ns > 0
    assert (page.late_merged, page.late_dropped) == (5, 7)


async def test_late_observations_are_no_reading_before_they_are_known(started):
    store = StatisticsStore()
    LateCounts(seq=9, merged=50, dropped=7).note(store)
    worker = started(Log(), store)

    before = list(worker._late())
    await worker._handle(sourced()[0])

    assert before == []
    assert [value for value, _ in worker._late()] == [50, 7]


async def test_log_lost_while_the_fold_is_loaded_is_not_folded(started):
    store, entries, log = StatisticsStore(), sourced(), Log()
    first = started(Log(), store)
    for entry in entries[:-1]:
        await first._handle(entry)
    second = started(log, store)

    async def lose(seq):
        await second._revoked()
        return 0

    log.last_seq = lambda: lose(0)
    await second._handle(entries[-1])

    assert second._fold is None
    assert second.counters.handled == 0
