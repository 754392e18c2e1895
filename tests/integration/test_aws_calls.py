"""boto3 before the rehearsal: what proves that a call was made, and whose credentials it is made with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spotline.adapters.clouds.aws.api import AwsPlace, BotoApi
from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.domain.events.capacity import RefusalClass
from tests.fakes.actuator import OWNER, launch
from tests.fakes.aws_rehearsal import REGION, RehearsedAws, SharedApi, lost, refused
from tests.fakes.ports import free_port

pytestmark = pytest.mark.integration

HERE = AwsPlace("default", REGION)
THERE = AwsPlace("other", REGION)


@pytest.fixture
def aws(tmp_path):
    made = RehearsedAws(tmp_path / "rehearsal")
    yield made
    made.close()


@pytest.fixture
def opened(aws):
    """Open an api with other settings than all share."""
    made = []

    def api(**changes):
        made.append(BotoApi(replace(aws.settings, **changes)))
        return made[-1]

    yield api
    for one in made:
        one.close()


async def test_a_call_that_fails_is_made_again_only_by_who_reads(aws):
    aws.ec2.will("DescribeInstances", lost())
    aws.ec2.will("DescribeInstances", refused("InternalError", status=500))
    aws.ec2.will("TerminateInstances", lost())

    shown = await aws.api.read(HERE, "ec2", "describe_instances")
    with pytest.raises(NoAnswer):
        await aws.api.call(HERE, "ec2", "terminate_instances", InstanceIds=["i-0"])

    assert shown["Reservations"] == []
    assert aws.ec2.calls.count("DescribeInstances") == 3
    assert aws.ec2.calls.count("TerminateInstances") == 1


async def test_where_nobody_listens_nothing_was_done(opened):
    api = opened(endpoint_url=f"http://127.0.0.1:{free_port()}")

    with pytest.raises(NotReached):
        await api.call(HERE, "ec2", "describe_instances")


async def test_an_account_is_reached_by_its_role_and_acts_as_itself(aws, tmp_path):
    offering = "aws:other:use1-az1:p4d.24xlarge"
    cloud = AwsCloud(tmp_path / "a.sqlite", aws.settings, SharedApi(aws.api), aws)
    try:
        grant = await cloud.launch(replace(launch("t", 1), offering_id=offering))
    finally:
        cloud.close()

    (launched,) = aws.world.state.instances.values()
    assert launched.instance_id == grant.instances[0].instance_id
    assert launched.account_id == "000000000002"


async def test_a_wrong_external_id_closes_its_account_alone(aws, opened, tmp_path):
    default, other = aws.settings.accounts
    accounts = (default, replace(other, external_id="wrong"))
    api = opened(accounts=accounts)
    settings = replace(aws.settings, accounts=accounts)
    cloud = AwsCloud(tmp_path / "a.sqlite", settings, SharedApi(api), aws)
    try:
        offerings = [f"aws:{account.name}:use1-az1:p4d.24xlarge" for account in accounts]
        grants = [await cloud.launch(replace(launch(one, 1), offering_id=one)) for one in offerings]
        shown = await cloud.list(OWNER)
    finally:
        cloud.close()

    assert [len(grant.instances) for grant in grants] == [1, 0]
    assert grants[1].refusal.refusal_class is RefusalClass.UNAUTHORISED
    assert [one.offering_id for one in shown] == offerings[:1]


async def test_a_session_is_renewed_before_it_expires(aws, opened, monkeypatch):
    api = opened()
    await api.call(THERE, "ec2", "describe_instances")
    before = aws.assumed()

    nearly_over = datetime.now(UTC) + timedelta(seconds=3400)
    monkeypatch.setattr("spotline.adapters.clouds.aws.api._wall_now", lambda: nearly_over)
    await api.call(THERE, "ec2", "describe_instances")
    monkeypatch.undo()
    await api.call(THERE, "ec2", "describe_instances")

    assert (before, aws.assumed()) == (before, before + 1)


async def test_a_refusal_of_aws_has_its_code_and_words(aws):
    with pytest.raises(AwsRefused) as caught:
        await aws.api.call(HERE, "ec2", "terminate_instances", InstanceIds=["i-0123456789abcdef0"])

    assert caught.value.code == "InvalidInstanceID.NotFound"
    assert "i-0123456789abcdef0" in caught.value.message


async def test_only_what_is_on_the_list_of_calls_is_called(aws):
    with pytest.raises(ValueError, match="operation must be one of"):
        await aws.api.call(HERE, "ec2", "stop_instances", InstanceIds=["i-0"])
