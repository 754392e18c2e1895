"""What every cloud promises its port; a new cloud needs its line in CLOUDS and its rig in RIGS."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.application.cloud_actuator.ports import (
    CloudEventKind,
    InstanceState,
    Owner,
    OwnerFenced,
)
from spotline.bootstrap.clouds import CLOUDS
from spotline.contracts.errors import Throttled, UnknownOutcome
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.eventually import PATIENCE_S
from tests.fakes.actuator import OWNER
from tests.fakes.cloud_rigs import RIGS, VERBS, CloudRig

US = Owner(name=OWNER, epoch=1)
OTHERS = Owner(name="somebody-else", epoch=1)
# Our own verdicts: no cloud answers so.
OURS = {RefusalClass.LIMIT, RefusalClass.UNKNOWN_OUTCOME}
UNUSED = {RefusalClass.THROTTLED, RefusalClass.SERVER}


@pytest.fixture(params=sorted(RIGS))
def rig(request, tmp_path):
    made = RIGS[request.param](tmp_path)
    yield made
    made.close()


def ids(instances):
    return [instance.instance_id for instance in instances]


def of_kind(events, kind):
    return [event for event in events if event.kind is kind]


def ends_among(events):
    return {event.instance.instance_id for event in events if event.state is InstanceState.ENDED}


# --- rigs -------------------------------------------------------------------------------------


def test_every_cloud_has_its_rig():
    assert {made.cloud for made in RIGS.values()} == set(CLOUDS), "write the rig of each cloud"


def test_a_rig_does_every_verb_or_says_why_not(rig):
    does = {verb for verb in VERBS if getattr(type(rig), verb) is not getattr(CloudRig, verb)}

    assert set(rig.cannot) <= set(VERBS)
    assert does ^ set(rig.cannot) == set(VERBS)
    assert all(rig.cannot.values())


# --- launches ---------------------------------------------------------------------------------


async def test_a_launch_is_idempotent_by_token_across_processes(rig):
    grants = [await rig.another().launch(rig.request("t", 2)) for _ in range(3)]

    assert grants[0] == grants[1] == grants[2]
    assert len(await rig.running(rig.another())) == 2


async def test_all_is_granted_or_the_rest_is_refused(rig):
    rig.stock(3)
    cloud = rig.another()

    full = await cloud.launch(rig.request("t", 2))
    short = await cloud.launch(rig.request("u", 2))
    none = await cloud.launch(rig.request("v", 2))

    assert (len(full.instances), full.refusal) == (2, None)
    assert [len(grant.instances) for grant in (short, none)] == [1, 0]
    for grant in (short, none):
        assert grant.refusal.refusal_class is RefusalClass.NO_CAPACITY
        assert grant.refusal.detail


async def test_a_short_grant_is_repeated_even_when_stock_has_come_back(rig):
    rig.stock(1)
    request = rig.request("t", 2)
    first = await rig.another().launch(request)
    rig.stock(9)

    assert await rig.another().launch(replace(request, at=rig.at)) == first
    assert len(first.instances) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"instances": 1},
        {"job_id": "k"},
        {"offering_id": "b"},
        {"capacity_type": CapacityType.ON_DEMAND},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_token_with_other_parameters_is_refused_and_launches_nothing(rig, changes):
    cloud = rig.another()
    granted = await cloud.launch(rig.request("t", 2))

    other = await rig.another().launch(replace(rig.request("t", 2), **changes))

    assert other.instances == ()
    assert other.refusal.refusal_class is RefusalClass.TOKEN_MISMATCH
    assert await rig.running(cloud) == ids(granted.instances)
    assert await cloud.launch(rig.request("t", 2)) == granted


async def test_a_token_may_come_again_at_another_time_and_from_a_newer_epoch(rig):
    cloud = rig.another()
    granted = await cloud.launch(rig.request("t", 2))
    rig.pass_time(60)

    again = await cloud.launch(rig.request("t", 2, owner=Owner(name=OWNER, epoch=2)))

    assert again == granted


async def test_instances_outlive_the_process_and_carry_their_tags_in_launch_order(rig):
    cloud = rig.another()
    first = await cloud.launch(rig.request("t", 2))
    second = await cloud.launch(rig.request("u", 1, job_id="k"))
    rig.die()

    shown = await rig.shown(rig.another())

    assert ids(shown) == ids((*first.instances, *second.instances))
    assert {
        (instance.token, instance.job_id, instance.tenant, instance.quota_pool)
        for instance in shown
    } == {
        ("t", "j", "acme", "pool"),
        ("u", "k", "acme", "pool"),
    }
    assert {(instance.offering_id, instance.capacity_type) for instance in shown} == {
        (rig.offering_id, CapacityType.SPOT)
    }
    assert all(instance.state is not InstanceState.ENDED for instance in shown)


async def test_owners_neither_see_nor_end_each_others_instances(rig):
    cloud = rig.another()
    ours = await cloud.launch(rig.request("t", 1))
    theirs = await cloud.launch(rig.request("u", 1, owner=OTHERS))

    await cloud.terminate(OTHERS, ids(ours.instances))

    assert await rig.running(cloud) == ids(ours.instances)
    assert await rig.running(cloud, OTHERS.name) == ids(theirs.instances)


async def test_an_older_epoch_is_fenced(rig):
    rig.needs("fence")
    cloud = rig.another()
    granted = await cloud.launch(rig.request("t", 1, owner=Owner(name=OWNER, epoch=2)))

    with pytest.raises(OwnerFenced):
        await rig.another().launch(rig.request("u", 1))
    with pytest.raises(OwnerFenced):
        await cloud.terminate(US, ids(granted.instances))
    with pytest.raises(OwnerFenced):
        await cloud.terminate(US, ())
    assert await rig.running(cloud) == ids(granted.instances)


# --- refusals and bad answers -----------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal_class",
    sorted(set(RefusalClass) - OURS, key=lambda refusal_class: refusal_class.value),
    ids=lambda refusal_class: refusal_class.value,
)
async def test_a_refusal_is_a_value_with_its_class_and_the_words_of_the_cloud(rig, refusal_class):
    rig.needs("refuse")
    cloud = rig.another()
    rig.refuse(refusal_class, 7)

    grant = await cloud.launch(rig.request("t", 2))
    again = await rig.another().launch(rig.request("t", 2))

    assert grant.instances == ()
    assert grant.refusal.refusal_class is refusal_class
    assert grant.refusal.detail
    assert grant.refusal.retry_after_s == 7
    if refusal_class in UNUSED:
        # It was never worked on: the token is as good as new.
        assert len(again.instances) == 2
    else:
        assert again == grant
    assert len(await rig.running(cloud)) == len(again.instances)


async def is_throttled(call):
    """Whether a call is asked to wait: by its error, or a launch by its refusal."""
    try:
        answer = await call()
    except Throttled as error:
        return error.retry_after_s > 0
    return answer.refusal.refusal_class is RefusalClass.THROTTLED and answer.instances == ()


async def test_a_throttled_call_did_nothing_and_may_be_made_again(rig):
    rig.needs("throttle")
    cloud = rig.another()
    for call in (
        lambda: cloud.launch(rig.request("t", 1)),
        lambda: cloud.list(OWNER),
        lambda: cloud.events("e", rig.at),
        lambda: cloud.terminate(US, ["never-was"]),
    ):
        rig.throttle()
        assert await is_throttled(call)
        await call()

    assert len(await rig.running(cloud)) == 1


async def test_a_launch_whose_answer_was_lost_is_found_by_its_token(rig):
    rig.needs("lose_answer")
    cloud = rig.another()
    rig.lose_answer(launched=True)
    with pytest.raises(UnknownOutcome) as caught:
        await cloud.launch(rig.request("t", 2))

    found = [
        instance
        for instance in await rig.shown(rig.another())
        if instance.token == caught.value.token
    ]

    assert len(found) == 2
    assert {instance.job_id for instance in found} == {"j"}
    # A caller that asks again with the same token gets those.
    assert list((await rig.another().launch(rig.request("t", 2))).instances) == found
    assert await rig.running(cloud) == ids(found)


async def test_a_launch_that_never_arrived_leaves_its_token_free(rig):
    rig.needs("lose_answer")
    cloud = rig.another()
    rig.lose_answer(launched=False)
    with pytest.raises(UnknownOutcome):
        await cloud.launch(rig.request("t", 2))
    assert await rig.running(cloud) == []

    granted = await cloud.launch(rig.request("t", 2))

    assert await rig.running(cloud) == ids(granted.instances)
    assert len(granted.instances) == 2


# --- tags ---------------------------------------------------------------------------------------


async def test_an_instance_shows_whose_installation_launched_it_and_whether_it_is_protected(rig):
    rig.needs("protect")
    cloud = rig.another()
    (ours,) = (await cloud.launch(rig.request("t", 1, installation_id="here"))).instances
    (older,) = (await cloud.launch(rig.request("u", 1))).instances
    rig.protect(older)

    for shown in (await rig.shown(cloud), await rig.shown(rig.another())):
        tags = {one.instance_id: (one.installation_id, one.hold) for one in shown}
        assert tags == {ours.instance_id: ("here", False), older.instance_id: ("", True)}
    assert ours.installation_id == "here"


# --- listings and ends ------------------------------------------------------------------------


async def test_to_terminate_is_to_ask_and_the_end_is_seen(rig):
    cloud = rig.another()
    first, second = (await cloud.launch(rig.request("t", 2))).instances

    for _ in range(2):
        await cloud.terminate(US, [first.instance_id, "never-was"])

    seen = {instance.instance_id: instance.state for instance in await rig.shown(cloud)}
    told = await rig.told(cloud)
    assert first.instance_id in ends_among(told)
    assert seen[first.instance_id] is InstanceState.ENDED
    assert seen[second.instance_id] is not InstanceState.ENDED
    # We ended it, the cloud took nothing.
    assert {
        event.interruption for event in told if event.instance.instance_id == first.instance_id
    } == {None}
    assert second.instance_id not in ends_among(told)


async def test_what_is_unknown_to_the_cloud_is_never_told_as_ended(rig):
    cloud = rig.another()

    await cloud.terminate(US, ["unheard-of"])

    assert "unheard-of" not in ends_among(await rig.told(cloud))
    assert "unheard-of" not in ids(await rig.shown(cloud))


async def test_a_listing_may_stay_behind_and_comes_round(rig):
    rig.needs("lag")
    rig.lag(listings=1, seconds=30)
    cloud = rig.another()
    (instance,) = (await cloud.launch(rig.request("t", 1))).instances

    assert [len(await cloud.list(OWNER)) for _ in range(2)] == [0, 0]
    rig.pass_time(30)
    assert ids(await cloud.list(OWNER)) == [instance.instance_id]

    await cloud.terminate(US, [instance.instance_id])
    assert [instance.state for instance in await cloud.list(OWNER)] == [InstanceState.STOPPING]
    rig.pass_time(30)
    assert [instance.state for instance in await cloud.list(OWNER)] == [InstanceState.ENDED]


# --- what a cloud tells -----------------------------------------------------------------------


async def test_capacity_wanted_back_is_noticed_then_ended_and_shown_so(rig):
    rig.needs("reclaim")
    cloud = rig.another()
    rig.stock(4)
    granted = (await cloud.launch(rig.request("t", 4))).instances
    rig.reclaim(1)

    told = await rig.told(cloud)

    theirs = [event for event in told if event.instance.instance_id in ids(granted)]
    noticed = {
        event.instance.instance_id: event for event in of_kind(theirs, CloudEventKind.NOTICE)
    }
    ended = {
        event.instance.instance_id: event
        for event in of_kind(theirs, CloudEventKind.STATE)
        if event.state is InstanceState.ENDED
    }
    assert len(noticed) == len(ended) == 3
    for instance_id, notice in noticed.items():
        end = ended[instance_id]
        assert notice.lead_s >= cloud.notice_lead_s
        assert end.at_ns >= notice.at_ns + notice.lead_s * NS_PER_S
        assert end.state is InstanceState.ENDED
        assert {end.interruption, notice.interruption} == {InterruptionKind.CAPACITY_RECLAIMED}
    states = {instance.instance_id: instance.state for instance in await rig.shown(cloud)}
    assert {name for name, state in states.items() if state is InstanceState.ENDED} == set(ended)
    assert len(await rig.running(cloud)) == 1


async def test_a_loss_without_notice_is_told_and_shown(rig):
    rig.needs("take_away")
    cloud = rig.another()
    first, second = (await cloud.launch(rig.request("t", 2))).instances

    rig.take_away(first)

    told = await rig.told(cloud)
    assert ends_among(told) & set(ids((first, second))) == {first.instance_id}
    assert of_kind(told, CloudEventKind.NOTICE) == []
    assert await rig.running(cloud) == [second.instance_id]


async def test_events_are_idempotent_by_token_across_processes(rig):
    rig.needs("take_away")
    cloud = rig.another()
    first, second = (await cloud.launch(rig.request("t", 2))).instances
    at = rig.at

    nothing = await cloud.events("nothing", at)
    rig.take_away(first)
    await rig.settled()
    something = await cloud.events("something", at)
    rig.take_away(second)

    assert await rig.another().events("nothing", at) == nothing
    assert await rig.another().events("something", at) == something
    assert first.instance_id in ends_among(something)
    assert second.instance_id not in ends_among(something)
    assert second.instance_id in ends_among(await rig.told(cloud))


async def test_what_is_told_twice_has_one_id_and_says_the_same(rig):
    rig.needs("double", "reclaim")
    rig.double()
    cloud = rig.another()
    rig.stock(2)
    await cloud.launch(rig.request("t", 2))
    rig.reclaim(0)

    notices = of_kind(await rig.told(cloud), CloudEventKind.NOTICE)

    assert len(notices) > 2
    by_id = {event.event_id: event for event in notices}
    assert len(by_id) == 2
    assert all(event == by_id[event.event_id] for event in notices)


async def woken(waiting, turns=20):
    """Whether a task is done after some turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return waiting.done()


async def test_nobody_is_woken_while_there_is_nothing_to_tell(rig):
    cloud = rig.another()
    await cloud.launch(rig.request("t", 1))
    await rig.told(cloud)

    waiting = asyncio.create_task(cloud.pushed())

    assert not await woken(waiting)
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_pushed_notice_wakes_who_waits_and_is_told(rig):
    rig.needs("push_notice")
    cloud = rig.another()
    (instance,) = (await cloud.launch(rig.request("t", 1))).instances
    waiting = asyncio.create_task(cloud.pushed())
    assert not await woken(waiting)

    rig.push_notice(instance, 90)

    async with asyncio.timeout(PATIENCE_S):
        await waiting
    (notice,) = of_kind(await rig.taken(cloud), CloudEventKind.NOTICE)
    assert (notice.instance.instance_id, notice.lead_s) == (instance.instance_id, 90)
    again = asyncio.create_task(cloud.pushed())
    assert not await woken(again)
    again.cancel()
    await asyncio.wait([again])


# --- the law of it ----------------------------------------------------------------------------

TOKENS = tuple(f"t{number}" for number in range(4))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("launch"), st.integers(0, 3)),
        st.tuples(st.just("terminate"), st.integers(0, 9)),
        st.tuples(st.just("stock"), st.integers(0, 6)),
        st.tuples(st.just("lose"), st.booleans()),
        st.tuples(st.just("throttle"), st.none()),
        st.tuples(st.just("take_away"), st.integers(0, 9)),
        st.tuples(st.just("list"), st.none()),
        st.tuples(st.just("events"), st.none()),
    ),
    max_size=14,
)


class Told:
    """What a cloud has said in a run, and what must never change of it."""

    def __init__(self, rig, cloud):
        self.rig, self.cloud = rig, cloud
        self.granted, self.ended, self.events = {}, set(), {}
        self.ended_for_good = set()

    async def step(self, word, value):
        known = [instance for grant in self.granted.values() for instance in grant.instances]
        match word:
            case "launch":
                token = f"t{value}"
                # Its count belongs to its token: else it is another launch.
                grant = await self.cloud.launch(self.rig.request(token, value + 1))
                assert self.granted.setdefault(token, grant) == grant
                assert (len(grant.instances) < value + 1) == (grant.refusal is not None)
            case "terminate" if known:
                instance = known[value % len(known)]
                await self.cloud.terminate(US, [instance.instance_id])
                self.ended.add(instance.instance_id)
            case "take_away" if known:
                self.rig.take_away(known[value % len(known)])
                self.ended.add(known[value % len(known)].instance_id)
            case "stock":
                self.rig.stock(value)
            case "lose" if "lose_answer" not in self.rig.cannot:
                self.rig.lose_answer(launched=value)
            case "throttle" if "throttle" not in self.rig.cannot:
                self.rig.throttle()
            case "list":
                self.listed(await self.cloud.list(OWNER))
            case "events":
                self.heard(await self.rig.taken(self.cloud))

    def listed(self, shown):
        for instance in shown:
            if instance.instance_id in self.ended_for_good:
                assert instance.state is InstanceState.ENDED, "it came back to life"
        self.ended_for_good |= {
            instance.instance_id for instance in shown if instance.state is InstanceState.ENDED
        }

    def heard(self, events):
        for event in events:
            assert self.events.setdefault(event.event_id, event) == event
            if event.state is InstanceState.ENDED:
                self.ended.add(event.instance.instance_id)


@pytest.mark.parametrize("name", sorted(RIGS))
def test_whatever_happens_no_token_launches_more_than_it_asked_for(name):
    @settings(
        max_examples=RIGS[name].examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(steps=STEPS)
    def story(steps):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(run(Path(folder), steps))

    async def run(folder, steps):
        rig = RIGS[name](folder)
        try:
            told = Told(rig, rig.another())
            for word, value in steps:
                try:
                    await told.step(word, value)
                except (UnknownOutcome, Throttled):
                    continue
            rig.pass_time(1)
            for _ in range(3):
                try:
                    told.heard(await rig.told(told.cloud))
                    told.listed(await rig.shown(told.cloud))
                except Throttled:
                    continue
            shown = await rig.shown(rig.another())
            by_token = {
                token: [instance for instance in shown if instance.token == token]
                for token in TOKENS
            }
            for number, token in enumerate(TOKENS):
                assert len(by_token[token]) <= number + 1
            running = {
                instance.instance_id
                for instance in shown
                if instance.state is not InstanceState.ENDED
            }
            granted = {
                instance.instance_id
                for grant in told.granted.values()
                for instance in grant.instances
            }
            assert granted - told.ended <= running
            assert not running & told.ended
        finally:
            rig.close()

    story()
