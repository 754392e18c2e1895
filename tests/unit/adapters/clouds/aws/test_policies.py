"""deploy/aws: every call that is made is allowed, no other is, and what is launched is tied down."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotline.adapters.clouds.aws.api import CALLS
from spotline.adapters.clouds.aws.calls import BILLING, EXAMINING, INTERRUPTING, OBSERVING
from spotline.adapters.clouds.aws.doctor.queues import (
    ADVICE,
    NOTICE,
    TEST_SOURCE,
    TEST_TYPE,
    pattern_takes,
)
from spotline.adapters.clouds.aws.tags import INSTALLATION
from tests.fakes.strict_yaml import read_yaml

ROOT = Path(__file__).parents[5]
AWS = ROOT / "deploy/aws"
SOURCES = ROOT / "src/spotline/adapters/clouds/aws"

PREFIX = {"service-quotas": "servicequotas"}
# Service Authorization Reference: what an operation needs beside itself, or instead of itself.
BATCHES = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}
ALSO = {
    "ec2:CreateFleet": {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"},
    "fis:CreateExperimentTemplate": {"iam:PassRole"},
}
# "No permissions are required": API reference of GetCallerIdentity.
FREE = {"sts:GetCallerIdentity"}


def policy(name: str) -> dict:
    return json.loads((AWS / f"{name}-policy.json").read_text())


def listed(value) -> list:
    return value if isinstance(value, list) else [value]


def allowed(name: str) -> set[str]:
    return {
        action for statement in policy(name)["Statement"] for action in listed(statement["Action"])
    }


def actions(calls) -> Iterator[str]:
    """The IAM actions of some calls, with what each needs beside itself."""
    for service, operations in calls.items():
        for operation in operations:
            camel = operation if operation[0].isupper() else operation.title().replace("_", "")
            action = f"{PREFIX.get(service, service)}:{camel}"
            action = BATCHES.get(action, action)
            if action not in FREE:
                yield action
                yield from ALSO.get(action, ())


ACTING = {*actions(CALLS), *actions(BILLING)} - {"sts:AssumeRole"}
DRY_RUNS = {"ec2:CreateFleet", "ec2:RunInstances", "ec2:TerminateInstances"}


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("observe", set(actions(OBSERVING))),
        ("act", ACTING),
        ("caller", {"sts:AssumeRole"}),
        # It examines with the rights to act, and adds what only it asks for.
        ("doctor", set(actions(EXAMINING)) - DRY_RUNS - {"ec2:CreateTags", "iam:PassRole"}),
        ("certify", set(actions(INTERRUPTING))),
    ],
)
def test_a_policy_allows_what_is_called_and_nothing_else(name, needed):
    assert allowed(name) == needed


@pytest.mark.parametrize("name", ["observe", "act", "caller", "doctor", "certify"])
def test_a_policy_is_one_of_iam(name):
    stated = policy(name)

    assert stated["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in stated["Statement"]]
    assert len(set(sids)) == len(sids)
    assert all(re.fullmatch(r"[A-Za-z0-9]+", sid) for sid in sids)
    for statement in stated["Statement"]:
        assert statement["Effect"] == "Allow"
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert not any("*" in action for action in listed(statement["Action"]))
        assert listed(statement["Action"]) == sorted(listed(statement["Action"]))
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html: managed policies.
    assert len(json.dumps(stated, separators=(",", ":"))) <= 6144


def test_observing_changes_nothing():
    assert all(re.match(r"\w+:(Describe|Get)", action) for action in allowed("observe"))


def of_action(name: str, action: str) -> list[dict]:
    return [
        statement
        for statement in policy(name)["Statement"]
        if action in listed(statement["Action"])
    ]


def test_only_what_carries_the_installation_is_launched_tagged_and_ended():
    installation = {f"aws:RequestTag/{INSTALLATION}": "INSTALLATION_ID"}
    for action in ("ec2:CreateFleet", "ec2:RunInstances"):
        for statement in of_action("act", action):
            resources = listed(statement["Resource"])
            launched = any(re.search(r":(instance|fleet)/", each) for each in resources)
            assert launched == ("Condition" in statement)
            if launched:
                assert statement["Condition"]["StringEquals"] == installation
    (tagging,) = of_action("act", "ec2:CreateTags")
    assert tagging["Condition"]["StringEquals"] == {
        **installation,
        "ec2:CreateAction": ["CreateFleet", "RunInstances"],
    }
    (ending,) = of_action("act", "ec2:TerminateInstances")
    assert ending["Condition"]["StringEquals"] == {
        f"aws:ResourceTag/{INSTALLATION}": "INSTALLATION_ID"
    }


def test_one_role_alone_is_passed_and_one_queue_read():
    (passing,) = of_action("act", "iam:PassRole")
    assert passing["Resource"] == "arn:aws:iam::ACCOUNT_ID:role/INSTANCE_ROLE"
    assert passing["Condition"]["StringEquals"] == {"iam:PassedToService": "ec2.amazonaws.com"}
    for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage"):
        (reading,) = of_action("act", action)
        assert reading["Resource"].endswith(":QUEUE_NAME")


def test_bills_are_read_by_the_rights_to_observe_and_to_act():
    assert set(actions(BILLING)) <= allowed("observe") | allowed("act")


def operations_in(*folders: str) -> set[str]:
    """Operations that the sources of some packages name when they call."""
    found: set[str] = set()
    for folder in folders:
        for path in sorted((SOURCES / folder).rglob("*.py")):
            found |= set(re.findall(r'"((?:[A-Z][a-z]+){2,})"', path.read_text()))
    return found


@pytest.mark.parametrize(
    ("folders", "calls"), [(("feeds",), OBSERVING), (("feeds", "doctor"), EXAMINING)]
)
def test_what_is_listed_as_called_is_called(folders, calls):
    named = operations_in(*folders)

    assert {operation for operations in calls.values() for operation in operations} <= named


@pytest.fixture
def stack(tmp_path) -> dict:
    text = (AWS / "notices.yaml").read_text()
    # CloudFormation's short forms are tags of YAML: !Ref X, !GetAtt A.B, !Sub "...", !Equals [..].
    plain = tmp_path / "notices.yaml"
    plain.write_text(re.sub(r"!(Ref|GetAtt|Sub|Equals) ", "", text))
    return read_yaml(plain)


def test_the_stack_tells_notices_into_a_queue_of_the_installation_alone(stack):
    resources = stack["Resources"]
    rule = resources["Rule"]["Properties"]

    assert rule["State"] == "ENABLED"
    assert all(pattern_takes(json.dumps(rule["EventPattern"]), kind) for kind in (NOTICE, *ADVICE))
    assert TEST_SOURCE in rule["EventPattern"]["source"]
    assert TEST_TYPE in rule["EventPattern"]["detail-type"]
    assert [target["Arn"] for target in rule["Targets"]] == ["Queue.Arn"]
    sends, denied = resources["QueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert sends["Condition"] == {"ArnEquals": {"aws:SourceArn": "Rule.Arn"}}
    assert denied["Effect"] == "Deny"
    assert "${InstallationId}" in resources["Queue"]["Properties"]["QueueName"]


def test_the_role_that_interrupts_touches_own_instances_alone(stack):
    role = stack["Resources"]["InterruptionRole"]["Properties"]
    _, interrupting = role["Policies"][0]["PolicyDocument"]["Statement"]

    assert interrupting["Action"] == "ec2:SendSpotInstanceInterruptions"
    assert interrupting["Condition"]["StringEquals"] == {
        f"aws:ResourceTag/{INSTALLATION}": "InstallationId"
    }
