"""`spotline rehearse aws`: a process of its own that is told of, controlled, killed, and goes on."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
import yaml
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from spotline.adapters.clouds.aws.section import read_section
from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.market.parquet import write_market
from tests.fakes.processes import ROOT
from tests.fakes.rehearsed_ec2 import (
    ACCOUNT,
    FAR,
    NEAR,
    OTHER,
    P4D,
    REGION,
    START_NS,
    made_market,
    offering_id,
)

SPOTLINE = (sys.executable, "-c", "from spotline.cli.main import app; app()")
BARE = (sys.executable, "-m", "spotline.rehearsal.aws", "serve")
ONE_ATTEMPT = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=60)


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPOTLINE_", "AWS_"))}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


class Rehearsal:
    """The process, and what it said of itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        line = process.stdout.readline()
        assert line, process.stderr.read()
        self.said = json.loads(line)
        self.url = self.said["endpoint_url"]

    def get(self, name: str) -> dict:
        with urllib.request.urlopen(f"{self.url}/_rehearsal/{name}", timeout=60) as answer:
            return json.load(answer)

    def post(self, name: str, **said) -> dict:
        request = urllib.request.Request(
            f"{self.url}/_rehearsal/{name}", data=json.dumps(said).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, **json.load(error)}


@contextlib.contextmanager
def rehearsal(state: Path, *options: str, command=BARE):
    program = [*command, "--state", str(state), *options]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield Rehearsal(process)
        finally:
            process.kill()


@functools.cache
def session() -> boto3.Session:
    """One for all: it keeps the models that it has read, which takes long."""
    return boto3.Session(region_name=REGION)


@contextlib.contextmanager
def client(url: str, said: dict, service: str = "ec2", profile: str = "default"):
    keys = keys_of(Path(said["credentials"]), profile)
    made = session().client(service, endpoint_url=url, config=ONE_ATTEMPT, **keys)
    try:
        yield made
    finally:
        made.close()


def keys_of(path: Path, profile: str) -> dict[str, str]:
    lines = path.read_text().split(f"[{profile}]\n")[1].splitlines()[:2]
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


@pytest.fixture(scope="module")
def market(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("market") / "market.parquet"
    write_market(made_market(), path)
    return path


@pytest.fixture(scope="module")
def standing(market, tmp_path_factory):
    state = tmp_path_factory.mktemp("standing")
    options = ("--market", str(market), "--speed", "0", "--calm")
    with rehearsal(state, *options, command=(*SPOTLINE, "rehearse", "aws")) as made:
        yield made


@pytest.fixture(scope="module")
def ec2(standing):
    with client(standing.url, standing.said) as made:
        yield made


def fleet(ec2, count: int, token: str, zone: str = NEAR):
    return ec2.create_fleet(
        Type="instant",
        ClientToken=token,
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": f"spotline-{P4D}",
                    "Version": "$Default",
                },
                "Overrides": [{"InstanceType": P4D, "AvailabilityZone": zone}],
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot",
        },
    )


def ids(answer) -> list[str]:
    return [name for group in answer["Instances"] for name in group["InstanceIds"]]


def test_it_says_where_it_is_and_writes_what_a_user_would(standing):
    said = standing.said
    config = yaml.safe_load(Path(said["config"]).read_text())
    section = config["clouds"]["aws"]

    settings = read_section(read_config(Path(said["config"]), {}).clouds["aws"])

    assert settings.accounts[1].external_id
    assert {one.offering_id for one in settings.offerings} >= {offering_id(), offering_id(FAR)}
    assert said["clock"]["market_ns"] == START_NS
    assert said["clock"]["market_s_per_s"] == 0
    assert section["endpoint_url"] == standing.url
    assert [one["account_id"] for one in section["accounts"]] == [ACCOUNT, OTHER]
    assert "role_arn" in section["accounts"][1]
    assert Path(section["accounts"][1]["external_id"]["file"]).stat().st_mode & 0o077 == 0
    assert Path(said["credentials"]).stat().st_mode & 0o077 == 0
    assert len(section["offerings"]) == 4
    assert section["accounts"][0]["queues"][REGION].startswith(standing.url)


def test_it_is_controlled_while_its_time_stands(standing, ec2):
    first, second = ids(fleet(ec2, 2, "controlled"))
    taken = standing.post("interrupt", instance_id=first, lead_s=60)
    standing.post("terminate", instance_id=second)
    standing.post("advance", seconds=61)
    by_id = {one["instance_id"]: one for one in standing.get("state")["instances"]}
    bill = standing.get("bill")

    assert taken["taken_ns"] == by_id[first]["ended_ns"]
    assert by_id[second]["reason"] == "Client.UserInitiatedShutdown"
    assert standing.get("clock")["now_ns"] == START_NS + 61 * 10**9
    assert bill["total_micro_usd"] == sum(line["micro_usd"] for line in bill["lines"])
    assert {line["instance_id"]: line["micro_usd"] for line in bill["lines"]} == {
        first: 0,
        second: 150_000,
    }


def test_others_in_the_account_use_its_capacity_and_its_quota(standing, ec2):
    far = offering_id(FAR)
    foreign = standing.post("foreign", offering=far, count=3, tags={"team": "else"})
    standing.post("quota", account_id=ACCOUNT, region=REGION, code="L-7212CCBC", vcpus=4 * 96)
    by_quota = fleet(ec2, 5, "foreign-1", FAR)
    standing.post("quota", account_id=ACCOUNT, region=REGION, code="L-7212CCBC", vcpus=1e5)
    standing.post("capacity", offering=far, count=5)
    by_count = fleet(ec2, 5, "foreign-2", FAR)

    assert len(foreign["instance_ids"]) == 3
    assert (len(ids(by_quota)), by_quota["Errors"][0]["ErrorCode"]) == (
        1,
        "MaxSpotInstanceCountExceeded",
    )
    assert len(ids(by_count)) == 1


def test_rights_and_failures_are_scripted(standing, ec2):
    standing.post("deny", account_id=ACCOUNT, operation="DescribeTags")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.describe_tags()
    standing.post("deny", account_id=ACCOUNT, operation="DescribeTags", allow=True)
    standing.post("fail", operation="DescribeTags", code="ConnectionLost")
    with pytest.raises(ConnectionClosedError):
        ec2.describe_tags()
    assert "Tags" in ec2.describe_tags()
    assert standing.get("state")["failed"] == {"SCRIPTED": 1}


@pytest.mark.parametrize(
    ("effect", "dropped", "launched"),
    [("before", True, 0), ("before", False, 1), ("after", True, 1)],
)
def test_a_call_stands_still_until_it_is_let_go(standing, ec2, effect, dropped, launched):
    there = len(standing.get("state")["instances"])
    came = standing.get("state")["came"].get("CreateFleet", 0)
    standing.post("hold", operation="CreateFleet", effect=effect)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(fleet, ec2, 1, f"held-{effect}-{dropped}")
        while not (state := standing.get("state"))["held"]:
            assert not asked.done()
        during = len(state["instances"]) - there
        released = standing.post("release", dropped=dropped)
        if dropped:
            with pytest.raises(ConnectionClosedError):
                asked.result()
        else:
            assert len(ids(asked.result())) == 1

    after = standing.get("state")
    assert (during, released) == (int(effect == "after"), {"released": 1})
    assert len(after["instances"]) - there == launched
    assert (after["held"], after["came"]["CreateFleet"]) == ([], came + 1)


def test_the_call_after_so_many_others_is_held(standing, ec2):
    standing.post("hold", operation="Describe*", skip=1)
    ec2.describe_tags()
    assert standing.get("state")["held"] == []
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ec2.describe_tags)
        while not (held := standing.get("state")["held"]):
            assert not asked.done()
        standing.post("release")
        assert (held, "Tags" in asked.result()) == (["DescribeTags"], True)


@pytest.mark.parametrize(
    ("command", "said", "error"),
    [
        ("hold", {"operation": ""}, "operation must not be empty"),
        ("hold", {"operation": "x", "skip": -1}, "skip must be >= 0"),
        ("hold", {"operation": "x", "effect": "never"}, "effect must be"),
        ("release", {"dropped": 1}, "dropped must be bool"),
        ("interrupt", {"instance_id": "i-0"}, "instance_id must be of an instance"),
        ("fail", {"operation": "x"}, "code must be given"),
        ("fail", {"operation": "x", "code": "y", "times": "2"}, "times must be int"),
        ("fail", {"operation": "x", "code": "y", "effect": "never"}, "effect must be"),
        ("capacity", {"offering": "moon", "count": 1}, "offering must be one of aws:"),
        ("capacity", {"offering": offering_id(), "count": -1}, "count must be >= 0"),
        ("quota", {"code": "L-0"}, "code must be one of"),
        ("deny", {"account_id": ACCOUNT, "operation": "Fly"}, "operation must be"),
        ("deny", {"account_id": "1", "operation": "CreateFleet"}, "account_id must be"),
        ("foreign", {"offering": offering_id(), "count": 99}, "count must be >= 1"),
        ("advance", {"seconds": -1}, "seconds must be >= 0"),
        ("terminate", {}, "instance_id must be given"),
    ],
)
def test_wrong_control_is_told_which_field_and_what_was_expected(standing, command, said, error):
    refused = standing.post(command, **said)

    assert refused["status"] == 400
    assert error in refused["error"]


def test_a_killed_rehearsal_goes_on_with_its_instances_and_tokens(market, tmp_path):
    with rehearsal(tmp_path, "--market", str(market), "--speed", "60") as first:
        with client(first.url, first.said) as ec2:
            answer = fleet(ec2, 2, "kept")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        clock = first.said["clock"]
    with rehearsal(tmp_path) as second:
        with client(second.url, second.said) as ec2:
            again = fleet(ec2, 2, "kept")
        assert second.said["clock"] == clock
        assert (again["FleetId"], ids(again)) == (answer["FleetId"], ids(answer))
        assert len(second.get("state")["instances"]) == 2
        second.process.terminate()
        assert second.process.wait() == 0


def test_it_needs_a_market_or_a_state():
    asked = subprocess.run(
        [*SPOTLINE, "rehearse", "aws"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )

    assert asked.returncode == 2
    assert "--market must be given" in asked.stderr
