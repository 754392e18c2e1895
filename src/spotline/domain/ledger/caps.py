"""Hard caps on what may be launched. A refusal is a value: it becomes an observation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.limits.spending import Spending
from spotline.domain.units import S_PER_HOUR

_CAP = "cap"
_EXCEPTED = "excepted for a hard deadline from "
_CUT = "; cut by "
JOB_CAP = f"{_CAP} USD per job"


def is_our_limit(refused: LaunchRefused) -> bool:
    """Whether a limit of ours refused it: then it tells nothing of the cloud.

    Logs from before 0.3.0 give no class; there the words of a cap say so.
    """
    if refused.refusal_class is None:
        return refused.detail.startswith(f"{_CAP} ")
    return refused.refusal_class is RefusalClass.LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Upper bounds, None for none. Minutes are minutes of the market's time.

    `micro_usd_per_hour` bounds the price of all that is held, `spending` is what the selector is
    held to as well. Of two bounds of the same thing the lower one counts.
    """

    micro_usd_per_job: int | None = None
    micro_usd_per_hour: int | None = None
    launches_per_minute: int | None = None
    spending: Spending = field(default_factory=Spending)

    def __post_init__(self) -> None:
        for name in ("micro_usd_per_job", "micro_usd_per_hour", "launches_per_minute"):
            cap = getattr(self, name)
            if cap is not None and cap < 0:
                raise ValueError(f"cap {name} must be >= 0, was {cap}")

    @property
    def most_micro_usd_per_job(self) -> int | None:
        """The most that a job may cost, whoever stated it; None: any amount."""
        return _lower(self.micro_usd_per_job, self.spending.micro_usd_per_job)

    @property
    def most_launches_per_minute(self) -> int | None:
        """The most that may be launched in a minute, whoever stated it; None: any number."""
        return _lower(self.launches_per_minute, self.spending.launches_per_minute)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What counts against the caps already.

    `job_micro_usd` is the job's bill once this slot is over if nothing more is launched,
    `micro_usd_per_hour` the price of all that is held, `launches` those of the last minute.
    """

    job_micro_usd: int
    micro_usd_per_hour: int
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """How many instances may be launched; if fewer than wanted, why, and when to ask again."""

    instances: int
    detail: str = ""
    refusal_class: RefusalClass | None = None
    retry_after_s: int = 0
    limit_scope: FreezeScope | None = None


def limited(detail: str, instances: int = 0, *, scope: FreezeScope = FreezeScope.SYSTEM) -> Permit:
    """What a limit of ours leaves, and for what it holds."""
    return Permit(
        instances=instances,
        detail=detail,
        refusal_class=RefusalClass.LIMIT,
        limit_scope=scope,
    )


def excepted_from(
    against: str, instances: int, *, scope: FreezeScope = FreezeScope.SYSTEM
) -> Permit:
    """So many may be launched for a hard deadline's sake, though `against` stands against it.

    The ledger keeps a launch's words and nothing else of this, so they say it.
    """
    return limited(f"{_EXCEPTED}{against}", instances, scope=scope)


def stood_against(detail: str) -> str:
    """What stood against a launch that was made all the same; empty for nothing."""
    if not detail.startswith(_EXCEPTED):
        return ""
    return detail.removeprefix(_EXCEPTED).partition(_CUT)[0]


def fewer(one: Permit, other: Permit) -> Permit:
    """The permit that allows fewer; of equals the first. That there was an exception stays said."""
    least = min(one, other, key=lambda found: found.instances)
    against = stood_against(one.detail) or stood_against(other.detail)
    return _still_excepted(least, against) if against else least


def _still_excepted(permit: Permit, against: str) -> Permit:
    """A permit of less than was excepted, with what the exception was from."""
    if permit.instances <= 0 or stood_against(permit.detail):
        return permit
    cut = f"{_CUT}{permit.detail}" if permit.detail else ""
    return replace(permit, detail=f"{_EXCEPTED}{against}{cut}")


def permit(
    caps: Caps,
    usage: Usage,
    *,
    wanted: int,
    price_micro_usd: int,
    rest_s: int,
    excepted: int = 0,
) -> Permit:
    """Clip a launch of `wanted` instances, held for the `rest_s` seconds left of the slot.

    Caps on money do not bound what costs nothing more, a reservation's instances. Those on launches
    yield to `excepted` instances that a hard deadline needs.
    """
    fitting: list[Permit] = [Permit(instances=wanted)]
    per_minute = f"{_CAP} launches per minute"
    most = caps.most_launches_per_minute
    if most is not None:
        left = most - usage.launches
        if left < min(wanted, excepted):
            # Of equals the first counts: that there was an exception must be said.
            fitting.insert(0, excepted_from(per_minute, min(wanted, excepted)))
        else:
            fitting.append(limited(per_minute, left))
    if caps.micro_usd_per_hour is not None and price_micro_usd:
        left = (caps.micro_usd_per_hour - usage.micro_usd_per_hour) // price_micro_usd
        fitting.append(limited(f"{_CAP} USD per hour", left))
    job_cap = caps.most_micro_usd_per_job
    if job_cap is not None and rest_s > 0 and price_micro_usd:
        left = job_cap - usage.job_micro_usd
        per_job = max(0, left) * S_PER_HOUR // (price_micro_usd * rest_s)
        fitting.append(limited(JOB_CAP, per_job, scope=FreezeScope.JOB))
    least = min(fitting, key=lambda fit: fit.instances)
    if most is not None and least.instances > max(0, most - usage.launches):
        # Fewer than excepted, but more than the rate allows.
        least = _still_excepted(least, per_minute)
    return replace(least, instances=max(0, least.instances))
