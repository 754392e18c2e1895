"""What a certification may cost, judged before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.application.cloud_checks import TooDear
from spotline.domain.units import cost_micro_usd, usd_from_micro_usd

# AWS bills Linux instances by the second, a minute at least:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-purchasing-options.html
LEAST_BILLED_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBudget:
    """The most that a trial can cost: every launch held for the whole lease at the list price.

    Parameters
    ----------
    launches
        Instances that are launched, at most.
    lease_s
        Seconds of market time after which everything is ended, whatever is left to show.
    price_micro_usd
        List price per instance-hour. Spot costs less: its price never exceeds it by default.
    """

    launches: int
    lease_s: int
    price_micro_usd: int

    def __post_init__(self) -> None:
        for name in ("launches", "lease_s", "price_micro_usd"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, was {getattr(self, name)}")

    @property
    def worst_micro_usd(self) -> int:
        """The most that it can cost."""
        held_s = max(self.lease_s, LEAST_BILLED_S)
        return cost_micro_usd(self.price_micro_usd, self.launches, held_s)

    def check(self, most_micro_usd: int) -> None:
        """Refuse a trial that could cost more; raises `TooDear`."""
        if self.worst_micro_usd > most_micro_usd:
            raise TooDear(
                f"--max-usd: expected at least {usd_from_micro_usd(self.worst_micro_usd):.2f} for "
                f"{self.launches} instances at {usd_from_micro_usd(self.price_micro_usd):g} USD an "
                f"hour for {self.lease_s} s, found {usd_from_micro_usd(most_micro_usd):g}; name a "
                "cheaper --offering, or a shorter --lease"
            )
