"""AWS as a cloud, its answers scripted: what is asked once, what is asked again, what is believed."""

import asyncio
import contextlib
import json
import time
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spotline.adapters.clouds.aws import queues
from spotline.adapters.clouds.aws.cloud import KEPT_S, AwsCloud
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.adapters.clouds.aws.launches import TOKEN_AGE_S
from spotline.adapters.clouds.aws.readings import readings_of
from spotline.application.cloud_actuator.listings import silent_in
from spotline.application.cloud_actuator.ports import (
    CloudEventKind,
    InstanceState,
    Owner,
)
from spotline.contracts.errors import ProviderUnavailable, Throttled, UnknownOutcome
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.actuator import OWNER, launch, moment
from tests.fakes.aws_api import (
    OFFERING_ID,
    SETTINGS,
    START,
    START_NS,
    ScriptedApi,
    StandingClock,
    fleet,
    instance,
    page,
)

US = Owner(name=OWNER, epoch=1)
EXPIRED = AwsRefused("ExpiredToken", "the security token has expired")


class Aws:
    """The cloud on a file, its script and its clock."""

    def __init__(self, folder):
        self.folder, self.api, self.clock = folder, ScriptedApi(), StandingClock()
        self._opened = []

    def another(self):
        cloud = AwsCloud(self.folder / "aws.sqlite", SETTINGS, self.api, self.clock)
        self._opened.append(cloud)
        return cloud

    def opened(self, cloud):
        self._opened.append(cloud)

    def close(self):
        for cloud in self._opened:
            cloud.close()


@pytest.fixture
def aws(tmp_path):
    made = Aws(tmp_path)
    yield made
    made.close()


@pytest.fixture
def cloud(aws):
    return aws.another()


def request(token="t", instances=2, **changes):
    return replace(launch(token, instances), **{"offering_id": OFFERING_ID, **changes})


def ids(instances):
    return [one.instance_id for one in instances]


# --- launches -------------------------------------------------------------------------------------


async def test_a_launch_is_one_fleet_whoever_asks_again(aws, cloud):
    aws.api.will("create_fleet", fleet("i-1", "i-2"))

    first = await cloud.launch(request())
    again = await aws.another().launch(request(owner=Owner(name=OWNER, epoch=2)))

    assert ids(first.instances) == ["i-1", "i-2"]
    assert {one.state for one in first.instances} == {InstanceState.PENDING}
    assert again == first
    assert len(aws.api.of("create_fleet")) == 1


async def test_a_lost_answer_is_asked_for_word_for_word_also_by_a_newer_epoch(aws, cloud):
    aws.api.will("create_fleet", NoAnswer("reset"), fleet("i-1", "i-2"))
    with pytest.raises(UnknownOutcome):
        await cloud.launch(request())

    granted = await aws.another().launch(request(owner=Owner(name=OWNER, epoch=2)))

    first, second = aws.api.of("create_fleet")
    assert first == second
    assert ids(granted.instances) == ["i-1", "i-2"]


async def test_a_token_that_aws_may_have_forgotten_is_looked_up_and_never_sent_again(aws, cloud):
    aws.api.will("create_fleet", NoAnswer("reset"))
    with pytest.raises(UnknownOutcome):
        await cloud.launch(request())
    aws.clock.pass_s(TOKEN_AGE_S)

    with pytest.raises(UnknownOutcome):
        await cloud.launch(request())
    aws.api.will("describe_instances", page(instance("i-1"), instance("i-2")))
    granted = await cloud.launch(request())

    assert ids(granted.instances) == ["i-1", "i-2"]
    assert len(aws.api.of("create_fleet")) == 1


async def test_what_never_got_there_is_asked_for_again(aws, cloud):
    aws.api.will("create_fleet", NotReached("refused"), fleet("i-1"))

    with pytest.raises(ProviderUnavailable):
        await cloud.launch(request(instances=1))

    assert ids((await cloud.launch(request(instances=1))).instances) == ["i-1"]


async def test_what_makes_no_count_is_released_at_once_and_the_grant_says_so(aws, cloud):
    short = ("InsufficientInstanceCapacity", "no more")
    aws.api.will("create_fleet", fleet("i-1", "i-2", "i-3", errors=(short,)))

    grant = await cloud.launch(request(instances=4, allowed_counts=(2, 4)))

    assert ids(grant.instances) == ["i-1", "i-2"]
    assert ids(grant.released) == ["i-3"]
    assert grant.refusal.refusal_class is RefusalClass.NO_CAPACITY
    assert "1 of 3 released: of use are 2, 4" in grant.refusal.detail
    assert [call["InstanceIds"] for call in aws.api.of("terminate_instances")] == [["i-3"]]


async def test_a_release_that_was_cut_off_is_made_when_the_launch_is_asked_for_again(aws, cloud):
    aws.api.will("create_fleet", fleet("i-1", errors=(("UnfulfillableCapacity", "no"),)))
    aws.api.will("terminate_instances", NoAnswer("killed"))
    with pytest.raises(ProviderUnavailable):
        await cloud.launch(request(instances=2, allowed_counts=(2,)))

    grant = await aws.another().launch(request(instances=2, allowed_counts=(2,)))
    once_more = await aws.another().launch(request(instances=2, allowed_counts=(2,)))

    assert grant == once_more
    assert (grant.instances, ids(grant.released)) == ((), ["i-1"])
    assert len(aws.api.of("terminate_instances")) == 2


async def test_an_empty_fleet_for_a_passing_reason_leaves_our_token_free(aws, cloud):
    aws.api.will("create_fleet", fleet(errors=(("RequestLimitExceeded", "slower"),)), fleet("i-1"))

    refused = await cloud.launch(request(instances=1))
    granted = await cloud.launch(request(instances=1))

    assert refused.refusal.refusal_class is RefusalClass.THROTTLED
    assert ids(granted.instances) == ["i-1"]
    first, second = (call["ClientToken"] for call in aws.api.of("create_fleet"))
    assert first != second


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError"])
async def test_a_call_refused_for_a_passing_reason_is_sent_again_with_its_token(aws, cloud, code):
    aws.api.will("create_fleet", AwsRefused(code, "later", status=503), fleet("i-1"))

    await cloud.launch(request(instances=1))
    granted = await cloud.launch(request(instances=1))

    assert ids(granted.instances) == ["i-1"]
    first, second = aws.api.of("create_fleet")
    assert first == second


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidLaunchTemplateId.NotFoundException"])
async def test_a_no_that_comes_before_aws_looks_at_the_token_says_nothing_of_what_was_lost(
    aws, cloud, code
):
    aws.api.will("create_fleet", NoAnswer("killed"), AwsRefused(code, "no"), fleet("i-1"))
    with pytest.raises(UnknownOutcome):
        await cloud.launch(request(instances=1))

    with pytest.raises(UnknownOutcome, match=code.partition(".")[0]):
        await aws.another().launch(request(instances=1))
    granted = await aws.another().launch(request(instances=1))

    assert ids(granted.instances) == ["i-1"]


async def test_no_capacity_for_a_token_that_was_sent_before_is_its_answer(aws, cloud):
    short = AwsRefused("InsufficientInstanceCapacity", "none")
    aws.api.will("create_fleet", NoAnswer("killed"), short, fleet("i-1"))
    with pytest.raises(UnknownOutcome):
        await cloud.launch(request(instances=1))

    answers = [await cloud.launch(request(instances=1)) for _ in range(2)]

    assert {grant.refusal.refusal_class for grant in answers} == {RefusalClass.NO_CAPACITY}
    assert len(aws.api.of("create_fleet")) == 2


async def test_an_account_without_the_role_of_spot_is_not_asked_for_spot_again(aws, cloud):
    aws.api.will("create_fleet", AwsRefused("ServiceLinkedRoleCreationNotPermitted", "no role"))
    first = await cloud.launch(request("t", 1))
    second = await cloud.launch(request("u", 1))
    aws.api.will("create_fleet", fleet("i-1"))
    on_demand = await cloud.launch(request("v", 1, capacity_type=CapacityType.ON_DEMAND))

    for refused in (first, second):
        assert refused.refusal.refusal_class is RefusalClass.UNAUTHORISED
        assert refused.refusal.spot_only
    assert ids(on_demand.instances) == ["i-1"]
    assert len(aws.api.of("create_fleet")) == 2


async def test_an_offering_that_the_settings_lack_is_not_asked_for(aws, cloud):
    grant = await cloud.launch(request(offering_id="aws:default:use1-az9:p9"))

    assert grant.refusal.refusal_class is RefusalClass.UNSUPPORTED
    assert "aws:default:use1-az9:p9" in grant.refusal.detail
    assert aws.api.asked == []


async def test_nothing_is_launched_in_a_zone_that_is_impaired(aws, cloud):
    aws.api.will(
        "describe_availability_zones",
        {"AvailabilityZones": [{"ZoneId": "use1-az1", "ZoneName": "a", "State": "impaired"}]},
    )
    await cloud.list(OWNER)

    grant = await cloud.launch(request())

    assert grant.refusal.refusal_class is RefusalClass.NETWORK
    assert aws.api.of("create_fleet") == []


# --- listings -------------------------------------------------------------------------------------


async def test_a_listing_is_read_page_by_page_from_all_accounts(aws, cloud):
    aws.api.will(
        "describe_instances", page(instance("i-1"), following="more"), page(instance("i-2"))
    )
    aws.api.will(
        "describe_instances",
        page(instance("i-3", launched=START + timedelta(seconds=1))),
        account="other",
    )

    assert ids(await cloud.list(OWNER)) == ["i-1", "i-2", "i-3"]
    assert [call.get("NextToken") for call in aws.api.of("describe_instances")] == [
        None,
        "more",
        None,
    ]


async def test_instances_that_are_not_ours_are_not_shown(aws, cloud):
    foreign = {**instance("i-1"), "Tags": [{"Key": "Name", "Value": "somebody's"}]}
    aws.api.will("describe_instances", page(foreign, instance("i-2")))

    assert ids(await cloud.list(OWNER)) == ["i-2"]


async def test_an_account_that_has_lost_its_rights_keeps_what_it_showed_and_stops_no_other(
    aws, cloud
):
    aws.api.will(
        "describe_instances", page(instance("i-1")), page(instance("i-1", state="terminated"))
    )
    aws.api.will("describe_instances", page(instance("i-2")), EXPIRED, account="other")

    await cloud.list(OWNER)
    shown = await aws.another().list(OWNER)

    states = {one.instance_id: one.state for one in shown}
    assert states == {"i-1": InstanceState.ENDED, "i-2": InstanceState.RUNNING}


async def test_a_listing_says_of_which_offerings_nobody_answered(aws, cloud):
    impaired = {"AvailabilityZones": [{"ZoneId": "use1-az1", "State": "impaired"}]}
    aws.api.will("describe_instances", NotReached("no route"), {}, {})
    aws.api.will("describe_availability_zones", impaired, account="other")

    first, second = [silent_in(await cloud.list(OWNER)) for _ in range(2)]

    assert first == {one.offering_id for one in SETTINGS.offerings}
    assert second == {SETTINGS.offerings[1].offering_id}


async def test_what_runs_where_nothing_is_offered_any_more_is_looked_at_and_ended(aws, cloud):
    gone = SETTINGS.offerings[1].offering_id
    aws.api.will("create_fleet", fleet("i-1"), account="other")
    await cloud.launch(request(instances=1, offering_id=gone))
    cloud.close()
    settings = replace(SETTINGS, offerings=SETTINGS.offerings[:1])
    later = AwsCloud(aws.folder / "aws.sqlite", settings, aws.api, aws.clock)
    aws.opened(later)
    closed = AwsRefused("AuthFailure", "account other is not in the settings")
    aws.api.will("describe_instances", closed, page(instance("i-1")), closed, account="other")

    assert silent_in(await later.list(OWNER)) == {gone}
    assert ids(await later.list(OWNER)) == ["i-1"]
    silent = await later.list(OWNER)
    await later.terminate(US, ["i-1"])

    assert (ids(silent), silent_in(silent)) == (["i-1"], {OFFERING_ID})
    assert [call["InstanceIds"] for call in aws.api.of("terminate_instances")] == [["i-1"]]


async def test_a_listing_that_is_throttled_anywhere_is_asked_for_again(aws, cloud):
    aws.api.will(
        "describe_instances", AwsRefused("RequestLimitExceeded", "slower"), account="other"
    )

    with pytest.raises(Throttled) as caught:
        await cloud.list(OWNER)

    assert caught.value.retry_after_s > 0


async def test_where_no_place_answers_nothing_is_said(aws, cloud):
    aws.api.will("describe_instances", NotReached("no network"))
    aws.api.will("describe_instances", NotReached("no network"), account="other")

    with pytest.raises(ProviderUnavailable):
        await cloud.list(OWNER)


async def test_what_has_ended_does_not_come_back_in_a_listing_that_lags(aws, cloud):
    aws.api.will(
        "describe_instances", page(instance("i-1", state="terminated")), page(instance("i-1"))
    )

    await cloud.list(OWNER)

    assert [one.state for one in await cloud.list(OWNER)] == [InstanceState.ENDED]


async def test_an_instance_that_somebody_stopped_is_over_and_is_ended(aws, cloud):
    aws.api.will("describe_instances", page(instance("i-1", state="stopped")))

    shown = await cloud.list(OWNER)

    assert [one.state for one in shown] == [InstanceState.ENDED]
    assert [call["InstanceIds"] for call in aws.api.of("terminate_instances")] == [["i-1"]]


async def test_of_an_impaired_zone_what_was_known_before_stands(aws, cloud):
    aws.api.will("describe_instances", page(instance("i-1")), page(), page())
    await cloud.list(OWNER)
    aws.api.will(
        "describe_availability_zones",
        {"AvailabilityZones": [{"ZoneId": "use1-az1", "ZoneName": "a", "State": "impaired"}]},
    )
    aws.clock.pass_s(300)

    shown = await cloud.list(OWNER)
    await cloud.terminate(US, ["i-1"])

    assert ids(shown) == ["i-1"]
    assert aws.api.of("terminate_instances") == []


# --- ends -----------------------------------------------------------------------------------------


async def granted(aws, cloud, *instance_ids):
    aws.api.will("create_fleet", fleet(*instance_ids))
    await cloud.launch(request(instances=len(instance_ids)))


async def test_ends_are_asked_for_a_thousand_at_a_time(aws, cloud):
    many = [f"i-{number}" for number in range(1001)]
    await granted(aws, cloud, *many)

    await cloud.terminate(US, many)

    assert [len(call["InstanceIds"]) for call in aws.api.of("terminate_instances")] == [1000, 1]


async def test_one_that_is_not_found_stops_no_other(aws, cloud):
    await granted(aws, cloud, "i-1", "i-2", "i-3")
    missing = AwsRefused("InvalidInstanceID.NotFound", "The instance ID 'i-2' does not exist")
    aws.api.will("terminate_instances", missing)

    await cloud.terminate(US, ["i-1", "i-2", "i-3"])

    asked = [call["InstanceIds"] for call in aws.api.of("terminate_instances")]
    assert asked == [["i-1", "i-2", "i-3"], ["i-1", "i-3"]]


async def test_one_that_is_protected_against_its_end_keeps_no_other_alive(aws, cloud):
    await granted(aws, cloud, "i-1", "i-2", "i-3")
    protected = AwsRefused(
        "OperationNotPermitted",
        "The instance 'i-2' may not be terminated. Modify its 'disableApiTermination' instance "
        "attribute and try again.",
    )
    aws.api.will("terminate_instances", protected, {}, protected)

    await cloud.terminate(US, ["i-1", "i-2", "i-3"])
    await cloud.terminate(US, ["i-2"])

    asked = [call["InstanceIds"] for call in aws.api.of("terminate_instances")]
    assert asked == [["i-1", "i-2", "i-3"], ["i-1", "i-3"], ["i-2"]]


async def test_a_refusal_that_names_nothing_is_narrowed_down(aws, cloud):
    await granted(aws, cloud, "i-1", "i-2")
    unnamed = AwsRefused("InvalidInstanceID.NotFound", "some do not exist")
    aws.api.will("terminate_instances", unnamed, unnamed, {})

    await cloud.terminate(US, ["i-1", "i-2"])

    asked = [call["InstanceIds"] for call in aws.api.of("terminate_instances")]
    assert asked == [["i-1", "i-2"], ["i-1"], ["i-2"]]


async def test_what_is_ending_already_is_not_asked_again(aws, cloud):
    aws.api.will(
        "describe_instances", page(instance("i-1", state="shutting-down"), instance("i-2"))
    )
    await cloud.list(OWNER)

    await cloud.terminate(US, ["i-1", "i-2"])

    assert [call["InstanceIds"] for call in aws.api.of("terminate_instances")] == [["i-2"]]


async def test_what_is_another_owners_or_unknown_is_left_alone(aws, cloud):
    aws.api.will("describe_instances", page(instance("i-1", owner="somebody")))
    await cloud.list("somebody")

    await cloud.terminate(US, ["i-1", "i-never"])

    assert aws.api.of("terminate_instances") == []


async def test_an_instance_from_before_this_store_is_found_by_its_tag(aws, cloud):
    aws.api.will("describe_instances", page(instance("i-1")), account="other")

    await cloud.terminate(US, ["i-1"])

    assert [asked for asked in aws.api.asked if asked[1] == "terminate_instances"] == [
        ("other", "terminate_instances", {"InstanceIds": ["i-1"]})
    ]


# --- what is told ---------------------------------------------------------------------------------


def message(number, kind, at=START, **detail):
    body = {
        "version": "0",
        "id": f"event-{number}",
        "detail-type": kind,
        "source": "aws.ec2",
        "account": "000000000001",
        "time": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-east-1",
        "resources": [],
        "detail": detail,
    }
    return {"MessageId": f"m-{number}", "ReceiptHandle": f"r-{number}", "Body": json.dumps(body)}


def notice(number, instance_id, at=START):
    kind = "EC2 Spot Instance Interruption Warning"
    return message(number, kind, at, **{"instance-id": instance_id, "instance-action": "terminate"})


def changed(number, instance_id, state, at=START):
    kind = "EC2 Instance State-change Notification"
    return message(number, kind, at, **{"instance-id": instance_id, "state": state})


async def test_a_notice_that_comes_late_leaves_less_time(aws, cloud):
    await granted(aws, cloud, "i-1")
    aws.clock.pass_s(30)
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})

    (event,) = await cloud.events("first", moment())

    assert event.kind is CloudEventKind.NOTICE
    assert (event.at_ns, event.lead_s) == (START_NS + 30 * 10**9, 90)
    assert event.interruption is InterruptionKind.CAPACITY_RECLAIMED
    assert await aws.another().events("first", moment()) == (event,)
    assert await cloud.events("second", moment()) == ()


async def test_a_message_is_deleted_only_after_it_was_stored(aws, cloud):
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})
    aws.api.will("delete_message_batch", NoAnswer("killed"))
    await cloud.events("first", moment())
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})

    assert await cloud.events("second", moment()) == ()
    handles = [call["Entries"] for call in aws.api.of("delete_message_batch")]
    assert handles == [[{"Id": "0", "ReceiptHandle": "r-1"}]] * 2


async def test_what_cannot_be_read_is_counted_kept_aside_and_deleted(aws, cloud):
    broken = {"MessageId": "m", "ReceiptHandle": "r", "Body": "{"}
    bare = {"MessageId": "n", "ReceiptHandle": "s", "Body": '{"detail-type": "x"}'}
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [broken, bare, notice(1, "i-1")]})

    told = await cloud.events("first", moment())

    assert [event.kind for event in told] == [CloudEventKind.NOTICE]
    assert cloud.counts()["messages_malformed"] == 2
    assert [problem for _, problem in cloud.unread()] == [
        "body: must be JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)",
        "id: is missing",
    ]
    (deleted,) = aws.api.of("delete_message_batch")
    assert len(deleted["Entries"]) == 3


async def test_advice_to_rebalance_is_counted_and_changes_nothing(aws, cloud):
    await granted(aws, cloud, "i-1")
    advice = message(1, "EC2 Instance Rebalance Recommendation", **{"instance-id": "i-1"})
    aws.api.will("receive_message", {"Messages": [advice]})

    assert await cloud.events("first", moment()) == ()
    assert cloud.counts()["rebalance_recommendations"] == 1


async def test_what_is_told_before_an_instance_shows_is_told_once_it_does(aws, cloud):
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})
    assert await cloud.events("first", moment()) == ()
    aws.api.will("describe_instances", page(instance("i-1")))
    await cloud.list(OWNER)

    (event,) = await cloud.events("second", moment())

    assert event.instance.instance_id == "i-1"


async def test_what_is_told_of_strangers_is_forgotten(aws, cloud):
    aws.api.will("receive_message", {"Messages": [notice(1, "i-foreign")]})
    await cloud.events("first", moment())
    aws.clock.pass_s(901)

    await cloud.events("second", moment())

    assert cloud.counts()["events_of_strangers"] == 1


async def test_an_end_after_a_notice_was_the_clouds_and_one_that_we_asked_for_was_not(aws, cloud):
    await granted(aws, cloud, "i-1", "i-2")
    await cloud.terminate(US, ["i-2"])
    gone = [changed(2, "i-1", "terminated"), changed(3, "i-2", "terminated")]
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1"), *gone]})

    told = await cloud.events("first", moment())

    ends = {one.instance.instance_id: one for one in told if one.state is InstanceState.ENDED}
    assert ends["i-1"].interruption is InterruptionKind.CAPACITY_RECLAIMED
    assert ends["i-2"].interruption is None


async def test_of_an_end_without_notice_ec2_is_asked_why(aws, cloud):
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [changed(1, "i-1", "terminated")]})
    reason = {"StateReason": {"Code": "Server.SpotInstanceTermination", "Message": "m"}}
    aws.api.will("describe_instances", page(instance("i-1", state="terminated", **reason)))

    (event,) = await cloud.events("first", moment())

    assert event.interruption is InterruptionKind.CAPACITY_RECLAIMED


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"id": ' + "9" * 5000 + "}",
        message(1, "EC2 Spot Instance Interruption Warning", **{"instance-id": "i-\ud800"})["Body"],
        notice(1, "i-1")["Body"].replace("2026-", "9026-"),
        notice(1, "i-1")["Body"].replace("07:00:00Z", "07:00:00"),
        "\ud800",
    ],
    ids=["deep", "long number", "half a letter", "late", "without a zone", "no text"],
)
async def test_no_message_keeps_the_others_from_being_heard(aws, cloud, body):
    odd = {"MessageId": "m", "ReceiptHandle": "r", "Body": body}
    await granted(aws, cloud, "i-2")
    aws.api.will("receive_message", {"Messages": [odd, notice(2, "i-2")]})

    told = await cloud.events("first", moment())

    assert ids(event.instance for event in told) == ["i-2"]
    assert (cloud.counts()["messages_malformed"], len(cloud.unread())) == (1, 1)
    assert len(aws.api.of("delete_message_batch")[0]["Entries"]) == 2


async def test_what_is_told_of_a_time_to_come_is_told_of_now(aws, cloud):
    later = START + timedelta(hours=9)
    await granted(aws, cloud, "i-1", "i-2")
    told = [notice(1, "i-1", at=later), changed(2, "i-2", "running", at=later)]
    aws.api.will("receive_message", {"Messages": told})

    events = await cloud.events("first", moment())

    assert {(event.at_ns, event.lead_s) for event in events} == {(START_NS, 120), (START_NS, 0)}


async def test_an_error_that_nobody_expects_of_a_long_look_is_no_silence(aws, cloud):
    aws.api.will("receive_message", {"Messages": [{"MessageId": "m"}]})

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(KeyError):
            await cloud.pushed()


async def test_a_queue_that_fails_for_a_moment_is_looked_into_again_at_once(aws, cloud):
    await granted(aws, cloud, "i-1")
    passing = (NoAnswer("reset"), AwsRefused("InternalError", "no", status=500))
    aws.api.will("receive_message", *passing, {"Messages": [notice(1, "i-1")]})

    (event,) = await cloud.events("first", moment())

    assert event.kind is CloudEventKind.NOTICE
    assert "queue_failures" not in cloud.counts()


async def test_a_queue_that_fails_stops_nothing(aws, cloud):
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", AwsRefused("AccessDenied", "no"))

    assert await cloud.events("first", moment()) == ()
    assert cloud.counts()["queue_failures"] == 1


async def test_a_queue_that_hangs_holds_up_no_step_and_is_looked_into_once(aws, cloud, monkeypatch):
    monkeypatch.setattr(queues, "DRAINED_WITHIN_S", 0.01)
    hanging, started = Future(), []
    aws.api.start = lambda work: started.append(work) or hanging
    hanging.set_running_or_notify_cancel()

    async with asyncio.timeout(PATIENCE_S):
        for number in range(3):
            assert await cloud.events(f"taking-{number}", moment()) == ()

    assert (len(started), cloud.counts()["queue_failures"]) == (1, 3)
    hanging.set_result(None)
    await cloud.events("later", moment())
    await cloud.events("again", moment())
    assert len(started) == 3


async def test_quotas_that_nobody_tells_hold_up_no_notice(aws, cloud, monkeypatch):
    monkeypatch.setattr("spotline.adapters.clouds.aws.cloud.QUOTAS_WITHIN_S", 0.01)
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})

    async def never(*_, **__):
        await asyncio.Event().wait()

    aws.api.read = never
    async with asyncio.timeout(PATIENCE_S):
        await cloud.pushed()

    assert [event.kind for event in await cloud.events("t", moment())] == [CloudEventKind.NOTICE]


async def test_what_is_long_over_is_forgotten_and_what_lives_or_is_open_is_not(aws, cloud):
    await granted(aws, cloud, "i-1", "i-2")
    aws.api.will("create_fleet", NoAnswer("lost"))
    with pytest.raises(UnknownOutcome):
        await cloud.launch(request("open"))
    ended = page(instance("i-1", state="terminated"), instance("i-2"))
    aws.api.will("describe_instances", page(instance("i-1"), instance("i-2")), ended)
    await cloud.list(OWNER)
    await cloud.list(OWNER)
    await cloud.events("first", moment())

    aws.clock.pass_s(KEPT_S + 1)
    await cloud.events("second", moment())

    store = cloud._store
    assert set(store.known(["i-1", "i-2"])) == {"i-2"}
    assert [store.launch(OWNER, token) is None for token in ("t", "open")] == [True, False]
    left = {
        table: store.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"]
        for table in ("events", "ended_lives", "launches", "instances")
    }
    assert left == {"events": 0, "ended_lives": 0, "launches": 1, "instances": 1}


async def test_an_end_that_only_a_listing_shows_is_told_with_its_time(aws, cloud):
    at = datetime(2026, 11, 23, 7, 5, tzinfo=UTC)
    ended = instance(
        "i-1",
        state="terminated",
        StateTransitionReason=f"User initiated ({at:%Y-%m-%d %H:%M:%S} GMT)",
    )
    aws.api.will("describe_instances", page(instance("i-1")), page(ended))
    await cloud.list(OWNER)
    await cloud.list(OWNER)

    (event,) = await cloud.events("first", moment())

    assert event.state is InstanceState.ENDED
    assert event.at_ns == int(at.timestamp()) * 10**9


@pytest.mark.parametrize(("read_timeout_s", "waits_s"), [(30.0, 20), (21.0, 16), (3.0, 0)])
async def test_a_look_that_waits_is_over_before_its_call_is_given_up(aws, read_timeout_s, waits_s):
    settings = replace(SETTINGS, read_timeout_s=read_timeout_s)
    cloud = AwsCloud(aws.folder / "aws.sqlite", settings, aws.api, aws.clock)
    aws.opened(cloud)
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})

    async with asyncio.timeout(PATIENCE_S):
        await cloud.pushed()

    assert {call["WaitTimeSeconds"] for call in aws.api.of("receive_message")} == {waits_s}


async def test_looks_that_do_not_wait_are_apart(aws, monkeypatch):
    monkeypatch.setattr(queues, "_BETWEEN_S", 0.02)
    settings = replace(SETTINGS, queue_wait_s=0)
    cloud = AwsCloud(aws.folder / "aws.sqlite", settings, aws.api, aws.clock)
    aws.opened(cloud)

    began_s = time.monotonic()
    looking = asyncio.create_task(cloud.pushed())
    await eventually(lambda: len(aws.api.of("receive_message")) >= 3)
    looks, passed_s = len(aws.api.of("receive_message")), time.monotonic() - began_s
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking

    assert looks <= 1 + passed_s / 0.02


async def test_news_wake_who_waits(aws, cloud):
    await granted(aws, cloud, "i-1")
    aws.api.will("receive_message", {"Messages": [notice(1, "i-1")]})

    async with asyncio.timeout(PATIENCE_S):
        await cloud.pushed()

    assert len(await cloud.events("first", moment())) == 1


# --- metrics --------------------------------------------------------------------------------------


async def test_metrics_tell_what_the_queue_held_and_how_far_quotas_are_used(aws, cloud):
    aws.api.will(
        "receive_message", {"Messages": [{"MessageId": "m", "ReceiptHandle": "r", "Body": "{"}]}
    )
    await cloud.events("first", moment())
    spot = instance("i-1", InstanceType="p4d.24xlarge", InstanceLifecycle="spot")
    aws.api.will("describe_instances", page(spot))
    described = {"InstanceType": "p4d.24xlarge", "VCpuInfo": {"DefaultVCpus": 96}}
    aws.api.will("describe_instance_types", {"InstanceTypes": [described]})
    aws.api.will("get_service_quota", {"Quota": {"Value": 0.0}}, {"Quota": {"Value": 384.0}})
    await cloud.read_quotas()
    await cloud.read_quotas()

    readings = readings_of(cloud)

    told = {
        labels["spotline.cloud_message"]: value
        for value, labels in readings["spotline.cloud.messages"]()
    }
    assert (told["taken"], told["malformed"], told["queue_failure"]) == (1, 1, 0)
    assert [value for value, _ in readings["spotline.quota.used"]()] == [0.25, 1.0]
    assert [value for value, _ in readings["spotline.quota.foreign"]()] == [0.0, 1.0]
    assert len(aws.api.of("get_service_quota")) == 4, "it is read once an hour"
