"""Feeds, doctor and certify against the rehearsal of AWS: a process that they meet over HTTP only."""

import asyncio
import csv
import json
import os
import subprocess
import sys
import urllib.request
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spotline.adapters.clouds.aws.api import BotoApi
from spotline.adapters.clouds.aws.calls import ADVISED, BILLING, EXAMINING, INTERRUPTING
from spotline.adapters.clouds.aws.certify.opening import processes_of
from spotline.adapters.clouds.aws.certify.trial import AwsTrial, TrialPlan
from spotline.adapters.clouds.aws.doctor.examination import examine
from spotline.adapters.clouds.aws.feeds.advice import PlacementAdvice
from spotline.adapters.clouds.aws.feeds.feed import AwsMarketFeed, FeedPace
from spotline.adapters.clouds.aws.feeds.placement_scores import PlacementScores
from spotline.adapters.clouds.aws.feeds.wall import SystemWall
from spotline.adapters.clouds.aws.opening import biller_of, open_aws
from spotline.adapters.clouds.aws.reader import ApiReader
from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.market.parquet import write_market
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import BilledInstance, LaunchRequest, Owner
from spotline.application.cloud_checks import (
    CheckOutcome,
    Examination,
)
from spotline.bootstrap.clouds import cloud_of
from spotline.cli.main import app
from spotline.domain.market.market import OBSERVED, Market
from spotline.domain.market.offering import CapacityType, Disks, Offering, Quote, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations
from spotline.domain.modes import Mode
from spotline.domain.units import NS_PER_S
from tests.eventually import PATIENCE_S

pytestmark = pytest.mark.integration

SPEED = 600.0
SLOTS, SLOT_S, START_S = 48, 3600, 1_793_430_000
TYPES = {"g5.xlarge": ("a10g", 1, 400_000, 1_006_000), "p4d.24xlarge": ("a100-40gb", 8, 9_000_000, 21_957_642)}  # fmt: skip


def market() -> Market:
    """Two types of AWS in two zones of one account."""
    offerings, prices = [], []
    for zone in ("use1-az1", "use1-az2"):
        for kind, (gpu, gpus, spot, on_demand) in TYPES.items():
            offerings.append(
                Offering(
                    offering_id=f"aws:default:{zone}:{kind}",
                    provider="aws",
                    account="default",
                    region="us-east-1",
                    zone=zone,
                    instance_type=kind,
                    gpu_model=gpu,
                    gpus_per_instance=gpus,
                    quota_pool="p",
                    disks=Disks(gb=200, micro_usd_per_gb_month=80_000),
                )
            )
            prices.append((spot, on_demand))
    return with_reservations(_open_market(offerings, prices), _planned(offerings))


def _planned(offerings) -> list[Offering]:
    """A savings plan over both zones: three of the larger type fit into it."""
    plan = Reservation(
        instances=3,
        sunk_price_micro_usd=12_000_000,
        plan="sp-1",
        plan_micro_usd_per_hour=36_000_000,
    )
    large = [offering for offering in offerings if offering.instance_type == "p4d.24xlarge"]
    return [reserved_offering(offering, "sp-1", plan) for offering in large]


def _open_market(offerings, prices) -> Market:
    shape = (SLOTS, len(offerings))
    starts = (START_S + np.arange(SLOTS, dtype=np.int64) * SLOT_S) * NS_PER_S
    return Market(
        offerings=tuple(offerings),
        slot_s=SLOT_S,
        start_ns=START_S * NS_PER_S,
        spot_price_micro_usd=np.broadcast_to([spot for spot, _ in prices], shape).copy(),
        on_demand_price_micro_usd=np.broadcast_to([price for _, price in prices], shape).copy(),
        spot_available=np.full(shape, 8),
        spot_provenance=np.full(shape, OBSERVED),
        on_demand_available=np.full(shape, 8),
        on_demand_provenance=np.full(shape, OBSERVED),
        quoted_ns=np.repeat(starts[:, None], shape[1], axis=1),
        source="test",
    )


STEPS = (
    *("launch", "same token", "lost answer", "interruption", "orphan", "terminate"),
    "nothing left",
)


class Rehearsal:
    """A rehearsal that runs, and what can be done to it."""

    def __init__(self, said: dict) -> None:
        self.url, self.config = said["endpoint_url"], Path(said["config"])
        environ = dict(os.environ)
        config = read_config(self.config, environ)
        self.settings = cloud_of(environ, "aws", Mode.LIVE, config).settings

    def post(self, command: str, **params) -> dict:
        request = urllib.request.Request(
            f"{self.url}/_rehearsal/{command}", json.dumps(params).encode()
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def bill(self) -> dict:
        with urllib.request.urlopen(f"{self.url}/_rehearsal/bill", timeout=PATIENCE_S) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    write_market(market(), folder / "market.parquet")
    program = [
        sys.executable,
        "-m",
        "spotline.rehearsal.aws",
        "serve",
        "--calm",
        f"--speed={SPEED}",
    ]
    program += [f"--market={folder / 'market.parquet'}", f"--state={folder / 'state'}"]
    with (
        subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", said["credentials"])
            patch.delenv("AWS_PROFILE", raising=False)
            yield Rehearsal(said)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def reader(rehearsal):
    made = ApiReader(rehearsal.settings, EXAMINING)
    yield made
    made.close()


def test_the_doctor_finds_a_rehearsal_well_and_a_test_message_takes_its_way(rehearsal):
    command = ["cloud", "doctor", "aws", f"--config={rehearsal.config}", "--test-message", "--json"]

    done = CliRunner().invoke(app, command)

    said = json.loads(done.stdout)
    assert (done.exit_code, said["exit_code"], said["cloud"]) == (0, 0, "aws"), said
    found: dict[str, set] = {}
    for check in said["checks"]:
        assert set(check) == {"name", "where", "outcome", "detail", "next_step"}
        found.setdefault(check["name"], set()).add(check["outcome"])
    well = ("credentials", "clock", "zones", "instance types", "quota", "queue", "rule")
    for name in (*well, "test message", "list price"):
        assert found[name] == {"ok"}, name
    # TerminateInstances cannot be tried on what is nobody's.
    assert found["rights"] == {"ok", "not checked"}


async def test_the_doctor_names_what_an_account_may_not_do(rehearsal, reader):
    account = rehearsal.settings.accounts[0].account_id
    for operation in ("CreateFleet", "DescribeSubnets"):
        rehearsal.post("deny", account_id=account, operation=operation)
    try:
        async with asyncio.timeout(PATIENCE_S):
            checks = await examine(
                reader, rehearsal.settings, SystemWall(), Examination(token="test-2")
            )
    finally:
        for operation in ("CreateFleet", "DescribeSubnets"):
            rehearsal.post("deny", account_id=account, operation=operation, allow=True)

    told = {(check.name, check.outcome): check for check in checks}
    assert "act-policy.json" in told["rights", CheckOutcome.FAILED].next_step
    assert "ec2:DescribeSubnets" in told["launch template", CheckOutcome.WARNING].next_step


async def test_the_feed_quotes_what_the_market_says(rehearsal, tmp_path):
    api = ApiReader(rehearsal.settings, ADVISED)
    advice = PlacementAdvice(PlacementScores(api, tmp_path / "scores.json"), 16)
    try:
        feed = AwsMarketFeed(rehearsal.settings, api, SystemWall(), pace=FeedPace(), advice=advice)
        offerings = await feed.offerings()
        async with asyncio.timeout(PATIENCE_S), aclosing(feed.quotes()) as quotes:
            said = [await anext(quotes) for _ in offerings]
    finally:
        api.close()

    traded = market()
    assert all(isinstance(quote, Quote) for quote in said)
    assert {
        quote.offering_id: (quote.spot_price_micro_usd, quote.on_demand_price_micro_usd)
        for quote in said
    } == {
        offering.offering_id: TYPES[offering.instance_type][2:]
        for offering in traded.offerings
        if offering.reservation is None
    }
    assert not any(quote.spot_available.known for quote in said)
    # Eight are there in each zone, half of what is asked for; advice changes no price.
    assert {quote.placement_score for quote in said} == {5}
    assert all(quote.scored_ns for quote in said)


class FisOfRehearsal:
    """Implements `AwsReader`: the rehearsal has no FIS, so its console takes the instance back."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal, self.taken, self.deleted = rehearsal, [], []
        self.reader = ApiReader(rehearsal.settings, BILLING)

    async def call(self, account, region, service, operation, **params):
        if service == "ec2":
            return await self.reader.call(account, region, service, operation, **params)
        assert operation in INTERRUPTING[service]
        if operation == "CreateExperimentTemplate":
            (target,) = params["targets"].values()
            self.taken = [arn.rpartition("/")[2] for arn in target["resourceArns"]]
            return {"experimentTemplate": {"id": "EXT"}}
        if operation == "StartExperiment":
            for instance_id in self.taken:
                await asyncio.to_thread(self.rehearsal.post, "interrupt", instance_id=instance_id)
        else:
            self.deleted.append(params["id"])
        return {}


async def test_a_certification_shows_every_step_and_agrees_with_the_bill(rehearsal, tmp_path):
    fis, api = FisOfRehearsal(rehearsal), BotoApi(rehearsal.settings)
    settings = rehearsal.settings
    trial = AwsTrial(
        TrialPlan(
            offering=next(each for each in settings.offerings if each.instance_type == "g5.xlarge"),
            token="c1",
            price_micro_usd=TYPES["g5.xlarge"][3],
            most_micro_usd=200_000_000,
            # Six minutes of the wall clock.
            lease_s=60 * 3600,
            account_id=settings.accounts[0].account_id,
            interruption_role="arn:role",
            poll_s=0.05,
        ),
        processes_of(settings, tmp_path, api),
        fis,
        SystemWall(),
        settings.clock,
    )

    try:
        async with asyncio.timeout(PATIENCE_S):
            await trial.run()
    finally:
        api.close()
        fis.reader.close()
    record = trial.record()

    assert {check.name: check.outcome for check in record.checks} == dict.fromkeys(
        STEPS,
        CheckOutcome.OK,
    )
    assert fis.deleted == ["EXT"]
    lines = [line for line in rehearsal.bill()["lines"] if record.owner in line["tags"].values()]
    # Nothing twice, and nothing left.
    assert sorted(line["instance_id"] for line in lines) == sorted(
        held.instance_id for held in record.held
    )
    assert not any(line["open"] for line in lines)
    assert sum(line["micro_usd"] for line in lines) <= record.cost_micro_usd + 3 * 100
    _reconciled(record, lines, tmp_path)


def _reconciled(record, lines, folder: Path) -> None:
    """The report and an export of the bill, held against each other by the command."""
    report, export = folder / "report.json", folder / "export.csv"
    report.write_text(json.dumps(record.as_json()))
    with export.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["line_item_resource_id", "line_item_unblended_cost", "line_item_usage_type"])
        for line in lines:
            use = "SpotUsage" if line["lifecycle"] == "spot" else "BoxUsage"
            cost = f"{line['micro_usd'] / 1e6:.6f}"
            rows.writerow([line["instance_id"], cost, f"{use}:{line['instance_type']}"])
            of_disk = f"{line['disk_micro_usd'] / 1e6:.6f}"
            rows.writerow([line["volume_id"], of_disk, "EBS:VolumeUsage.gp3"])

    command = ["cloud", "certify", "aws", "--reconcile", str(export), "--report", str(report)]
    done = CliRunner().invoke(app, [*command, "--json"])

    told = {line["instance_id"]: line for line in json.loads(done.stdout)}
    assert set(told) == {line[name] for line in lines for name in ("instance_id", "volume_id")}
    for line in lines:
        assert told[line["volume_id"]]["billed_micro_usd"] == line["disk_micro_usd"]
        assert told[line["instance_id"]]["billed_micro_usd"] == line["micro_usd"]


async def test_a_plans_instances_cost_their_disks_on_both_bills(rehearsal, tmp_path):
    settings = rehearsal.settings
    planned = [each for each in settings.offerings if each.savings_plan]
    reader, owner = ApiReader(settings, BILLING), Owner(name="plan", epoch=1)
    cloud = open_aws(tmp_path, settings)
    moment = Moment(slot=0, slot_s=3600, offset_s=0, ts_ns=cloud.clock.now_ns())
    try:
        biller = biller_of(cloud, reader, settings)
        async with asyncio.timeout(PATIENCE_S):
            ours = {}
            for number, offering in enumerate(planned):
                grant = await cloud.launch(
                    LaunchRequest(
                        token=f"plan-{number}",
                        owner=owner,
                        job_id="j",
                        tenant="t",
                        quota_pool="p",
                        offering_id=offering.offering_id,
                        capacity_type=CapacityType.ON_DEMAND,
                        instances=1,
                        at=moment,
                    )
                )
                ours |= {each.instance_id: offering.offering_id for each in grant.instances}
            # So long that no minimum is billed.
            await SystemWall().sleep(180 / SPEED)
            await cloud.terminate(owner, sorted(ours))
            asked = [
                BilledInstance(
                    instance_id=name, offering_id=where, capacity_type=CapacityType.ON_DEMAND
                )
                for name, where in ours.items()
            ]
            settled = {}
            while settled.keys() != ours.keys():
                settled = {word.instance_id: word for word in await biller.final_costs(asked)}
                await SystemWall().sleep(0.05)
    finally:
        cloud.close()
        reader.close()

    lines = {line["instance_id"]: line for line in rehearsal.bill()["lines"]}
    assert len(ours) == len(planned) == 2
    for name, word in settled.items():
        assert lines[name]["billed_s"] > 60
        assert lines[name]["micro_usd"] == 0
        assert word.micro_usd == word.disk_micro_usd == lines[name]["disk_micro_usd"] > 0


def test_commands_say_what_they_need(rehearsal, tmp_path, monkeypatch):
    # `certify` opens its report where it is called, also where it is refused then.
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    config = f"--config={rehearsal.config}"

    without = run(app, ["cloud", "doctor", "aws"])
    unpriced = run(app, ["cloud", "certify", "aws", config])
    other = run(app, ["cloud", "doctor", "local", config])
    dear = run(
        app,
        [
            *("cloud", "certify", "aws", config, "--max-usd=0.01"),
            f"--report={tmp_path / 'report.json'}",
        ],
    )
    begun = [*("cloud", "certify", "aws", config, "--max-usd=5"), f"--report={tmp_path / 'r.json'}"]
    unknown = run(app, [*begun, "--offering=x"])

    assert [*tmp_path.glob("r*.json")] == []
    assert [each.exit_code for each in (without, unpriced, other, dear, unknown)] == [2] * 5
    assert "clouds.aws: expected its accounts and offerings" in without.stderr
    assert "--max-usd: expected what it may cost" in unpriced.stderr
    assert "CLOUD: expected one that costs money (aws)" in other.stderr
    assert "--max-usd: expected at least 1.03" in dear.stderr
    assert "--offering: expected one of the offerings" in unknown.stderr
