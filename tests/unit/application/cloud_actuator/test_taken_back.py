"""Spot under notice is not ended where its provider takes it back for nothing."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.taken_back import LATE_S, LEFT, LeftToProvider
from spotline.domain.events.capacity import InterruptionNoticed
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.cooldowns import OfferingPlace
from spotline.domain.ledger.instance_life import Graces, InstanceLife, LifeState
from spotline.domain.ledger.intents import HeldInstance
from spotline.domain.market.offering import AWS_BILLING, CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import SLOT_S, Rig, lot, moment, opened, quote, reported
from tests.fakes.renting import offering

LATE_START_S = 1800


async def noticed_and_released(directory, *, billing, start_s=LATE_START_S):
    """Four instances of which the market wants three back, and of which the job keeps one."""
    rig = Rig(directory)
    await rig.feed(
        MarketOpened(
            offerings=(replace(offering("a"), billing=billing),),
            slot_s=SLOT_S,
            first_slot_start_ns=0,
            source="t",
        )
    )
    await rig.feed(opened(0, quote(spot=4)))
    await rig.decide(0, 0, 0, [])
    await rig.decide(0, 1, start_s, [("j", lot(spot=4))])
    opening = await rig.feed(opened(1, quote(spot=1)))
    (notice,) = [event for event in opening if isinstance(event, InterruptionNoticed)]
    report = reported(await rig.decide(1, 0, 0, [("j", lot(spot=1))]))
    return rig, set(notice.instance_ids), report


def taken_by_the_cloud(directory):
    with closing(sqlite3.connect(directory / "cloud.sqlite")) as store:
        rows = store.execute("SELECT instance_id FROM instances WHERE state = 'lost'").fetchall()
    return {instance_id for (instance_id,) in rows}


def reasons(directory):
    with closing(sqlite3.connect(directory / "ledger.sqlite")) as store:
        found = store.execute("SELECT instance_id, end_reason FROM instances").fetchall()
    return dict(found)


async def test_released_under_notice_in_the_free_hour_is_left_to_be_taken(tmp_path):
    rig, noticed, report = await noticed_and_released(tmp_path, billing=AWS_BILLING)

    await rig.run_slot(opened(2, quote(spot=1)), [("j", lot(spot=1))])

    # It was held no more from the release on, as if it had been ended.
    assert report.settled
    assert sum(len(holding.instance_ids) for holding in report.holdings) == 1
    assert taken_by_the_cloud(tmp_path) == noticed
    assert {one for one, reason in reasons(tmp_path).items() if reason == LEFT} == noticed
    assert all(one.state is LifeState.ENDED for one in await rig.lives_of(*noticed))
    rig.close()


@pytest.mark.parametrize(
    ("billing", "start_s"),
    [(None, LATE_START_S), (AWS_BILLING, 60)],
    ids=["no such rule is stated", "its free hour is over by then"],
)
async def test_what_is_released_is_ended_where_leaving_it_saves_nothing(tmp_path, billing, start_s):
    rig, noticed, _ = await noticed_and_released(tmp_path, billing=billing, start_s=start_s)

    await rig.run_slot(opened(2, quote(spot=1)), [("j", lot(spot=1))])

    assert taken_by_the_cloud(tmp_path) == set()
    assert {reasons(tmp_path)[instance_id] for instance_id in noticed} == {"released"}
    rig.close()


def held_under_notice(**said):
    return replace(
        HeldInstance(
            instance_id="i-1",
            job_id="j",
            tenant="acme",
            quota_pool="pool",
            offering_id="a",
            capacity_type=CapacityType.SPOT,
            order=1,
            start_slot=0,
        ),
        **said,
    )


def lives_at(now_s, state=LifeState.NOTICED):
    noticed = InstanceLife(
        instance_id="i-1",
        token="t",
        command_id="c",
        attempt=0,
        job_id="j",
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        capacity_type=CapacityType.SPOT,
        state=state,
        since_ns=100 * NS_PER_S,
    )
    return LivesInHand([noticed], Graces(), now_s * NS_PER_S)


PLACES = {
    "a": OfferingPlace(offering_id="a", zone="z", account="x", billing=AWS_BILLING, announced_s=120)
}


@pytest.mark.parametrize(
    ("held", "state", "free"),
    [
        (held_under_notice(), LifeState.NOTICED, True),
        (held_under_notice(), LifeState.RUNNING, False),
        (held_under_notice(capacity_type=CapacityType.ON_DEMAND), LifeState.NOTICED, False),
        (held_under_notice(offering_id="b"), LifeState.NOTICED, False),
        (held_under_notice(start_slot=-1), LifeState.NOTICED, False),
    ],
)
def test_only_noticed_spot_of_known_age_and_rules_is_left(held, state, free):
    found = LeftToProvider().free([held], lives_at(110, state), PLACES, moment(0, 110))

    assert bool(found) == free


def test_what_is_not_taken_in_time_is_ended_after_all():
    left = LeftToProvider()
    left.leave(left.free([held_under_notice()], lives_at(110), PLACES, moment(0, 110)))
    due_s = 100 + 120 + LATE_S

    assert left.next_look_ns == due_s * NS_PER_S
    assert set(left.left(lives_at(due_s - 1))) == {"i-1"}
    assert set(left.left(lives_at(due_s))) == set()
    assert left.next_look_ns is None


def test_what_was_taken_is_waited_for_no_more():
    left = LeftToProvider()
    left.leave({"i-1": 10**18})

    assert set(left.left(lives_at(110, LifeState.ENDED))) == set()
