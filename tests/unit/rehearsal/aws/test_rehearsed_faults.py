"""Calls of the rehearsal that fail: as often as is stated, as scripts say, by bucket and by right."""

import asyncio

import pytest

from spotline.rehearsal.aws.faults import Effect, Faults, Faulty, Script
from spotline.rehearsal.aws.service import AwsCall, AwsError, ConnectionLost
from tests.fakes.rehearsed_ec2 import ACCOUNT, OTHER, codes_of, ids_of, rehearsed_ec2, rough

CLASSES = {"NO_CAPACITY", "QUOTA", "NETWORK", "THROTTLED", "SERVER", "UNKNOWN_OUTCOME"}


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path) as made:
        yield made


def made_call(operation, service="ec2", **params) -> AwsCall:
    return AwsCall(
        service=service, operation=operation, params=params, region="r", account_id=ACCOUNT,
        access_key="k", request_id="q",
    )  # fmt: skip


def test_a_tenth_of_all_calls_fails_over_all_classes():
    faults = Faults(share=0.10, seed=7)
    for _ in range(2500):
        faults.strike(made_call("CreateFleet"))
        faults.strike(made_call("DescribeInstances"))

    # Binomial, 5000 draws of 0.1: 500 with a deviation of 21.
    assert 415 <= sum(faults.struck.values()) <= 585
    assert set(faults.struck) == CLASSES


def test_what_fails_is_drawn_by_seed():
    def struck(seed):
        faults = Faults(share=0.3, seed=seed)
        return [faults.strike(made_call("CreateFleet")) for _ in range(60)]

    assert struck(1) == struck(1)
    assert struck(1) != struck(2)


def test_a_read_fails_by_no_class_of_launches():
    faults = Faults(share=1.0, seed=0)
    for _ in range(300):
        faults.strike(made_call("DescribeInstances"))

    assert set(faults.struck) == {"THROTTLED", "SERVER", "UNKNOWN_OUTCOME"}


def test_lost_answers_took_effect_about_every_other_time(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(fail_share=1.0), seed=4) as rig:
        effects = []
        for number in range(40):
            before = len(rig.world.state.instances)
            blow = None
            try:
                rig.call("CreateTags", Resources=[], Tags=[{"Key": f"k{number}", "Value": "v"}])
            except ConnectionLost:
                blow = rig.world.state.records
            except AwsError:
                pass
            assert len(rig.world.state.instances) == before
            if blow is not None:
                effects.append(blow)

        # Records rise by those that took effect, and stay for the others.
        assert 0 < len(set(effects)) < len(effects)


def test_a_script_fails_the_next_calls_of_an_operation(rig):
    rig.faults.scripts.append(Script(operation="Describe*", code="InternalError", times=2))
    for _ in range(2):
        with pytest.raises(AwsError) as raised:
            rig.call("DescribeInstances")
        assert raised.value.status == 500

    assert rig.call("DescribeInstances") == {"Reservations": []}


def test_a_lost_answer_may_have_launched(rig):
    rig.template()
    for effect in (Effect.BEFORE, Effect.AFTER):
        script = Script(operation="CreateFleet", code="ConnectionLost", effect=effect)
        rig.faults.scripts.append(script)
    with pytest.raises(ConnectionLost):
        rig.fleet(2, ClientToken="once")
    before = len(rig.world.state.instances)
    with pytest.raises(ConnectionLost):
        rig.fleet(2, ClientToken="once")

    assert (before, len(rig.world.state.instances)) == (0, 2)
    assert ids_of(rig.fleet(2, ClientToken="once")) == list(rig.world.state.instances)


@pytest.mark.parametrize(
    "code",
    ["Unsupported", "MaxFleetCountExceeded", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
)
def test_a_scripted_refusal_of_pools_stands_in_errors(rig, code):
    rig.faults.scripts.append(Script(operation="CreateFleet", code=code))
    answer = rig.fleet(2)

    assert (codes_of(answer), ids_of(answer)) == ([code], [])
    rig.faults.scripts.append(Script(operation="CreateFleet", code=code, raised=True))
    with pytest.raises(AwsError, match=code):
        rig.fleet(2)


def test_a_script_may_say_of_pools_what_else_is_refused(rig):
    script = Script(operation="CreateFleet", code="RequestLimitExceeded", raised=False)
    rig.faults.scripts.append(script)

    assert codes_of(rig.fleet(2)) == ["RequestLimitExceeded"]


def test_a_refused_fleet_is_what_its_token_gets_again(rig):
    rig.faults.scripts.append(Script(operation="CreateFleet", code="InsufficientInstanceCapacity"))
    refused = rig.fleet(2, ClientToken="once")

    assert rig.fleet(2, ClientToken="once") == refused


def test_an_account_without_a_right_is_told_so_before_a_dry_run_ends(rig):
    rig.ec2.denied.add((ACCOUNT, "DescribeInstances"))
    with pytest.raises(AwsError) as raised:
        rig.call("DescribeInstances", DryRun=True)

    assert (raised.value.code, raised.value.status) == ("UnauthorizedOperation", 403)
    with pytest.raises(AwsError, match="DryRunOperation"):
        rig.call("DescribeInstances", account=OTHER, DryRun=True)


def test_an_account_that_calls_too_often_is_throttled_until_its_bucket_fills(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(throttled=True)) as rig:
        for _ in range(100):
            rig.call("DescribeRegions")
        with pytest.raises(AwsError) as raised:
            rig.call("DescribeRegions")
        assert (raised.value.code, raised.value.status) == ("RequestLimitExceeded", 503)
        assert rig.call("DescribeRegions", account=OTHER)
        rig.pass_s(1)
        for _ in range(20):
            rig.call("DescribeRegions")
        with pytest.raises(AwsError, match="RequestLimitExceeded"):
            rig.call("DescribeRegions")


def test_other_services_fail_too():
    class Echo:
        name = "sqs"
        asked = 0

        async def answer(self, call):
            self.asked += 1
            return {}

    faults, echo = Faults(share=0.0, seed=0), Echo()
    faults.scripts.append(
        Script(operation="SendMessage", code="ConnectionLost", effect=Effect.AFTER)
    )
    service = Faulty(echo, faults)

    with pytest.raises(ConnectionLost):
        asyncio.run(service.answer(made_call("SendMessage", "sqs")))
    assert (service.name, echo.asked) == ("sqs", 1)
    assert asyncio.run(service.answer(made_call("SendMessage", "sqs"))) == {}


@pytest.mark.parametrize("changes", [{"times": 0}, {"operation": ""}, {"code": ""}])
def test_a_script_says_what_and_how_often(changes):
    with pytest.raises(ValueError, match="must"):
        Script(**{"operation": "x", "code": "y", **changes})
