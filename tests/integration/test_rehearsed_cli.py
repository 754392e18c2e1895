"""The AWS command line, as it comes, goes through a rehearsal: no part of it is ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spotline.adapters.market.parquet import write_market
from tests.fakes.rehearsed_ec2 import ACCOUNT, NEAR, P4D, REGION, START_NS, made_market
from tests.integration.test_rehearsed_process import Rehearsal, rehearsal

AWS = shutil.which("aws")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        AWS is None, reason="no `aws` on PATH: pip install awscli, in an environment of its own"
    ),
]


class CommandLine:
    """Runs `aws` with the credentials that the rehearsal wrote, and nothing of this user's."""

    def __init__(self, made: Rehearsal, home: Path) -> None:
        self._url = made.url
        kept = {name: said for name, said in os.environ.items() if not name.startswith("AWS_")}
        self._environment = {
            **{name: said for name, said in kept.items() if name != "PYTHONPATH"},
            "HOME": str(home),
            "AWS_SHARED_CREDENTIALS_FILE": made.said["credentials"],
            "AWS_CONFIG_FILE": str(home / "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_PAGER": "",
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        options = ("--endpoint-url", self._url, "--region", REGION, "--output", "json")
        return subprocess.run(
            [str(AWS), *options, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def __call__(self, *words: str) -> Any:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    folder = tmp_path_factory.mktemp("rehearsed")
    write_market(made_market(), folder / "market.parquet")
    options = ("--market", str(folder / "market.parquet"), "--speed", "0", "--calm")
    with rehearsal(folder / "state", *options) as made:
        yield made


@pytest.fixture(scope="module")
def aws(rehearsed: Rehearsal, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(rehearsed, tmp_path_factory.mktemp("home"))


def states(answer: Any) -> dict[str, str]:
    rows = [row for one in answer["Reservations"] for row in one["Instances"]]
    return {row["InstanceId"]: row["State"]["Name"] for row in rows}


def launched(aws: CommandLine, token: str, count: int) -> tuple[str, list[str]]:
    place = {"InstanceType": P4D, "AvailabilityZone": NEAR}
    template = {"LaunchTemplateName": f"spotline-{P4D}", "Version": "$Default"}
    config = [{"LaunchTemplateSpecification": template, "Overrides": [place]}]
    target = f"TotalTargetCapacity={count},DefaultTargetCapacityType=spot"
    answer = aws(
        *("ec2", "create-fleet", "--type", "instant", "--client-token", token),
        *("--launch-template-configs", json.dumps(config)),
        *("--target-capacity-specification", target),
    )
    ids = [name for group in answer["Instances"] for name in group["InstanceIds"]]
    return answer["FleetId"], ids


def test_it_launches_describes_and_terminates(rehearsed: Rehearsal, aws: CommandLine) -> None:
    assert aws("sts", "get-caller-identity")["Account"] == ACCOUNT

    fleet, ids = launched(aws, "by-hand", 2)
    rehearsed.post("advance", seconds=120)
    by_id = ("ec2", "describe-instances", "--instance-ids", *ids)

    assert len(ids) == 2
    assert states(aws(*by_id)) == dict.fromkeys(ids, "running")
    # The same token is the same fleet; with other parameters it is refused.
    assert launched(aws, "by-hand", 2) == (fleet, ids)
    with pytest.raises(AssertionError, match="IdempotentParameterMismatch"):
        launched(aws, "by-hand", 1)

    ending = aws("ec2", "terminate-instances", "--instance-ids", *ids)["TerminatingInstances"]
    assert {row["PreviousState"]["Name"] for row in ending} == {"running"}
    rehearsed.post("advance", seconds=300)
    assert states(aws(*by_id)) == dict.fromkeys(ids, "terminated")
    billed = rehearsed.get("bill")["lines"]
    assert {row["instance_id"] for row in billed} >= set(ids)


def test_it_reads_the_history_of_spot_prices(aws: CommandLine) -> None:
    start = datetime.fromtimestamp(START_NS // 10**9, tz=UTC)

    rows = aws(
        *("ec2", "describe-spot-price-history", "--instance-types", P4D),
        *("--product-descriptions", "Linux/UNIX", "--start-time", start.isoformat()),
        *("--end-time", (start + timedelta(hours=1)).isoformat()),
    )["SpotPriceHistory"]

    assert {row["InstanceType"] for row in rows} == {P4D}
    assert all(float(row["SpotPrice"]) > 0 for row in rows)


def test_a_refusal_is_said_as_aws_says_it(rehearsed: Rehearsal, aws: CommandLine) -> None:
    refused = aws.run("ec2", "describe-instances", "--instance-ids", "i-0123456789abcdef0")
    assert "InvalidInstanceID.NotFound" in refused.stderr
    rehearsed.post("fail", operation="DescribeInstances", code="RequestLimitExceeded", times=1)
    assert "RequestLimitExceeded" in aws.run("ec2", "describe-instances").stderr
