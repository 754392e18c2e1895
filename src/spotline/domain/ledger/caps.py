"""Hard caps on what may be launched. A refusal is a value: it becomes an observation."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.units import S_PER_HOUR

_CAP = "cap"
JOB_CAP = f"{_CAP} USD per job"


def is_of_a_cap(detail: str) -> bool:
    """Whether a refusal was ours, by what it says: then it tells nothing of the cloud."""
    return detail.startswith(f"{_CAP} ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Upper bounds, None for none. Minutes are minutes of the market's time."""

    micro_usd_per_job: int | None = None
    micro_usd_per_hour: int | None = None
    launches_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in ("micro_usd_per_job", "micro_usd_per_hour", "launches_per_minute"):
            cap = getattr(self, name)
            if cap is not None and cap < 0:
                raise ValueError(f"cap {name} must be >= 0, was {cap}")


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
    """How many instances may be launched; `detail` names the binding cap if fewer than wanted."""

    instances: int
    detail: str = ""


def permit(caps: Caps, usage: Usage, *, wanted: int, price_micro_usd: int, rest_s: int) -> Permit:
    """Clip a launch of `wanted` instances, held for the `rest_s` seconds left of the slot."""
    fitting: list[Permit] = [Permit(instances=wanted)]
    if caps.launches_per_minute is not None:
        left = caps.launches_per_minute - usage.launches
        fitting.append(Permit(instances=left, detail=f"{_CAP} launches per minute"))
    if caps.micro_usd_per_hour is not None:
        left = (caps.micro_usd_per_hour - usage.micro_usd_per_hour) // price_micro_usd
        fitting.append(Permit(instances=left, detail=f"{_CAP} USD per hour"))
    if caps.micro_usd_per_job is not None and rest_s > 0:
        left = caps.micro_usd_per_job - usage.job_micro_usd
        per_job = max(0, left) * S_PER_HOUR // (price_micro_usd * rest_s)
        fitting.append(Permit(instances=per_job, detail=JOB_CAP))
    least = min(fitting, key=lambda fit: fit.instances)
    return Permit(instances=max(0, least.instances), detail=least.detail)
