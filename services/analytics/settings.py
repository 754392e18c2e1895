"""Settings of the analytics, read once at start."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from spotline.application.analytics.options import StatisticsOptions
from spotline.bootstrap.servers import AnalyticsParts
from spotline.domain.statistics.windows import S_PER_DAY, WindowSpec
from spotline.runtime.settings import ServiceSettings

_WINDOW = re.compile(r"(\d+)/(\d+)")


class AnalyticsSettings(ServiceSettings):
    """`SPOTLINE_*` of the analytics.

    `analytics_address` is where its gRPC server listens. `statistics_windows` are size/hop in
    seconds, separated by commas; equal ones tumble. `statistics_grace_s` is how long late
    observations are merged, `statistics_delay_slots` by how many slots the watermark is behind the
    latest one, `statistics_history_s` how long results can be queried. `worker` tells the workers
    of one partition apart: a name that lasts, or a restart waits `lease_s` for the partition.
    """

    analytics_address: str = "127.0.0.1:7073"
    statistics_windows: str = "300/300,3600/1800,86400/3600"
    statistics_grace_s: int = Field(default=3600, ge=0)
    statistics_delay_slots: int = Field(default=1, ge=0)
    statistics_history_s: int = Field(default=14 * S_PER_DAY, ge=0)
    worker: str = Field(default="0", pattern=r"^[A-Za-z0-9_-]+$")
    lease_s: float = Field(default=10.0, gt=0)

    @field_validator("statistics_windows")
    @classmethod
    def _sizes_and_hops(cls, text: str) -> str:
        _windows(text)
        return text

    @model_validator(mode="after")
    def _known(self) -> Self:
        self.parts()
        return self

    def parts(self) -> AnalyticsParts:
        """What to issue, and as whom; `ValueError` where that makes no sense."""
        return AnalyticsParts(
            options=StatisticsOptions(
                windows=_windows(self.statistics_windows),
                delay_slots=self.statistics_delay_slots,
                grace_s=self.statistics_grace_s,
                history_s=self.statistics_history_s,
            ),
            worker=self.worker,
            lease_s=self.lease_s,
        )


def _windows(text: str) -> tuple[WindowSpec, ...]:
    found = []
    for one in text.split(","):
        match = _WINDOW.fullmatch(one.strip())
        if match is None:
            raise ValueError(f"expected size/hop in seconds, separated by commas, was {text!r}")
        found.append(WindowSpec(size_s=int(match[1]), hop_s=int(match[2])))
    return tuple(found)
