"""What the doctor finds in an account: each thing that can be wrong, with what to do next."""

import asyncio
import base64
import re

import pytest

from spotline.adapters.clouds.aws.doctor.costs import nat_of
from spotline.adapters.clouds.aws.doctor.examination import examine
from spotline.adapters.clouds.aws.doctor.queues import NOTICE, pattern_takes
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsSettings
from spotline.application.cloud_checks import (
    CallBack,
    CheckOutcome,
    Examination,
    checks_exit_code,
)
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from tests.eventually import PATIENCE_S
from tests.fakes.aws_account import (
    ANSWERS,
    NO_DISKS,
    NOW_S,
    QUEUE_ARN,
    ScriptedAccount,
    StandingWall,
    refused,
    settings,
)

FAILED, WARNING, OPEN = CheckOutcome.FAILED, CheckOutcome.WARNING, CheckOutcome.OPEN


async def examined(account=None, *, now_s=NOW_S, of=None, **plan):
    return await examine(
        account or ScriptedAccount(),
        of or settings(),
        StandingWall(now_s),
        Examination(token="t1", **plan),
    )


def not_well(checks):
    return [(check.name, check.outcome) for check in checks if check.outcome is not CheckOutcome.OK]


def template(**data):
    return {"LaunchTemplateVersions": [{"LaunchTemplateData": {"ImageId": "ami-1", **data}}]}


def subnet(**changed):
    return {"Subnets": [{**ANSWERS["DescribeSubnets"]["Subnets"][0], **changed}]}


def of_type(**changed):
    return {"InstanceTypes": [{**ANSWERS["DescribeInstanceTypes"]["InstanceTypes"][0], **changed}]}


def attributes(**changed):
    return {"Attributes": {**ANSWERS["GetQueueAttributes"]["Attributes"], **changed}}


async def test_where_all_is_well_nothing_else_is_said():
    checks = await examined()

    assert not_well(checks) == []
    assert checks_exit_code(checks) == 0
    assert {"credentials", "clock", "rights", "quota", "queue", "rule", "costs"} <= {
        check.name for check in checks
    }


async def test_nothing_is_changed_unless_it_is_asked_for():
    account = ScriptedAccount()

    await examined(account)

    writes = re.compile(r"ec2:(Create|Run|Terminate)")
    assert all(params["DryRun"] for action, params in account.calls if writes.match(action))
    assert not {"events:PutEvents", "sqs:ReceiveMessage", "sqs:DeleteMessage"} & set(
        account.called()
    )


UNAUTHORISED = refused("x")
WRONG = {
    "no credentials": ({"GetCallerIdentity": ConfigError("none")}, "credentials", FAILED, "log in"),
    "another account": (
        {"GetCallerIdentity": {"Account": "000000000009", "Arn": "arn"}},
        "credentials",
        FAILED,
        "role_arn",
    ),
    "no network": (
        {"GetCallerIdentity": ProviderUnavailable("timed out")},
        "credentials",
        FAILED,
        "network",
    ),
    "no spot role": (
        {"GetRole": refused("GetRole", "NoSuchEntity")},
        "spot role",
        FAILED,
        "create-service-linked-role",
    ),
    "spot role not to be read": ({"GetRole": refused("GetRole", "AccessDenied")}, "spot role", WARNING, "iam:GetRole"),
    "zone not there": ({"DescribeAvailabilityZones": {"AvailabilityZones": []}}, "zones", FAILED, "by its id"),
    "type unknown": ({"DescribeInstanceTypes": {"InstanceTypes": []}}, "instance types", FAILED, "type of EC2"),
    "type with other GPUs": (
        {"DescribeInstanceTypes": of_type(GpuInfo={"Gpus": [{"Count": 4}]})},
        "instance types",
        FAILED,
        "gpus_per_instance to 4",
    ),
    "type never spot": (
        {"DescribeInstanceTypes": of_type(SupportedUsageClasses=["on-demand"])},
        "instance types",
        WARNING,
        "on-demand",
    ),
    "type sold elsewhere": (
        {"DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": [{"Location": "use1-az6", "InstanceType": "g5.xlarge"}]}},
        "instance types",
        FAILED,
        "use1-az6",
    ),
    "no such version": ({"DescribeLaunchTemplateVersions": {}}, "launch template", FAILED, "$Default"),
    "template not to be read": ({"DescribeLaunchTemplateVersions": UNAUTHORISED}, "launch template", WARNING, "ec2:DescribeLaunchTemplateVersions"),
    "template is not there": (
        {"DescribeLaunchTemplateVersions": refused("x", "InvalidLaunchTemplateId.NotFound")},
        "launch template",
        FAILED,
        "AWS names",
    ),
    "template buys by itself": (
        {"DescribeLaunchTemplateVersions": template(InstanceMarketOptions={"MarketType": "spot"})},
        "launch template",
        FAILED,
        "InstanceMarketOptions",
    ),
    "template stops": (
        {"DescribeLaunchTemplateVersions": template(InstanceInitiatedShutdownBehavior="stop")},
        "launch template",
        WARNING,
        "terminate",
    ),
    "template protects": (
        {"DescribeLaunchTemplateVersions": template(DisableApiTermination=True)},
        "launch template",
        FAILED,
        "DisableApiTermination",
    ),
    "template keeps disks": (
        {"DescribeLaunchTemplateVersions": template(BlockDeviceMappings=[{"DeviceName": "b", "Ebs": {"DeleteOnTermination": False, "VolumeSize": 1}}])},
        "launch template",
        WARNING,
        "DeleteOnTermination",
    ),
    "template with IMDSv1": (
        {"DescribeLaunchTemplateVersions": template(MetadataOptions={"HttpTokens": "optional"})},
        "launch template",
        WARNING,
        "required",
    ),
    "no image": ({"DescribeLaunchTemplateVersions": template(ImageId="")}, "launch template", FAILED, "ImageId"),
    "image is gone": ({"DescribeImages": {"Images": []}}, "launch template", FAILED, "share the image"),
    "image of another architecture": (
        {"DescribeImages": {"Images": [{"Architecture": "arm64"}]}},
        "launch template",
        FAILED,
        "architecture",
    ),
    "subnet elsewhere": ({"DescribeSubnets": subnet(AvailabilityZoneId="use1-az6")}, "launch template", FAILED, "subnet"),
    "subnet is full": ({"DescribeSubnets": subnet(AvailableIpAddressCount=0)}, "launch template", FAILED, "larger"),
    "may not create": ({"CreateFleet": UNAUTHORISED}, "rights", FAILED, "act-policy.json"),
    "would be refused": ({"RunInstances": refused("x", "InvalidParameterValue")}, "rights", FAILED, "EC2 names"),
    "no dry run": ({"CreateFleet": {}}, "rights", WARNING, "spotline-owner"),
    "may end own ones alone": ({"TerminateInstances": UNAUTHORISED}, "rights", OPEN, "--launch"),
    "no history": ({"LookupEvents": refused("LookupEvents", "AccessDeniedException")}, "rights", WARNING, "allow cloudtrail:LookupEvents"),
    "no quota": ({"GetServiceQuota": {"Quota": {"Value": 0.0}}}, "quota", FAILED, "--desired-value 4"),
    "queue is not there": (
        {"GetQueueAttributes": refused("x", "AWS.SimpleQueueService.NonExistentQueue")},
        "queue",
        FAILED,
        "AWS names",
    ),
    "queue without policy": ({"GetQueueAttributes": attributes(Policy="")}, "queue", FAILED, "notices.yaml"),
    "queue for another": (
        {"GetQueueAttributes": attributes(Policy=attributes()["Attributes"]["Policy"].replace("events", "sns"))},
        "queue",
        FAILED,
        "notices.yaml",
    ),
    "queue nobody reads": (
        {"GetQueueAttributes": attributes(ApproximateNumberOfMessages="5000")},
        "queue",
        WARNING,
        "its own",
    ),
    "no rule": ({"ListRuleNamesByTarget": {"RuleNames": []}}, "rule", FAILED, "notices.yaml"),
    "rule is off": (
        {"DescribeRule": {**ANSWERS["DescribeRule"], "State": "DISABLED"}},
        "rule",
        FAILED,
        "notices.yaml",
    ),
    "rule of notices alone": (
        {"DescribeRule": {"EventPattern": f'{{"detail-type": ["{NOTICE}"]}}'}},
        "rule",
        WARNING,
        "notices.yaml",
    ),
    "price by the table": ({"GetProducts": UNAUTHORISED}, "list price", WARNING, "GetProducts"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(WRONG))
async def test_what_is_wrong_is_found_with_what_to_do_next(case):
    answers, name, outcome, step = WRONG[case]

    checks = await examined(ScriptedAccount(**answers))

    found = [check for check in checks if (check.name, check.outcome) == (name, outcome)]
    assert found, not_well(checks)
    assert any(re.sub(r"\s+", " ", step) in check.next_step + check.detail for check in found)
    assert checks_exit_code(checks) == int(any(check.outcome is FAILED for check in checks))
    # One cause is told where it is, and makes nothing else look broken but what it stands behind.
    assert {check.name for check in checks if check.outcome is FAILED} <= {name}


@pytest.mark.parametrize(
    ("skew_s", "outcome"),
    [(0, CheckOutcome.OK), (29, CheckOutcome.OK), (-40, WARNING), (400, FAILED)],
)
async def test_a_clock_that_is_wrong_is_told_before_signatures_are_refused(skew_s, outcome):
    checks = await examined(now_s=NOW_S + skew_s)

    assert [check.outcome for check in checks if check.name == "clock"] == [outcome]


async def test_an_account_without_credentials_is_asked_nothing_else():
    account = ScriptedAccount(GetCallerIdentity=refused("GetCallerIdentity", "ExpiredToken"))

    checks = await examined(account)

    assert account.called() == ["sts:GetCallerIdentity"]
    assert [check.name for check in checks] == ["credentials"]


async def test_an_account_without_offerings_and_a_region_without_queue_are_said():
    base = settings()
    other = AwsAccount(name="idle", account_id="000000000002")
    bare = AwsAccount(name="main", account_id="000000000001")

    checks = await examined(of=AwsSettings(accounts=(bare, other), offerings=base.offerings))

    assert not_well(checks) == [("credentials", OPEN), ("queue", WARNING)]


async def test_more_instances_than_the_quota_allows_are_a_warning_with_the_request():
    checks = await examined(wanted=20)

    told = [check for check in checks if check.name == "quota"]
    assert {check.outcome for check in told} == {WARNING}
    assert all("--desired-value 80 --region us-east-1" in check.next_step for check in told)


async def test_a_type_whose_quota_is_not_known_is_left_open():
    account = ScriptedAccount(
        DescribeInstanceTypes=of_type(InstanceType="qqq.1x"),
        DescribeInstanceTypeOfferings={
            "InstanceTypeOfferings": [{"Location": "use1-az4", "InstanceType": "qqq.1x"}]
        },
    )

    checks = await examined(account, of=settings(instance_type="qqq.1x"))

    (told,) = [check for check in checks if check.name == "quota"]
    assert told.outcome is OPEN
    assert "service-quotas:GetServiceQuota" not in account.called()


@pytest.mark.parametrize(("named", "well"), [("cr-1", True), ("cr-2", False), ("", False)])
async def test_what_is_counted_as_paid_for_can_only_come_from_its_commitment(named, well):
    target = {"CapacityReservationTarget": {"CapacityReservationId": named}} if named else {}
    account = ScriptedAccount(
        DescribeLaunchTemplateVersions=template(CapacityReservationSpecification=target)
    )

    checks = await examined(account, of=settings(capacity_reservation_id="cr-1", disk_gb=60))

    assert not_well(checks) == ([] if well else [("launch template", FAILED)])


NAT = {
    "DescribeRouteTables": {
        "RouteTables": [
            {
                "Associations": [{"SubnetId": "subnet-1"}],
                "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}],
            }
        ]
    },
    "DescribeNatGateways": {"NatGateways": [{"SubnetId": "subnet-9"}]},
}


async def test_pulling_images_through_a_nat_has_its_price():
    def subnets(params):
        zone = "use1-az4" if params["SubnetIds"] == ["subnet-1"] else "use1-az6"
        return subnet(AvailabilityZoneId=zone)

    checks = await examined(ScriptedAccount(**NAT, DescribeSubnets=subnets), image_gb=20)

    (dear,) = [check for check in checks if check.outcome is WARNING]
    # 20 GB at 0.045 USD through the gateway and 0.01 USD between zones.
    assert "1.10 USD a launch" in dear.detail
    assert "another zone" in dear.detail


def test_a_subnet_without_a_table_of_its_own_goes_by_the_main_one():
    main = {
        "Associations": [{"Main": True}],
        "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-2"}],
    }
    own = {"Associations": [{"SubnetId": "s"}], "Routes": [{"GatewayId": "igw-1"}]}

    assert nat_of([own, main], "t") == "nat-2"
    assert nat_of([own, main], "s") == ""


@pytest.mark.parametrize(
    ("pattern", "takes"),
    [
        ('{"source": ["aws.ec2"]}', True),
        ('{"source": ["aws.s3"]}', False),
        ('{"detail-type": ["Something"]}', False),
        ("[", False),
        ("[]", False),
    ],
)
def test_a_pattern_takes_notices_or_not(pattern, takes):
    assert pattern_takes(pattern, NOTICE) is takes


# --- a test message ---------------------------------------------------------------------------


async def test_a_test_message_is_found_in_the_queue_and_only_it_is_deleted():
    waiting = [{"Body": "another's", "ReceiptHandle": "a"}]
    account = ScriptedAccount(
        PutEvents=lambda params: (
            waiting.append({"Body": params["Entries"][0]["Detail"], "ReceiptHandle": "b"})
            or {"FailedEntryCount": 0}
        ),
        ReceiveMessage=lambda _: {"Messages": list(waiting)},
        DeleteMessage={},
    )

    checks = await examined(account, test_message=True)

    assert not_well(checks) == []
    deleted = [params for action, params in account.calls if action == "sqs:DeleteMessage"]
    assert [params["ReceiptHandle"] for params in deleted] == ["b"]


async def test_a_test_message_that_never_comes_is_left_open():
    account = ScriptedAccount(PutEvents={}, ReceiveMessage={})

    checks = await examined(account, test_message=True)

    assert not_well(checks) == [("test message", OPEN)]


# --- an instance that calls back --------------------------------------------------------------


def launching(call):
    """An account whose instance does what `call` says with its user data."""
    tasks = []

    def run(params):
        if params.get("DryRun"):
            return refused("RunInstances", "DryRunOperation")
        tasks.append(asyncio.ensure_future(call(base64.b64decode(params["UserData"]).decode())))
        return {"Instances": [{"InstanceId": "i-1"}]}

    def end(params):
        return refused("x", "DryRunOperation") if params.get("DryRun") else {}

    return ScriptedAccount(RunInstances=run, TerminateInstances=end), tasks


async def get(url):
    _, _, at, path = url.split("/", 3)
    host, _, port = at.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.split(b" ")[1]


async def test_an_instance_that_calls_back_is_believed_and_ended():
    answers = []

    async def call(script):
        (url,) = re.findall("url='(.*)'", script)
        answers.append(await get(url + "x"))
        answers.append(await get(url))

    account, tasks = launching(call)

    async with asyncio.timeout(PATIENCE_S):
        checks = await examined(
            account, call_back=CallBack(advertised="", host="127.0.0.1", port=0)
        )
        await asyncio.gather(*tasks)

    assert not_well(checks) == []
    assert answers == [b"404", b"200"]
    assert account.calls[-1] == ("ec2:TerminateInstances", {"InstanceIds": ["i-1"]})


async def test_a_launch_whose_answer_is_lost_is_asked_for_again_by_its_token_and_ended():
    async def call(_):
        return None

    account, tasks = launching(call)
    run, lost = account.answers["RunInstances"], [ProviderUnavailable("timed out")]
    account.answers["RunInstances"] = lambda params: (
        lost.pop() if lost and not params.get("DryRun") else run(params)
    )

    await examined(
        account, call_back=CallBack(advertised="", host="127.0.0.1", port=0, wait_s=0.01)
    )
    await asyncio.gather(*tasks)

    tokens = [
        params["ClientToken"]
        for action, params in account.calls
        if action == "ec2:RunInstances" and not params.get("DryRun")
    ]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1
    assert account.calls[-1] == ("ec2:TerminateInstances", {"InstanceIds": ["i-1"]})


async def test_rights_are_tried_with_what_the_actuator_sends():
    account = ScriptedAccount()

    await examined(account, installation_id="0" * 32)

    fleets = [params for action, params in account.calls if action == "ec2:CreateFleet"]
    assert [
        fleet["TargetCapacitySpecification"]["DefaultTargetCapacityType"] for fleet in fleets
    ] == [
        "spot",
        "on-demand",
    ]
    for fleet in fleets:
        tags = {tag["Key"]: tag["Value"] for tag in fleet["TagSpecifications"][0]["Tags"]}
        assert (tags["spotline-owner"], tags["spotline-installation"]) == (
            "spotline-doctor",
            "0" * 32,
        )


async def test_an_instance_that_never_calls_is_ended_too():
    async def call(_):
        return None

    account, tasks = launching(call)

    checks = await examined(
        account, call_back=CallBack(advertised="", host="127.0.0.1", port=0, wait_s=0.01)
    )
    await asyncio.gather(*tasks)

    assert not_well(checks) == [("instance calls back", FAILED)]
    assert account.calls[-1] == ("ec2:TerminateInstances", {"InstanceIds": ["i-1"]})


def test_the_scripted_account_is_consistent():
    assert QUEUE_ARN in ANSWERS["GetQueueAttributes"]["Attributes"]["Policy"]


@pytest.mark.parametrize(
    ("stated", "found", "step"),
    [
        ({"disk_gb": 200}, [CheckOutcome.OK], ""),
        ({"disk_gb": 100}, [WARNING], "state disk_gb: 200 of the offering"),
        (NO_DISKS, [WARNING], "state disk_gb: 200 and disk_usd_per_gb_month of the offering"),
    ],
)
async def test_disks_that_bills_count_are_those_that_templates_make(stated, found, step):
    checks = await examined(of=settings(**stated))

    of_disks = [check for check in checks if check.name == "costs" and "disks" in check.detail]
    assert [check.outcome for check in of_disks] == found
    assert of_disks[0].next_step == step


async def test_disks_of_an_unknown_template_are_left_open():
    checks = await examined(ScriptedAccount(DescribeImages={"Images": []}))

    (told,) = [check for check in checks if check.name == "costs" and "disks" in check.detail]
    assert told.outcome is OPEN
    assert "what the template makes is not known" in told.detail
