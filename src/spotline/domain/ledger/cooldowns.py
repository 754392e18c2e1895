"""What follows from a refusal: for what, and for how long, the cloud is not asked again.

Only a refusal's class decides. Want of capacity cools one capacity type of an offering, a quota one
capacity type of its pool, a fault of the network its zone, a missing permission the whole account;
what cannot be done there waits for another configuration, that is for a restart. The other classes
cool nothing: their reaction is patience, or none. What a job's own instances do right after their
start cools the job (`crash_loops.py`), which no refusal does and no grant ends. All times are ns of market time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from spotline.domain.events.capacity import RefusalClass
from spotline.domain.market.offering import BillingRules, CapacityType
from spotline.domain.units import NS_PER_S


class CoolingScope(Enum):
    """What is not asked for."""

    OFFERING = "offering"
    POOL = "pool"
    ZONE = "zone"
    ACCOUNT = "account"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolingRules:
    """How long, seconds of market time.

    `first_s` is Karpenter's time for an offering without capacity (3 minutes). It doubles while the
    same is refused again, up to `longest_s`; a grant ends that. `account_s` is how long permissions
    are taken for checked: Karpenter's validation lasts 30 minutes.
    """

    first_s: int = 180
    longest_s: int = 3600
    account_s: int = 1800

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.longest_s or self.account_s <= 0:
            raise ValueError(f"cool-downs must be > 0 and ascend, were {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingPlace:
    """Where an offering is: names that are equal for what shares a zone or an account.

    `billing` is how it is billed, None where nothing is stated; spot is taken `announced_s` seconds
    after its notice, as its provider says.
    """

    offering_id: str
    zone: str
    account: str
    billing: BillingRules | None = None
    announced_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a launch asks for, as far as refusals tell launches apart."""

    place: OfferingPlace
    quota_pool: str
    capacity_type: CapacityType


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """What was refused at `refused_ns`, `refusals` times without a grant between.

    It is not asked for before `until_ns` (None: until a restart). With an `epoch` (0: none) it ends
    when another one begins. `detail` are the provider's words.
    """

    scope: CoolingScope
    key: str
    refusal_class: RefusalClass
    refusals: int
    refused_ns: int
    until_ns: int | None
    epoch: int
    detail: str

    def cools(self, now_ns: int, epoch: int) -> bool:
        """Whether the cloud is not asked.

        At the moment of a refusal for want of capacity it still is: a launch of fewer may be
        granted, and a market that is played decides all of a revision at one moment.
        """
        if self.epoch and self.epoch != epoch:
            return False
        if self.refusal_class is RefusalClass.NO_CAPACITY and now_ns <= self.refused_ns:
            return False
        return self.until_ns is None or now_ns < self.until_ns

    def rest_s(self, now_ns: int) -> int:
        """Seconds left, rounded up; 0 where only a restart ends it."""
        return 0 if self.until_ns is None else max(0, -((now_ns - self.until_ns) // NS_PER_S))


_SCOPES: Mapping[RefusalClass, CoolingScope] = {
    RefusalClass.NO_CAPACITY: CoolingScope.OFFERING,
    RefusalClass.UNSUPPORTED: CoolingScope.OFFERING,
    RefusalClass.QUOTA: CoolingScope.POOL,
    RefusalClass.NETWORK: CoolingScope.ZONE,
    RefusalClass.UNAUTHORISED: CoolingScope.ACCOUNT,
}
# A person mends these, and starts again.
_UNTIL_RESTART = (RefusalClass.UNSUPPORTED, RefusalClass.UNAUTHORISED)

CooldownKey = tuple[CoolingScope, str]


def cooled_by(wanted: Wanted) -> tuple[CooldownKey, ...]:
    """All that could keep a launch from being asked for."""
    keys = [(scope, _key(scope, wanted)) for scope in CoolingScope if scope is not CoolingScope.JOB]
    if wanted.capacity_type is CapacityType.SPOT:
        keys.append((CoolingScope.ACCOUNT, _spot_of(wanted)))
    return tuple(keys)


def cooldown_after(
    refusal_class: RefusalClass,
    wanted: Wanted,
    earlier: Iterable[Cooldown],
    *,
    now_ns: int,
    epoch: int,
    detail: str = "",
    rules: CoolingRules | None = None,
    spot_only: bool = False,
) -> Cooldown | None:
    """What a refusal at `now_ns` cools, None for nothing.

    `earlier` are the cool-downs as they stand. A second refusal at the same moment is the same one.
    With `spot_only` what an account may not buy is spot: on-demand is still asked for there.
    """
    rules = rules or CoolingRules()
    scope = _SCOPES.get(refusal_class)
    if scope is None:
        return None
    spot_only = spot_only and scope is CoolingScope.ACCOUNT
    key = _spot_of(wanted) if spot_only else _key(scope, wanted)
    before = next((known for known in earlier if (known.scope, known.key) == (scope, key)), None)
    refusals = 1
    if before is not None and before.refusal_class is refusal_class:
        refusals = before.refusals + (before.refused_ns < now_ns)
    return Cooldown(
        scope=scope,
        key=key,
        refusal_class=refusal_class,
        refusals=refusals,
        refused_ns=now_ns,
        until_ns=_until_ns(refusal_class, refusals, now_ns, rules),
        epoch=epoch if refusal_class in _UNTIL_RESTART else 0,
        detail=detail,
    )


def cooling(
    wanted: Wanted, cooldowns: Iterable[Cooldown], *, now_ns: int, epoch: int
) -> Cooldown | None:
    """The cool-down that keeps a launch longest from being asked for, None if none does."""
    keys = set(cooled_by(wanted))
    cold = [
        cooldown
        for cooldown in cooldowns
        if (cooldown.scope, cooldown.key) in keys and cooldown.cools(now_ns, epoch)
    ]
    return max(cold, key=_lasts, default=None)


def _lasts(cooldown: Cooldown) -> tuple[bool, int, str]:
    return cooldown.until_ns is None, cooldown.until_ns or 0, cooldown.scope.value


def _until_ns(
    refusal_class: RefusalClass, refusals: int, now_ns: int, rules: CoolingRules
) -> int | None:
    if refusal_class is RefusalClass.UNSUPPORTED:
        return None
    if refusal_class is RefusalClass.UNAUTHORISED:
        return now_ns + rules.account_s * NS_PER_S
    # Twice 30 times is more than any longest_s; a count that grows for years must not.
    grown_s: int = rules.first_s << min(refusals - 1, 30)
    return now_ns + min(grown_s, rules.longest_s) * NS_PER_S


def _spot_of(wanted: Wanted) -> str:
    return f"{CapacityType.SPOT.value}/{wanted.place.account}"


def _key(scope: CoolingScope, wanted: Wanted) -> str:
    kind = wanted.capacity_type.value
    match scope:
        case CoolingScope.OFFERING:
            return f"{kind}/{wanted.place.offering_id}"
        case CoolingScope.POOL:
            return f"{kind}/{wanted.quota_pool}"
        case CoolingScope.ZONE:
            return wanted.place.zone
        case CoolingScope.ACCOUNT:
            return wanted.place.account
        case CoolingScope.JOB:
            raise ValueError("no refusal cools a job")
