"""Changes as server-sent events: order, ids, going on behind one, and readers that fall behind."""

from __future__ import annotations

import asyncio
import json

import pytest

from spotline.adapters.web.changes import RecentChanges
from spotline.adapters.web.streaming import events_of
from spotline.application.read_model.messages import LogPlace, ViewChange, WatchQuery
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason
from tests.fakes.allocator import slot_opened
from tests.fakes.web import EventReader, running_web
from tests.unit.adapters.web.test_app import JOBS, advanced, market, submitted


def changes(count=0, *, most=100):
    async def as_it_is(change):
        return change

    kept = RecentChanges(as_it_is, most=most)
    for seq in range(1, count + 1):
        kept.note(change(seq))
    return kept


def change(seq, job_id="", tenant=""):
    return ViewChange(place=LogPlace(seq=seq), change="x", job_id=job_id, tenant=tenant)


async def read(watch, count):
    return [(await watch.next()).place.seq for _ in range(count)]


# --- the ring -----------------------------------------------------------------------------------


async def test_a_reader_goes_on_behind_its_last_event_with_nothing_left_out():
    kept = changes(5)

    assert await read(kept.watch(WatchQuery(after=LogPlace(seq=2, part=1))), 3) == [3, 4, 5]
    assert await read(kept.watch(WatchQuery(after=LogPlace(seq=0))), 5) == [1, 2, 3, 4, 5]

    from_now = kept.watch(WatchQuery())
    kept.note(change(6))
    assert await read(from_now, 1) == [6]


async def test_changes_of_one_entry_have_places_of_their_own():
    kept = changes()
    for _ in range(3):
        kept.note(change(7))
    watch = kept.watch(WatchQuery(after=LogPlace(seq=7, part=1)))

    assert [(await watch.next()).place for _ in range(2)] == [
        LogPlace(seq=7, part=2),
        LogPlace(seq=7, part=3),
    ]


async def test_a_reader_that_falls_behind_is_dropped_with_a_reason():
    kept = changes(1, most=10)
    watch = kept.watch(WatchQuery(after=LogPlace(seq=0)))
    for seq in range(2, 14):
        kept.note(change(seq))

    with pytest.raises(ViewRefused, match="more than 10 changes behind") as refused:
        await watch.next()
    assert refused.value.reason is Reason.WATCH_TOO_SLOW


def test_a_place_that_is_not_kept_any_more_is_refused():
    kept = changes(25, most=10)

    with pytest.raises(ViewRefused, match="expected a place from 16-1 on"):
        kept.watch(WatchQuery(after=LogPlace(seq=3)))
    with pytest.raises(ViewRefused, match="expected a place up to 25-1"):
        kept.watch(WatchQuery(after=LogPlace(seq=26)))


async def test_a_reader_gets_what_it_asked_for_and_the_market():
    kept = changes()
    for told in (change(1, "a", "t"), change(2), change(3, "b", "t"), change(4, "c", "u")):
        kept.note(told)
    start = LogPlace(seq=0)

    assert await read(kept.watch(WatchQuery(job_id="b", after=start)), 2) == [2, 3]
    assert await read(kept.watch(WatchQuery(tenant="t", after=start)), 3) == [1, 2, 3]


async def test_the_end_of_the_server_ends_a_stream_with_a_reason():
    kept = changes(1)
    events = events_of(kept.watch(WatchQuery(after=LogPlace(seq=0))))
    kept.end()

    told = [event async for event in events]
    assert told[0].startswith("retry: ")
    assert "id: 1-1\nevent: change\n" in told[1]
    assert told[2].startswith("event: end\n")
    assert "SERVER_STOPPING" in told[2]
    assert "id:" not in told[2].partition("data:")[0]


async def test_a_quiet_stream_says_that_it_is_there():
    events = events_of(changes().watch(WatchQuery()), quiet_s=0.01)

    assert (await anext(events)).startswith("retry: ")
    assert (await anext(events)).startswith(": ")
    await events.aclose()


# --- over HTTP ----------------------------------------------------------------------------------


async def test_each_change_is_an_event_with_the_view_as_it_is_then():
    async with running_web() as web:
        market(web)
        reader = await asyncio.to_thread(EventReader, web.port, "/v1/watch")
        assert reader.response.headers["content-type"].startswith("text/event-stream")
        web.host.feed(submitted(JOBS[0]), advanced(JOBS[0]), slot_opened(1))

        told = [await asyncio.to_thread(reader.next) for _ in range(3)]
        await asyncio.to_thread(reader.close)

        said = [json.loads(event["data"]) for event in told]
        assert [event["event"] for event in told] == ["change"] * 3
        assert [event["id"] for event in told] == ["3-1", "4-1", "5-1"]
        assert [one["change"] for one in said] == ["job.submitted", "job.advanced", "market.slot"]
        assert said[0]["text"].startswith("submitted: 8")
        assert said[0]["ts_event"] == "2026-03-01T00:00:00Z"
        assert said[0]["view"]["phase"] == "waiting"
        assert said[2]["job_id"] is None
        assert said[2]["clock"]["slot"] == 1


async def test_a_reader_that_comes_again_gets_what_it_missed():
    async with running_web() as web:
        market(web)
        web.host.feed(submitted(JOBS[0]), submitted(JOBS[1]), advanced(JOBS[0]))
        headers = {"Last-Event-ID": "3-1"}
        reader = await asyncio.to_thread(EventReader, web.port, "/v1/watch?after=0", headers)
        told = [await asyncio.to_thread(reader.next) for _ in range(2)]
        await asyncio.to_thread(reader.close)

        assert [event["id"] for event in told] == ["4-1", "5-1"]


async def test_a_stopping_server_says_so_to_those_who_follow():
    async with running_web() as web:
        market(web)
        reader = await asyncio.to_thread(EventReader, web.port, "/v1/watch?after=0")
        for _ in range(2):
            await asyncio.to_thread(reader.next)
        await web.server.stop()
        told = await asyncio.to_thread(reader.next)
        await asyncio.to_thread(reader.close)

        assert told["event"] == "end"
        assert json.loads(told["data"])["reason"] == "SERVER_STOPPING"
