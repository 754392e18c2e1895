"""An end whose answer is lost, before the rehearsal: what is settled is what AWS bills, also of what never ran."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import boto3
import pytest
from botocore.exceptions import ClientError

from spotline.adapters.clouds.aws.calls import BILLING
from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.adapters.clouds.aws.opening import biller_of
from spotline.adapters.clouds.aws.reader import ApiReader
from spotline.application.cloud_actuator.ports import BilledInstance, Owner
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.bill import lines
from spotline.rehearsal.aws.opening import LOG
from spotline.rehearsal.aws.state_log import records_of
from spotline.rehearsal.aws.weather import calm
from tests.fakes.actuator import OWNER, launch
from tests.fakes.aws_rehearsal import REGION, RehearsedAws, SharedApi, lost, refused

pytestmark = pytest.mark.integration

US = Owner(name=OWNER, epoch=1)
OFFERING_ID = "aws:default:use1-az1:p4d.24xlarge"
PENDING_S, RECORDED_S = 30.0, 240.0
# Of spot at 10 USD an hour.
MINUTE = 166_667


class Bills:
    """An adapter in a new process at each `open`, and what its biller settles as time passes."""

    def __init__(self, folder) -> None:
        self.folder = folder
        weather = replace(
            calm(), pending_s=(PENDING_S, PENDING_S), recorded_s=(RECORDED_S, RECORDED_S)
        )
        self.aws = RehearsedAws(folder / "rehearsal", weather)
        self.reader = ApiReader(self.aws.settings, BILLING)
        self.cloud = self.open()

    def open(self) -> AwsCloud:
        """Begin as a process that knows what the one before has written."""
        api = SharedApi(self.aws.api)
        self.cloud = AwsCloud(self.folder / "aws.sqlite", self.aws.settings, api, self.aws)
        self.biller = biller_of(self.cloud, self.reader, self.aws.settings)
        return self.cloud

    async def launched(self) -> str:
        grant = await self.cloud.launch(replace(launch("t", 1), offering_id=OFFERING_ID))
        return grant.instances[0].instance_id

    async def ended_unheard(self, instance_id: str) -> None:
        """Ask for its end: it takes effect, nobody hears of that, and a new process looks."""
        self.aws.ec2.will("TerminateInstances", lost(), after=True)
        with pytest.raises(ProviderUnavailable):
            await self.cloud.terminate(US, [instance_id])
        self.cloud.close()
        self.open()
        await self.cloud.terminate(US, [instance_id])
        await self.cloud.list(OWNER)

    async def settled(self, instance_id: str) -> int | None:
        asked = BilledInstance(
            instance_id=instance_id, offering_id=OFFERING_ID, capacity_type=CapacityType.SPOT
        )
        words = await self.biller.final_costs([asked])
        return words[0].micro_usd if words else None

    def billed(self, instance_id: str) -> int:
        records = list(records_of(self.folder / "rehearsal/state" / LOG))
        bill = lines(records, self.aws.world.places, self.aws.now_ns())
        return sum(line.total_micro_usd for line in bill if line.instance_id == instance_id)

    def close(self) -> None:
        self.cloud.close()
        self.reader.close()
        self.aws.close()


@pytest.fixture
def bills(tmp_path):
    made = Bills(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("runs_s", "expected"), [(0, 0), (PENDING_S + 5, MINUTE)])
async def test_the_record_of_an_end_says_whether_it_ran(bills, runs_s, expected):
    instance_id = await bills.launched()
    bills.aws.pass_s(runs_s)
    await bills.ended_unheard(instance_id)
    bills.aws.pass_s(120)
    early = await bills.settled(instance_id)
    bills.aws.pass_s(RECORDED_S)

    assert early is None
    assert await bills.settled(instance_id) == bills.billed(instance_id) == expected


async def test_what_was_seen_running_needs_no_record(bills):
    instance_id = await bills.launched()
    bills.aws.pass_s(PENDING_S + 5)
    await bills.cloud.list(OWNER)
    await bills.ended_unheard(instance_id)
    bills.aws.pass_s(120)

    assert await bills.settled(instance_id) == bills.billed(instance_id) == MINUTE
    assert bills.aws.trail.calls == []


async def test_without_the_right_to_ask_it_is_above_the_bill_and_never_below(bills):
    instance_id = await bills.launched()
    await bills.ended_unheard(instance_id)
    bills.aws.pass_s(120)
    bills.aws.trail.will("LookupEvents", refused("AccessDeniedException"))

    assert (await bills.settled(instance_id), bills.billed(instance_id)) == (MINUTE, 0)


async def test_plain_boto3_reads_the_event_history_as_aws_says_it(bills):
    instance_id = await bills.launched()
    await bills.ended_unheard(instance_id)
    bills.aws.pass_s(RECORDED_S + 1)
    at_ns = bills.aws.world.state.instances[instance_id].ended_ns
    account = next(one for one in bills.aws.world.accounts if one.name == "default")
    client = boto3.client(
        "cloudtrail",
        region_name=REGION,
        endpoint_url=bills.aws.settings.endpoint_url,
        aws_access_key_id=account.access_key_id,
        aws_secret_access_key=account.secret_access_key,
    )

    def ask(**params):
        return client.lookup_events(**params)["Events"]

    def all_told():
        by_id = [{"AttributeKey": "ResourceName", "AttributeValue": instance_id}]
        (event,) = ask(LookupAttributes=by_id)
        with pytest.raises(ClientError, match="InvalidTimeRange"):
            ask(StartTime=event["EventTime"], EndTime=event["EventTime"].replace(year=2000))
        with pytest.raises(ClientError, match="InvalidLookupAttributes"):
            ask(LookupAttributes=[{"AttributeKey": "Username", "AttributeValue": "x"}])
        return event, ask(EndTime=event["EventTime"].replace(year=2000))

    event, before = await asyncio.to_thread(all_told)
    client.close()

    assert before == []
    assert (event["EventName"], event["EventTime"].timestamp()) == (
        "TerminateInstances",
        at_ns // NS_PER_S,
    )
    assert [one["ResourceName"] for one in event["Resources"]] == [instance_id]
