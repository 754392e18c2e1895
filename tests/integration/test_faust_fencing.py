"""A worker of an earlier epoch can neither commit nor change a table."""

import asyncio

import pytest
from faust.types import TP

from spotline.adapters.faust.bucket import Bucket, Conflict
from spotline.adapters.faust.changelog import Fences
from spotline.adapters.faust.names import fence_subject, subject_of
from spotline.adapters.faust.offsets import Fenced, Offsets
from spotline.adapters.faust.publisher import Publisher, PublishRefused
from spotline.adapters.faust.session import Session
from spotline.adapters.faust.topics import Topics
from tests.eventually import PATIENCE_S, eventually

pytestmark = pytest.mark.integration

SOURCE, CHANGELOG = TP("source", 0), TP("table-changelog", 0)


@pytest.fixture
async def session(broker, nats_connection):
    opened = Session(broker.url, name="test")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def bucket(session):
    made = Bucket(session, "FAUST_fencing")
    await made.open()
    return made


async def test_commits_of_the_owner_before_are_refused_once_the_next_has_claimed(bucket):
    before, after = Offsets(bucket), Offsets(bucket)
    await before.claim({SOURCE: 1})
    assert await before.commit({SOURCE: 10}) == frozenset()

    await after.claim({SOURCE: 2})

    assert after.committed(SOURCE) == 10
    assert await before.commit({SOURCE: 20}) == {SOURCE}
    assert await after.commit({SOURCE: 15}) == frozenset()
    third = Offsets(bucket)
    await third.claim({SOURCE: 3})
    assert third.committed(SOURCE) == 15


async def test_a_worker_that_learned_late_cannot_claim_back(bucket):
    await Offsets(bucket).claim({SOURCE: 2})

    with pytest.raises(Fenced, match="owned in epoch 2, mine is 1"):
        await Offsets(bucket).claim({SOURCE: 1})


async def test_a_commit_whose_answer_was_lost_is_recognised_as_ones_own(bucket):
    offsets = Offsets(bucket)
    await offsets.claim({SOURCE: 1})
    offsets._revisions[SOURCE] -= 1

    assert await offsets.commit({SOURCE: 7}) == frozenset()
    assert offsets.committed(SOURCE) == 7


async def test_a_key_is_only_replaced_at_the_revision_that_was_read(bucket):
    first = await bucket.put("key", b"1", revision=0)
    await bucket.put("key", b"2", revision=first)

    with pytest.raises(Conflict):
        await bucket.put("key", b"3", revision=first)
    assert (await bucket.get("key")).content == b"2"


async def test_changes_of_the_owner_before_are_refused_once_the_next_has_a_fence(session):
    await Topics(session).create(CHANGELOG.topic, 1, compacting=True, retention_s=3600.0)
    publisher = Publisher(session, patience_s=PATIENCE_S)
    subject = subject_of(*CHANGELOG, b"key")
    before, after = Fences(session), Fences(session)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(publisher.run())
        await before.raise_(CHANGELOG, 1)
        await (await publisher.send(subject, b"1", before.condition(CHANGELOG)))

        await after.raise_(CHANGELOG, 2)

        with pytest.raises(PublishRefused, match="wrong last sequence"):
            await (await publisher.send(subject, b"2", before.condition(CHANGELOG)))
        stored = [await publisher.send(subject, b"3", after.condition(CHANGELOG)) for _ in range(9)]
        await asyncio.gather(*stored)
        await eventually(lambda: publisher.in_flight == 0)
        running.cancel()
    last = await session.ask(lambda js: js.get_msg(f"FAUST_{CHANGELOG.topic}", subject=subject))
    assert last.data == b"3"


async def test_a_fence_that_comes_late_does_not_shut_out_the_next_owner(session):
    await Topics(session).create(CHANGELOG.topic, 1, compacting=True, retention_s=3600.0)
    late, owner = Fences(session), Fences(session)
    read = await late._last(CHANGELOG)
    await owner.raise_(CHANGELOG, 2)

    with pytest.raises(Fenced, match="written in epoch 2, mine is 1"):
        await late.raise_(CHANGELOG, 1)
    # Also if it had looked before, and was slow.
    assert await late._replace(fence_subject(*CHANGELOG), 1, read[1]) is None

    link = await session.link()
    subject = subject_of(*CHANGELOG, b"key")
    ack = await link.client.jetstream().publish(
        subject, b"1", headers=dict(owner.condition(CHANGELOG))
    )
    assert ack.seq == 2


async def test_a_fence_whose_answer_was_lost_is_raised_again(session):
    await Topics(session).create(CHANGELOG.topic, 1, compacting=True, retention_s=3600.0)
    await Fences(session).raise_(CHANGELOG, 1)

    fences = Fences(session)
    await fences.raise_(CHANGELOG, 1)

    assert fences.condition(CHANGELOG)["Nats-Expected-Last-Subject-Sequence"] == "2"


def test_a_refusal_of_a_lease_before_says_nothing_of_this_one():
    fences = Fences(None)
    told = []
    fences.on_refused = told.append
    fences._conditions[CHANGELOG] = {"sequence": "2"}

    fences.refused(CHANGELOG, {"sequence": "1"})
    assert told == []
    fences.refused(CHANGELOG, {"sequence": "2"})

    assert told == [CHANGELOG]
    assert fences.condition(CHANGELOG) is None
