"""The connections of accounts: none waits for another's role, and none is left open."""

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from spotline.adapters.clouds.aws.api import AwsPlace, BotoApi
from spotline.adapters.clouds.aws.errors import AwsRefused, NotReached
from spotline.adapters.clouds.aws.settings import AwsAccount
from spotline.domain.events.capacity import RefusalClass
from tests.eventually import PATIENCE_S
from tests.fakes.aws_api import REGION, SETTINGS

SLOW, FAST = AwsPlace("slow", REGION), AwsPlace("fast", REGION)
ROLE = "arn:aws:iam::000000000001:role/spotline"
GRANTED = {
    "Credentials": {
        "AccessKeyId": "a",
        "SecretAccessKey": "s",
        "SessionToken": "t",
        "Expiration": datetime.now(UTC) + timedelta(hours=1),
    }
}


class Door:
    """Where roles are assumed: closed until it is opened, or refusing."""

    def __init__(self):
        self.reached, self.open, self.refusals = threading.Event(), threading.Event(), 0


class Client:
    """A client of boto3."""

    def __init__(self, door):
        self._door = door
        self.closed = False

    def assume_role(self, **_):
        if self._door.refusals:
            self._door.refusals -= 1
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")
        self._door.reached.set()
        self._door.open.wait(PATIENCE_S)
        return GRANTED

    def describe_instances(self, **_):
        return {"Reservations": []}

    def close(self):
        self.closed = True


@pytest.fixture
def door():
    made = Door()
    yield made
    made.open.set()


@pytest.fixture
def clients(monkeypatch, door):
    made = []

    def make(self, session, region, service):
        made.append(Client(door))
        return made[-1]

    monkeypatch.setattr(BotoApi, "_made", make)
    return made


def opened():
    accounts = (
        AwsAccount(name="slow", account_id="000000000001", role_arn=ROLE),
        AwsAccount(name="fast", account_id="000000000002"),
    )
    return BotoApi(replace(SETTINGS, accounts=accounts, offerings=()))


async def test_a_role_that_is_slow_to_be_assumed_holds_up_no_other_account(clients, door):
    api = opened()
    slow = asyncio.ensure_future(api.call(SLOW, "ec2", "describe_instances"))
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(door.reached.wait, PATIENCE_S)

            assert await api.call(FAST, "ec2", "describe_instances") == {"Reservations": []}

            assert not slow.done()
            door.open.set()
            assert await slow == {"Reservations": []}
    finally:
        door.open.set()
        api.close()
    assert [client.closed for client in clients] == [True] * 3


async def test_a_role_that_is_refused_is_asked_for_again_by_the_same_connection(clients, door):
    api = opened()
    door.open.set()
    door.refusals = 3
    try:
        for _ in range(3):
            with pytest.raises(AwsRefused):
                await api.call(SLOW, "ec2", "describe_instances")
            assert len(clients) == 1
        await api.call(SLOW, "ec2", "describe_instances")
    finally:
        api.close()
    assert [client.closed for client in clients] == [True] * 2


async def test_who_assumed_a_role_is_asked_as_that_role(clients, door):
    api = opened()
    door.open.set()
    try:
        await api.call(SLOW, "ec2", "describe_instances")
        await api.call(SLOW, "sts", "assume_role")
    finally:
        api.close()
    assert len(clients) == 3


async def test_a_connection_that_is_made_too_late_is_closed_at_once(clients, door):
    api = opened()
    slow = asyncio.ensure_future(api.call(SLOW, "ec2", "describe_instances"))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(door.reached.wait, PATIENCE_S)
        api.close()
        door.open.set()
        with pytest.raises(NotReached, match="closed"):
            await slow

    assert [client.closed for client in clients] == [True] * 2


async def test_an_account_that_is_not_in_the_settings_is_one_without_rights(clients):
    api = opened()
    try:
        with pytest.raises(AwsRefused, match="account gone is not in the settings") as refused:
            await api.call(AwsPlace("gone", REGION), "ec2", "describe_instances")
    finally:
        api.close()
    assert refused.value.refusal_class is RefusalClass.UNAUTHORISED
