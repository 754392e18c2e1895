"""Calls that fail though nothing is wrong with them: drawn, or as a script says."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from spotline.rehearsal.aws.drawn import uniform
from spotline.rehearsal.aws.service import AwsCall, AwsError, ConnectionLost, Service

LAUNCHES = ("CreateFleet", "RunInstances")
LOST = "ConnectionLost"

# By class: what a launch is refused with, in `Errors` of a fleet.
_REFUSALS = {
    "NO_CAPACITY": "InsufficientInstanceCapacity",
    "QUOTA": "MaxSpotInstanceCountExceeded",
    "NETWORK": "InsufficientFreeAddressesInSubnet",
}
_MESSAGES = {
    "InsufficientInstanceCapacity": "There is no Spot capacity available that matches your request.",
    "MaxSpotInstanceCountExceeded": "Max spot instance count exceeded",
    "InsufficientFreeAddressesInSubnet": "There are not enough free addresses in the subnet.",
    "RequestLimitExceeded": "Request limit exceeded.",
    "UnauthorizedOperation": "You are not authorized to perform this operation.",
    "InternalError": "An internal error has occurred",
    "Unavailable": "The service is unavailable. Please try again shortly.",
}
_STATUSES = {
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
    "InternalError": 500,
    "InternalFailure": 500,
    "UnauthorizedOperation": 403,
    "AuthFailure": 401,
    "AccessDenied": 403,
    "DryRunOperation": 412,
}
# What a fleet says in `Errors`; anything else refuses the call.
_OF_POOLS = (
    *_REFUSALS.values(),
    "UnfulfillableCapacity",
    "SpotMaxPriceTooLow",
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
    "Unsupported",
    "InvalidParameterValue",
    "PendingVerification",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
)
_THROTTLES = {"ec2": "RequestLimitExceeded", "sts": "Throttling", "sqs": "RequestThrottled"}
_SERVER_ERRORS = {"ec2": "InternalError", "sqs": "InternalError"}


class Effect(Enum):
    """When a call fails: before it did anything, or after it did everything."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """How a call fails: by a code, or by a lost connection; `of_pools`: as a launch's refusal."""

    kind: str
    code: str
    message: str = ""
    effect: Effect = Effect.BEFORE
    of_pools: bool = False

    def error(self) -> AwsError:
        """What is answered."""
        said = self.message or _MESSAGES.get(self.code, f"{self.code}, as the rehearsal was told")
        return AwsError(self.code, said, status=_STATUSES.get(self.code, 400))


@dataclass(slots=True, kw_only=True)
class Script:
    """The next `times` calls of an operation (`*` and `?` in it) fail with a code.

    `code` may be `ConnectionLost`; `raised` says whether the call is refused, or a fleet says it of its
    pools; None: as EC2 does with that code. Empty `account_id` and `region`: of any.
    """

    operation: str
    code: str
    times: int = 1
    message: str = ""
    effect: Effect = Effect.BEFORE
    raised: bool | None = None
    account_id: str = ""
    region: str = ""

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be >= 1, was {self.times}")
        for name in ("operation", "code"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")

    def matches(self, call: AwsCall) -> bool:
        """Whether it is about that call."""
        return (
            self.times > 0
            and fnmatch.fnmatchcase(call.operation, self.operation)
            and self.account_id in ("", call.account_id)
            and self.region in ("", call.region)
        )

    def blow(self, call: AwsCall) -> Blow:
        """How the call fails."""
        return Blow(
            kind="SCRIPTED",
            code=self.code,
            message=self.message,
            effect=self.effect,
            of_pools=call.operation in LAUNCHES and self._is_of_pools(),
        )

    def _is_of_pools(self) -> bool:
        return self.code in _OF_POOLS if self.raised is None else not self.raised


@dataclass(slots=True, kw_only=True)
class Faults:
    """Which calls fail, drawn by seed and number of the call; `struck` counts them by class.

    `first` is the number of the first call: another one after a restart, or it would fail again.
    """

    share: float
    seed: int
    first: int = 0
    calls: int = 0
    struck: dict[str, int] = field(default_factory=dict)
    scripts: list[Script] = field(default_factory=list)

    def strike(self, call: AwsCall) -> Blow | None:
        """How this call fails; None: it does not."""
        number = self.first + self.calls
        self.calls += 1
        script = next((one for one in self.scripts if one.matches(call)), None)
        if script is not None:
            script.times -= 1
            blow = script.blow(call)
        elif uniform(self.seed, "fails", number) < self.share:
            blow = _drawn(call, uniform(self.seed, "how", number))
        else:
            return None
        self.struck[blow.kind] = self.struck.get(blow.kind, 0) + 1
        return blow


def _drawn(call: AwsCall, drawn: float) -> Blow:
    """One of the classes that such a call can meet, each as likely as the others."""
    kinds = ["THROTTLED", "SERVER", "UNKNOWN_OUTCOME"]
    if call.operation in LAUNCHES:
        kinds += sorted(_REFUSALS)
    place = drawn * len(kinds)
    kind, rest = kinds[int(place)], place % 1
    if kind == "THROTTLED":
        return Blow(kind=kind, code=_THROTTLES.get(call.service, "ThrottlingException"))
    if kind == "SERVER":
        return Blow(kind=kind, code=_SERVER_ERRORS.get(call.service, "InternalFailure"))
    if kind == "UNKNOWN_OUTCOME":
        return Blow(kind=kind, code=LOST, effect=Effect.AFTER if rest < 0.5 else Effect.BEFORE)
    code = _REFUSALS[kind]
    if kind == "QUOTA" and not _is_spot(call):
        code = "VcpuLimitExceeded"
    return Blow(kind=kind, code=code, of_pools=True)


def _is_spot(call: AwsCall) -> bool:
    target: Mapping[str, Any] = call.params.get("TargetCapacitySpecification", {})
    market: Mapping[str, Any] = call.params.get("InstanceMarketOptions", {})
    return "spot" in (target.get("DefaultTargetCapacityType"), market.get("MarketType"))


class Faulty:
    """A service some of whose calls fail, none of them as a launch's refusal."""

    def __init__(self, service: Service, faults: Faults) -> None:
        self._service = service
        self._faults = faults

    @property
    def name(self) -> str:
        """The service's."""
        return self._service.name

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer as the service does, unless the call fails."""
        blow = self._faults.strike(call)
        if blow is not None and blow.effect is Effect.BEFORE:
            raise failure(blow)
        answer = await self._service.answer(call)
        if blow is not None:
            raise failure(blow)
        return answer


def failure(blow: Blow) -> Exception:
    """What a call that fails so ends with."""
    return ConnectionLost() if blow.code == LOST else blow.error()
