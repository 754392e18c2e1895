"""Settings of the analytics, read once at start."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from spotline.application.analytics.options import StatisticsOptions
from spotline.bootstrap.servers import AnalyticsParts
from spotline.domain.statistics.windows import WindowSpec
from spotline.runtime.settings import OptionVariables, ServiceSettings

_WINDOW = re.compile(r"(\d+)/(\d+)")


def _with_windows(stated: Any) -> Any:
    """Read the windows among the options from text."""
    if not isinstance(stated, dict) or not isinstance(stated.get("windows"), str):
        return stated
    return {**stated, "windows": _windows(stated["windows"])}


def _windows(text: str) -> tuple[WindowSpec, ...]:
    found = []
    for part in text.split(","):
        match = _WINDOW.fullmatch(part.strip())
        if match is None:
            raise ValueError(
                f"windows must be size/hop in seconds, separated by commas, was {text!r}"
            )
        found.append(WindowSpec(size_s=int(match[1]), hop_s=int(match[2])))
    return tuple(found)


class AnalyticsSettings(ServiceSettings):
    """`SPOTLINE_*` of the analytics.

    `analytics_address` is where its gRPC server listens. `statistics` are the options of
    `StatisticsOptions`, from `SPOTLINE_STATISTICS_WINDOWS` on: size/hop in seconds, separated by
    commas; equal ones tumble. `worker` tells the workers of one partition apart: a name that lasts,
    or a restart waits `lease_s` for the partition.
    """

    analytics_address: str = "127.0.0.1:7073"
    statistics: Annotated[
        StatisticsOptions,
        OptionVariables(prefix="statistics_"),
        BeforeValidator(_with_windows),
    ] = StatisticsOptions()
    worker: str = Field(default="0", pattern=r"^[A-Za-z0-9_-]+$")
    lease_s: float = Field(default=10.0, gt=0)

    def parts(self) -> AnalyticsParts:
        """What to issue, and as whom."""
        return AnalyticsParts(options=self.statistics, worker=self.worker, lease_s=self.lease_s)
