"""How an actuator acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spotline.application.cloud_actuator.agreeing import Agreed, AgreementRules
from spotline.application.cloud_actuator.ports import CloudClock, InstanceBiller
from spotline.application.cloud_actuator.reconciling import Reconciliation
from spotline.application.cloud_actuator.settling import BillsSettled
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.cooldowns import CoolingRules
from spotline.domain.ledger.crash_loops import CrashRules
from spotline.domain.ledger.instance_life import Graces
from spotline.domain.modes import LIVE_FROM_THE_START, StatedModes


def _ignore(_: Any) -> None:
    """Do nothing with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActuationOptions:
    """How the actuator acts.

    Parameters
    ----------
    modes
        How this process acts, and what accounts begin in that nobody spoke of.
    clock
        The present in market time; None where it is the moment of the call in hand.
    on_look
        Gets what each look at the cloud found, once it is recorded.
    agreement
        How log, ledger and cloud are compared; None: they are not, and no orphan is ended.
    lease_s
        Seconds of market time that an instance goes on without us; None: without end.
    on_agreed
        Gets what each comparison came to, once it is recorded.
    biller
        Says what instances cost in the end; None: bills stay estimates.
    on_settled
        Gets what became of the bills of instances that have ended, where there is anything to say.
    """

    caps: Caps = field(default_factory=Caps)
    graces: Graces = field(default_factory=Graces)
    cooling: CoolingRules = field(default_factory=CoolingRules)
    clock: CloudClock | None = None
    on_look: Callable[[Reconciliation], None] = _ignore
    agreement: AgreementRules | None = None
    lease_s: int | None = None
    crashes: CrashRules = field(default_factory=CrashRules)
    on_agreed: Callable[[Agreed], None] = _ignore
    modes: StatedModes = LIVE_FROM_THE_START
    biller: InstanceBiller | None = None
    on_settled: Callable[[BillsSettled], None] = _ignore
