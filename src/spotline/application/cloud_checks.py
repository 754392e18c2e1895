"""What is found when a cloud is examined before money is spent in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from spotline.contracts.errors import SpotlineError


class CheckOutcome(Enum):
    """What was found: `FAILED` stops work there, `WARNING` deserves a look, `OPEN` was not tried."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    OPEN = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudCheck:
    """One thing that was looked at, where, and what to do next if it is not well.

    `where` is an account, `account/region`, or an offering.
    """

    name: str
    where: str
    outcome: CheckOutcome
    detail: str
    next_step: str = ""

    def as_json(self) -> dict[str, str]:
        """The check for `--json`."""
        return asdict(self) | {"outcome": self.outcome.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBack:
    """Where an instance is to call: the address that it sees, and the one that we listen on.

    `wait_s` are wall seconds until it is given up.
    """

    advertised: str
    host: str
    port: int
    wait_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What is to be looked at.

    Parameters
    ----------
    token
        Unlike any other examination's: names what it sends and launches.
    installation_id
        Whose instances it launches, and whose policy is tried; empty: nobody's.
    wanted
        Instances of each type that quotas should have room for.
    image_gb
        What each launch pulls.
    call_back
        Launch an instance that calls there; None: nothing is launched.
    test_message
        Send an event through each rule.
    scores
        The file of placement scores that were asked for; None: none are asked for.
    """

    token: str
    installation_id: str = ""
    wanted: int = 1
    image_gb: float = 20.0
    call_back: CallBack | None = None
    test_message: bool = False
    scores: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyPlan:
    """What a certification may do.

    Parameters
    ----------
    token
        Unlike any other certification's.
    most_micro_usd
        What it may cost, at most.
    offering_id
        Which offering is tried; empty: the cheapest.
    instance_type
        A cheaper type to try in its place, by the same launch template; empty: its own.
    lease_s
        Seconds of market time until everything is ended.
    interruption_role
        By which the cloud interrupts one instance; empty: none is.
    """

    token: str
    most_micro_usd: int
    offering_id: str = ""
    instance_type: str = ""
    installation_id: str = ""
    lease_s: int = 1800
    interruption_role: str = ""


class CertifyReport(Protocol):
    """What a certification showed."""

    @property
    def checks(self) -> Sequence[CloudCheck]:
        """Each step, in order."""
        ...

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        ...

    def as_markdown(self) -> str:
        """For people."""
        ...


class Certification(Protocol):
    """A certification: `record` may be asked at any time, also of one that was cut off."""

    async def run(self) -> None:
        """Show everything there is to show, and end what was launched.

        Raises
        ------
        TooDear
            It could cost more than is allowed: nothing was launched.
        """
        ...

    def record(self) -> CertifyReport:
        """What was shown so far."""
        ...


class TooDear(SpotlineError):
    """A certification could cost more than is allowed; says what, and what would fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledLine:
    """An instance in our count and on the bill; `billed_micro_usd` is None where that has none.

    `beside_micro_usd` is what the bill has for it beside its own price: traffic, credits.
    """

    instance_id: str
    capacity_type: str
    ours_micro_usd: int
    billed_micro_usd: int | None
    beside_micro_usd: int
    verdict: str
    agrees: bool


def ok(name: str, where: str, detail: str) -> CloudCheck:
    """It is well."""
    return CloudCheck(name=name, where=where, outcome=CheckOutcome.OK, detail=detail)


def warning(name: str, where: str, detail: str, next_step: str) -> CloudCheck:
    """It works, or may: a person should look."""
    return CloudCheck(
        name=name, where=where, outcome=CheckOutcome.WARNING, detail=detail, next_step=next_step
    )


def failed(name: str, where: str, detail: str, next_step: str) -> CloudCheck:
    """It does not work as it is."""
    return CloudCheck(
        name=name, where=where, outcome=CheckOutcome.FAILED, detail=detail, next_step=next_step
    )


def left_open(name: str, where: str, detail: str, next_step: str = "") -> CloudCheck:
    """It was not tried."""
    return CloudCheck(
        name=name, where=where, outcome=CheckOutcome.OPEN, detail=detail, next_step=next_step
    )


def checks_exit_code(checks: Sequence[CloudCheck]) -> int:
    """0 where nothing failed, else 1."""
    return 1 if any(check.outcome is CheckOutcome.FAILED for check in checks) else 0
