"""A certification in an account by script: what it shows, what it costs, and that nothing is left."""

import asyncio
import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_law
from hypothesis import strategies as st

from spotline.adapters.clouds.aws.certify.budget import LEAST_BILLED_S, TrialBudget
from spotline.adapters.clouds.aws.certify.exports import (
    COLUMNS,
    BilledLine,
    read_export,
    reconciled,
)
from spotline.adapters.clouds.aws.certify.losing import LosingApi
from spotline.adapters.clouds.aws.certify.opening import chosen_offering
from spotline.adapters.clouds.aws.certify.record import HeldForTrial, TrialRecord, read_held
from spotline.adapters.clouds.aws.certify.trial import AwsTrial, TrialPlan
from spotline.adapters.clouds.aws.errors import NoAnswer
from spotline.application.cloud_checks import CertifyPlan, CheckOutcome, TooDear
from spotline.contracts.errors import ConfigError, ContractError
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.offering import Disks
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.eventually import PATIENCE_S
from tests.fakes.aws_account import NO_DISKS, ScriptedAccount, refused, settings
from tests.fakes.trial_account import NO_CAPACITY, TrialAccount

OK, FAILED, OPEN = CheckOutcome.OK, CheckOutcome.FAILED, CheckOutcome.OPEN
STEPS = [
    *("launch", "same token", "lost answer", "interruption", "orphan", "terminate"),
    "nothing left",
]
PRICE = 1_006_000


class SteppingWall:
    """Implements `FeedWall`: whoever sleeps is woken at once, that much later."""

    def __init__(self) -> None:
        self.passed_s = 3600.0

    def now_ns(self) -> int:
        return round(self.passed_s * NS_PER_S)

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds
        await asyncio.sleep(0)


def trial(account, *, reader=None, clock=WALL_TIME, wall=None, **changed) -> AwsTrial:
    stated = {
        "offering": settings(**NO_DISKS).offerings[0],
        "token": "t1",
        "price_micro_usd": PRICE,
        "most_micro_usd": 5_000_000,
        "account_id": "000000000001",
        "installation_id": "0" * 32,
    }
    return AwsTrial(
        TrialPlan(**{**stated, **changed}),
        account.opened,
        reader or ScriptedAccount(),
        wall or SteppingWall(),
        clock,
    )


async def record_of(made: AwsTrial):
    async with asyncio.timeout(PATIENCE_S):
        await made.run()
    return made.record()


def outcomes(record) -> dict:
    return {check.name: check.outcome for check in record.checks}


async def test_each_step_is_shown_and_nothing_is_left():
    account = TrialAccount(shown_after=2)

    record = await record_of(trial(account))

    assert [check.name for check in record.checks] == STEPS
    assert outcomes(record) == dict.fromkeys(STEPS, OK) | {"interruption": OPEN}
    assert (len(account.instances), account.alive, account.open) == (2, [], 0)


def fis(account: TrialAccount, **changed) -> ScriptedAccount:
    """FIS, by which the newest instance is noticed."""

    def start(_):
        account.noticed.append(account.alive[-1])
        return {}

    stated = {
        "CreateExperimentTemplate": {"experimentTemplate": {"id": "EXT1"}},
        "StartExperiment": start,
        "DeleteExperimentTemplate": {},
    }
    return ScriptedAccount(**{**stated, **changed})


async def test_an_interruption_is_shown_by_its_notice_and_its_template_deleted():
    account = TrialAccount()
    reader = fis(account)

    record = await record_of(trial(account, reader=reader, interruption_role="arn:role"))

    assert outcomes(record) == dict.fromkeys(STEPS, OK)
    (made,) = [
        params for action, params in reader.calls if action.endswith("CreateExperimentTemplate")
    ]
    (target,) = made["targets"].values()
    assert target["resourceArns"] == ["arn:aws:ec2:us-east-1:000000000001:instance/i-2"]
    assert reader.called()[-1] == "fis:DeleteExperimentTemplate"
    assert [held.capacity_type for held in record.held] == ["on_demand", "on_demand", "spot"]


async def test_a_template_that_cannot_be_started_is_deleted_and_said():
    account = TrialAccount()
    reader = fis(account, StartExperiment=refused("StartExperiment", "AccessDeniedException"))

    record = await record_of(trial(account, reader=reader, interruption_role="arn:role"))

    assert outcomes(record) == dict.fromkeys(STEPS, OK) | {"interruption": FAILED}
    assert reader.called()[-1] == "fis:DeleteExperimentTemplate"
    assert account.alive == []


async def test_a_template_that_stays_neither_hides_what_failed_nor_outlasts_the_lease():
    account = TrialAccount()
    never = {"StartExperiment": {}, "DeleteExperimentTemplate": refused("DeleteExperimentTemplate")}
    reader = fis(account, **never)
    made = trial(
        account,
        reader=reader,
        interruption_role="arn:role",
        clock=MarketClock(market_s_per_s=10_000),
        lease_s=1000,
    )

    record = await record_of(made)

    told = {check.name: check for check in record.checks}
    assert (told["lease"].outcome, "orphan" in told) == (FAILED, False)
    assert told["interruption template"].outcome is CheckOutcome.WARNING
    assert "delete-experiment-template --id EXT1" in told["interruption template"].next_step
    assert account.alive == []


async def test_a_start_that_fails_is_told_also_where_its_template_stays():
    account = TrialAccount()
    reader = fis(
        account,
        StartExperiment=refused("StartExperiment", "AccessDeniedException"),
        DeleteExperimentTemplate=refused("DeleteExperimentTemplate", "Throttling"),
    )

    record = await record_of(trial(account, reader=reader, interruption_role="arn:role"))

    told = {check.name: check for check in record.checks}
    assert "StartExperiment" in told["interruption"].detail
    assert told["interruption template"].outcome is CheckOutcome.WARNING


async def test_an_account_that_shows_nothing_any_more_is_not_said_to_hold_nothing():
    account = TrialAccount()
    made = trial(account, clock=MarketClock(market_s_per_s=100), lease_s=1, ending_s=0.02)
    account.stuck, account.blind_to = True, ("last",)

    record = await record_of(made)

    told = {check.name: check for check in record.checks}
    assert told["nothing left"].outcome is FAILED
    assert "--instance-ids i-0 i-1" in told["nothing left"].next_step


async def test_without_capacity_it_says_so_and_what_was_not_tried():
    account = TrialAccount()
    account.refusal = NO_CAPACITY

    record = await record_of(trial(account))

    assert outcomes(record) == {
        "launch": FAILED,
        "same token": OPEN,
        "lost answer": FAILED,
        "interruption": OPEN,
        "orphan": OPEN,
        "terminate": OPEN,
        "nothing left": OK,
    }
    assert "no_capacity: none left" in record.checks[0].detail


async def test_a_token_that_buys_twice_is_found_and_all_of_it_ended():
    account = TrialAccount()
    account.forgets_tokens = True

    record = await record_of(trial(account))

    assert outcomes(record)["same token"] is FAILED
    assert outcomes(record)["lost answer"] is FAILED
    assert (account.alive, len(record.held)) == ([], len(account.instances))


async def test_an_answer_that_is_not_lost_shows_nothing():
    account = TrialAccount()
    account.answers_all = True

    record = await record_of(trial(account))

    assert outcomes(record)["lost answer"] is FAILED


async def test_an_instance_counts_since_it_was_asked_for_as_it_is_billed_before_the_answer():
    account, wall = TrialAccount(), SteppingWall()
    account.answer_after = lambda: wall.sleep(200.0)

    record = await record_of(trial(account, wall=wall))

    # Each is asked for twice by its token; the first is held while the second is.
    assert [held.held_s // 200 for held in record.held] == [4, 2]


async def test_a_service_that_does_not_answer_for_a_while_is_asked_again():
    account = TrialAccount()
    account.silent = 5

    record = await record_of(trial(account))

    assert outcomes(record) == dict.fromkeys(STEPS, OK) | {"interruption": OPEN}


async def test_what_does_not_end_is_named_with_the_command_that_ends_it():
    account = TrialAccount()
    made = trial(account, clock=MarketClock(market_s_per_s=100), lease_s=1, ending_s=0.01)
    account.stuck = True

    record = await record_of(made)

    told = {check.name: check for check in record.checks}
    assert told["lease"].outcome is FAILED
    assert told["nothing left"].outcome is FAILED
    assert "terminate-instances --region us-east-1 --instance-ids i-0 i-1" in (
        told["nothing left"].next_step
    )


async def test_who_interrupts_it_leaves_nothing_behind():
    account = TrialAccount(shown_after=10**9)
    made = trial(account)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(made.run())
        await account.launched.wait()
        account.shown_after = 0
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert (account.alive, account.open) == ([], 0)
    assert outcomes(made.record()) == {"nothing left": OK}


@pytest.mark.parametrize("answered", [True, False])
async def test_a_launch_that_shows_late_is_waited_for_and_ended(answered):
    account = TrialAccount(shown_after=12)
    account.answers = answered
    made = trial(account)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(made.run())
        await account.launched.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert account.alive == []
    assert outcomes(made.record()) == {"nothing left": OK}


async def test_a_launch_of_which_nothing_is_heard_is_told_of():
    account = TrialAccount(shown_after=10**9)
    account.answers = False
    made = trial(account, ending_s=0.02)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(made.run())
        await account.launched.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    (told,) = made.record().checks
    assert told.outcome is FAILED
    assert "nobody knows what came of spotline-certify-t1-launch" in told.detail
    assert "Name=tag:spotline-owner,Values=spotline-certify-t1" in told.next_step


async def test_what_could_cost_too_much_is_not_begun():
    account = TrialAccount()

    with pytest.raises(TooDear, match=r"--max-usd: expected at least 1\.01 for 2 instances"):
        await record_of(trial(account, most_micro_usd=1_000_000))

    assert account.instances == {}


@settings_of_law(max_examples=examples(30))
@given(
    launches=st.integers(1, 9),
    lease_s=st.integers(1, 10_000),
    price=st.integers(1, 10**9),
    held=st.lists(st.integers(0, 10_000), max_size=9),
)
def test_no_trial_costs_more_than_was_judged_ahead(launches, lease_s, price, held):
    budget = TrialBudget(launches=launches, lease_s=lease_s, price_micro_usd=price)
    instances = [
        HeldForTrial(
            instance_id=str(number),
            offering_id="o",
            capacity_type="on_demand",
            began_ns=1,
            ended_ns=1 + min(seconds, lease_s) * NS_PER_S,
            price_micro_usd=price,
        )
        for number, seconds in enumerate(held[:launches])
    ]

    # Each line is rounded by itself.
    assert sum(each.cost_micro_usd for each in instances) <= budget.worst_micro_usd + launches


def test_a_minute_is_billed_at_least():
    held = HeldForTrial(
        instance_id="i", offering_id="o", capacity_type="on_demand", began_ns=0, ended_ns=NS_PER_S
    )

    assert held.held_s == LEAST_BILLED_S


async def test_the_cheapest_offering_is_tried_and_a_cheaper_type_in_its_place():
    small, large = settings().offerings[0], settings(instance_type="p4d.24xlarge").offerings[0]
    both = replace(settings(), offerings=(large, small))

    async def chosen(reader=None, **changed):
        plan = CertifyPlan(token="c", most_micro_usd=1, **changed)
        reader = reader or ScriptedAccount(GetProducts=refused("GetProducts"))
        return await chosen_offering(both, plan, reader, 0)

    assert await chosen() == (small, 1_006_000)
    assert await chosen(offering_id=large.offering_id) == (large, 21_957_642)
    tried, price = await chosen(instance_type="t3.micro", reader=ScriptedAccount())
    assert (tried.instance_type, tried.launch_template_id, price) == ("t3.micro", "lt-1", PRICE)
    with pytest.raises(ConfigError, match=r"--offering: expected one of the offerings \(aws:"):
        await chosen(offering_id="x")
    with pytest.raises(ConfigError, match="no list price is known"):
        await chosen(instance_type="t3.micro")


# --- reports and bills ------------------------------------------------------------------------


async def test_a_report_is_read_back_as_it_was_written():
    record = await record_of(trial(TrialAccount()))
    said = json.dumps(record.as_json())

    assert read_held(said, "report.json") == record.held
    assert record.as_markdown().count("| i-0 |") == 1


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 9}', '{"version": 1}', '{"version": 1, "instances": [{}]}']
)
def test_what_is_no_report_is_refused(text):
    with pytest.raises(ContractError, match=r"report\.json"):
        read_held(text, "report.json")


def held(instance_id, kind="on_demand") -> HeldForTrial:
    return HeldForTrial(
        instance_id=instance_id,
        offering_id="o",
        capacity_type=kind,
        began_ns=0,
        ended_ns=3600 * NS_PER_S,
        price_micro_usd=PRICE,
    )


@pytest.mark.parametrize("columns", COLUMNS, ids=lambda columns: columns.kind)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_exports_of_all_kinds_are_read(tmp_path, columns, pack):
    path = tmp_path / "export.csv"
    text = (
        f"{columns.resource},{columns.cost},{columns.usage}\n"
        "i-1,0.503,BoxUsage:g5.xlarge\n,9,BoxUsage\n"
        "arn:aws:ec2:us-east-1:1:instance/i-1,0.503,BoxUsage:g5.xlarge\n"
    )
    path.write_bytes(pack(text.encode()))

    (line,) = reconciled([held("i-1")], read_export(path))

    assert (line.billed_micro_usd, line.verdict, line.agrees) == (PRICE, "same", True)


@pytest.mark.parametrize(
    "text",
    ["", "a,b\n1,2\n", "ResourceId,BilledCost\ni-1,free\n", "ResourceId,BilledCost\ni-1,\n"],
)
def test_what_is_no_export_is_refused(tmp_path, text):
    path = tmp_path / "export.csv"
    path.write_text(text)

    with pytest.raises(ContractError, match=r"export\.csv"):
        read_export(path)


@pytest.mark.parametrize(
    "raw",
    [
        gzip.compress(b"ResourceId,BilledCost\ni-1,0.5\n", mtime=0)[:10] + b"\xff" * 30,
        b'ResourceId,BilledCost\ni-1,"' + b"9" * 200_000 + b'"\n',
        b"ResourceId,BilledCost\ni-1,NaN\n",
        b"ResourceId,BilledCost\ni-1,Infinity\n",
    ],
    ids=["packed badly", "a field too long", "no number", "no end"],
)
def test_an_export_that_is_damaged_is_refused(tmp_path, raw):
    path = tmp_path / "export.csv"
    path.write_bytes(raw)

    with pytest.raises(ContractError, match=r"export\.csv"):
        read_export(path)


def test_our_count_and_the_bill_are_compared_line_by_line():
    lines = [
        BilledLine(resource_id="i-1", usage="BoxUsage:g5.xlarge", cost_micro_usd=PRICE - 50),
        BilledLine(resource_id="i-1", usage="DataTransfer-Regional-Bytes", cost_micro_usd=700),
        BilledLine(resource_id="i-2", usage="BoxUsage:g5.xlarge", cost_micro_usd=2 * PRICE),
        BilledLine(resource_id="i-3", usage="SpotUsage:g5.xlarge", cost_micro_usd=400_000),
        BilledLine(resource_id="i-9", usage="BoxUsage:g5.xlarge", cost_micro_usd=5),
    ]

    found = reconciled([held("i-3", "spot"), held("i-2"), held("i-1"), held("i-4")], lines)

    assert [(line.instance_id, line.verdict.partition(":")[0], line.agrees) for line in found] == [
        ("i-1", "same", True),
        ("i-2", "dearer than counted", False),
        ("i-3", "cheaper as spot", True),
        ("i-4", "not on the bill", False),
    ]
    assert found[0].beside_micro_usd == 700


async def test_one_answer_is_lost_and_the_call_took_effect():
    class Api:
        called = 0

        async def call(self, place, service, operation, **params):
            self.called += 1
            return {}

    inner = Api()
    losing = LosingApi(inner, "create_fleet")

    with pytest.raises(NoAnswer):
        await losing.call(None, "ec2", "create_fleet")
    assert await losing.call(None, "ec2", "create_fleet") == {}
    assert inner.called == 2


DISKS = Disks(gb=200, micro_usd_per_gb_month=80_000)


def with_disks(instance_id, *volumes):
    return replace(held(instance_id), disks=DISKS, volume_ids=volumes)


def test_disks_are_compared_by_the_lines_of_their_volumes():
    ours = with_disks("i-1").disk_micro_usd
    lines = [
        BilledLine(resource_id="i-1", usage="BoxUsage:g5.xlarge", cost_micro_usd=PRICE),
        BilledLine(resource_id="vol-1", usage="EBS:VolumeUsage.gp3", cost_micro_usd=ours - 40),
        BilledLine(resource_id="vol-2", usage="EBS:VolumeUsage.gp3", cost_micro_usd=ours + 900),
    ]

    found = reconciled(
        [
            with_disks("i-1", "vol-1"),
            with_disks("i-2", "vol-2"),
            with_disks("i-3", "vol-3"),
            with_disks("i-4"),
            held("i-5"),
        ],
        lines,
    )

    disks = [line for line in found if line.capacity_type == "disks"]
    assert [(line.instance_id, line.verdict.partition(":")[0], line.agrees) for line in disks] == [
        ("vol-1", "same", True),
        ("vol-2", "dearer than counted", False),
        ("vol-3", "not on the bill", False),
        ("i-4", "its volumes were not seen", False),
    ]
    # 200 GB for an hour of a January at 0.08 USD.
    assert ours == round(200 * 80_000 / (31 * 24))


def test_a_report_is_read_with_its_disks_and_one_of_before_without():
    record = TrialRecord(
        owner="o",
        offering_id="x",
        began_ns=0,
        ended_ns=0,
        most_micro_usd=1,
        worst_micro_usd=1,
        checks=(),
        held=(with_disks("i-1", "vol-1"), held("i-2")),
    )
    said = record.as_json()
    assert read_held(json.dumps(said), "r") == record.held
    assert record.cost_micro_usd == 2 * PRICE + record.held[0].disk_micro_usd

    for row in said["instances"]:
        del row["disks"], row["volume_ids"]

    assert read_held(json.dumps(said), "r") == (held("i-1"), held("i-2"))


async def test_volumes_are_seen_while_there_are_any():
    account = TrialAccount()
    shown = {"InstanceId": "i-0", "BlockDeviceMappings": [{"Ebs": {"VolumeId": "vol-0"}}, {}]}
    reader = ScriptedAccount(DescribeInstances={"Reservations": [{"Instances": [shown]}]})

    record = await record_of(trial(account, reader=reader, offering=settings().offerings[0]))

    seen = {each.instance_id: each.volume_ids for each in record.held}
    assert seen["i-0"] == ("vol-0",)
    assert set(seen.values()) == {("vol-0",), ()}
    assert record.worst_micro_usd > 2 * PRICE * 1800 // 3600


async def test_volumes_that_nobody_names_fail_no_step():
    reader = ScriptedAccount(DescribeInstances=refused("DescribeInstances", "RequestLimitExceeded"))

    record = await record_of(trial(TrialAccount(), reader=reader, offering=settings().offerings[0]))

    assert outcomes(record) == dict.fromkeys(STEPS, OK) | {"interruption": OPEN}
