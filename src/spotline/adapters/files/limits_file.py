"""Read and write a file of limits on spending (docs/operating.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from spotline.adapters.files.fields import Count, Name, Part, Usd, Whole, read_part
from spotline.adapters.files.yaml_file import read_yaml
from spotline.domain.limits.spending import (
    DEFAULT_SPENDING,
    MOST_LAUNCHES_PER_MINUTE,
    Spending,
    SpendLimit,
)
from spotline.domain.units import PPM, micro_usd_from_usd, usd_from_micro_usd


class _SpendPart(Part):
    usd_per_hour: Usd | None = None
    usd_per_day: Usd | None = None
    usd_per_month: Usd | None = None

    def limit(self) -> SpendLimit:
        return SpendLimit(
            micro_usd_per_hour=_micro_usd(self.usd_per_hour),
            micro_usd_per_day=_micro_usd(self.usd_per_day),
            micro_usd_per_month=_micro_usd(self.usd_per_month),
        )


class LimitsPart(Part):
    """Limits on spending, as a file has them."""

    total: _SpendPart = _SpendPart()
    spot: _SpendPart = _SpendPart()
    on_demand: _SpendPart = _SpendPart()
    every_tenant: _SpendPart = _SpendPart()
    tenants: dict[Name, _SpendPart] = Field(default_factory=dict)
    quotas: dict[Name, Count] = Field(default_factory=dict)
    least_spot_discount_percent: Annotated[float, Field(ge=0, le=100)] = 0.0
    launches_per_minute: Whole = MOST_LAUNCHES_PER_MINUTE
    usd_per_job: Usd | None = None

    def spending(self) -> Spending:
        """The limits that are stated; of a kind that is not, none."""
        return Spending(
            total=self.total.limit(),
            spot=self.spot.limit(),
            on_demand=self.on_demand.limit(),
            every_tenant=self.every_tenant.limit(),
            tenants={name: stated.limit() for name, stated in sorted(self.tenants.items())},
            quotas=dict(sorted(self.quotas.items())),
            least_spot_discount_ppm=round(self.least_spot_discount_percent * PPM / 100),
            launches_per_minute=self.launches_per_minute,
            micro_usd_per_job=_micro_usd(self.usd_per_job),
        )


def read_limits(path: Path | None) -> Spending:
    """Read limits on spending; without a file, the default ones.

    Raises
    ------
    BadFile
        The file is unreadable, or a field is not as expected.
    """
    if path is None:
        return DEFAULT_SPENDING
    return read_part(LimitsPart, read_yaml(path), where=str(path)).spending()


def limits_text(spending: Spending) -> str:
    """The limits as the text of a file that `read_limits` reads; those that are none are left out.

    A file has always a limit on launches, of 1 or more.
    """
    stated: dict[str, Any] = {
        name: _stated(getattr(spending, name))
        for name in ("total", "spot", "on_demand", "every_tenant")
    }
    stated["tenants"] = {name: _stated(limit) for name, limit in sorted(spending.tenants.items())}
    stated["quotas"] = dict(sorted(spending.quotas.items()))
    stated["least_spot_discount_percent"] = spending.least_spot_discount_ppm * 100 / PPM
    stated["launches_per_minute"] = spending.launches_per_minute
    if spending.micro_usd_per_job is not None:
        stated["usd_per_job"] = usd_from_micro_usd(spending.micro_usd_per_job)
    kept = {name: value for name, value in stated.items() if value not in ({}, None, 0.0)}
    text: str = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
    return text


def _stated(limit: SpendLimit) -> dict[str, float]:
    return {f"usd_per_{name}": usd_from_micro_usd(most) for name, _, most in limit.each()}


def _micro_usd(usd: float | None) -> int | None:
    return None if usd is None else micro_usd_from_usd(usd)
