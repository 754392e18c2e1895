"""AWS by script: what each operation answers, in turn, and what was asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime

from spotline.adapters.clouds.aws import tags
from spotline.adapters.clouds.aws.api import CALLS
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings

REGION = "us-east-1"
QUEUE = "https://sqs.us-east-1.amazonaws.com/000000000001/spotline"
SETTINGS = AwsSettings(
    accounts=(
        AwsAccount(name="default", account_id="000000000001", queues={REGION: QUEUE}),
        AwsAccount(name="other", account_id="000000000002"),
    ),
    offerings=tuple(
        AwsOffering(
            account=account,
            region=REGION,
            zone="use1-az1",
            instance_type="p4d.24xlarge",
            gpu_model="a100-40gb",
            gpus_per_instance=8,
            launch_template_id="lt-0123456789abcdef0",
        )
        for account in ("default", "other")
    ),
)
OFFERING_ID = SETTINGS.offerings[0].offering_id
START = datetime(2026, 11, 23, 7, 0, 0, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9


class StandingClock:
    """Market time that goes on when it is told to."""

    def __init__(self) -> None:
        self.ns = START_NS

    def now_ns(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += round(seconds * 10**9)


class ScriptedApi:
    """Implements `AwsApi`. What is not scripted answers as an empty account does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict]] = []
        self._scripts: dict[tuple[str, str], list] = defaultdict(list)

    def will(self, operation: str, *answers: object, account: str = "default") -> None:
        """Answer the next calls so: a reply, an error to raise, or a function of the parameters."""
        self._scripts[account, operation] += answers

    def of(self, operation: str) -> list[dict]:
        """The parameters of all calls of an operation."""
        return [params for _, asked, params in self.asked if asked == operation]

    async def call(self, place, service, operation, **params):
        return self.call_now(place, service, operation, **params)

    read = call

    def call_now(self, place, service, operation, **params):
        assert operation in CALLS[service]
        self.asked.append((place.account, operation, params))
        script = self._scripts[place.account, operation]
        answer = script.pop(0) if script else {}
        if isinstance(answer, BaseException):
            raise answer
        return answer(params) if isinstance(answer, Callable) else answer

    def start(self, work):
        done: Future = Future()
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            done.set_exception(error)
        return done

    def close(self) -> None:
        pass


def fleet(*instance_ids: str, errors: tuple[tuple[str, str], ...] = ()) -> dict:
    """What CreateFleet answers."""
    return {
        "FleetId": "fleet-1",
        "Instances": [{"InstanceIds": list(instance_ids)}] if instance_ids else [],
        "Errors": [{"ErrorCode": code, "ErrorMessage": said} for code, said in errors],
    }


def instance(
    instance_id: str,
    *,
    state: str = "running",
    token: str = "t",
    owner: str = "test",
    launched: datetime = START,
    **more: object,
) -> dict:
    """An instance as EC2 describes it, with our tags."""
    stated = {
        tags.OWNER: owner,
        tags.TOKEN: token,
        tags.JOB: "j",
        tags.TENANT: "acme",
        tags.QUOTA_POOL: "pool",
        tags.OFFERING: OFFERING_ID,
        tags.CAPACITY_TYPE: "spot",
        tags.INSTALLATION: "",
    }
    return {
        "InstanceId": instance_id,
        "State": {"Name": state},
        "LaunchTime": launched,
        "Placement": {"AvailabilityZoneId": "use1-az1"},
        "Tags": [{"Key": key, "Value": value} for key, value in stated.items()],
        **more,
    }


def page(*instances: dict, following: str = "") -> dict:
    """A page of DescribeInstances."""
    answer: dict = {"Reservations": [{"Instances": [one]} for one in instances]}
    return {**answer, "NextToken": following} if following else answer
