"""How rough the rehearsed cloud is, in numbers that can be said of it beforehand."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What is drawn, and how often. Seconds are of market time, shares of 0..1.

    Parameters
    ----------
    fail_share
        Of all calls, those that fail though nothing is wrong with them.
    pending_s
        An instance is pending for a time between these two.
    hidden_s
        So long at most a new instance is missing from what is described.
    ending_s
        An instance is shutting down for a time between these two.
    recorded_s
        So long after a call CloudTrail has its event, between these two.
    late_share, late_s
        Warnings of interruption that come late, by up to so much.
    double_share, missing_share
        Warnings that come twice, and that never come. What is missing in EventBridge stands in
        the instance's metadata all the same, but for `silent_share`.
    silent_share
        Interruptions that nobody says anything of.
    rebalance_share, rebalance_s
        Instances that are recommended to be replaced, so long before their warning.
    lead_s
        Between warning and end.
    token_memory_s
        For so long a client token is known after its first use.
    shown_ended_s
        For so long an ended instance is still described.
    spot_up_share, spot_stays_up, spot_most, on_demand_most, on_demand_out_share
        Counts where the market file knows none: up to `spot_most` while an offering is up, a chain
        of two states by hours; `on_demand_most`, but in a share of slots none.
    throttled
        Whether calls use up the buckets of an account.
    """

    fail_share: float = 0.0
    pending_s: tuple[float, float] = (5.0, 40.0)
    hidden_s: float = 5.0
    ending_s: tuple[float, float] = (5.0, 60.0)
    recorded_s: tuple[float, float] = (60.0, 600.0)
    late_share: float = 0.08
    late_s: float = 100.0
    double_share: float = 0.08
    missing_share: float = 0.05
    silent_share: float = 0.02
    rebalance_share: float = 0.5
    rebalance_s: int = 300
    lead_s: int = 120
    token_memory_s: int = 86_400
    shown_ended_s: int = 3_600
    spot_up_share: float = 0.54
    spot_stays_up: float = 0.77
    spot_most: int = 16
    on_demand_most: int = 64
    on_demand_out_share: float = 0.02
    throttled: bool = True

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name.endswith("_share")):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in 0..1, was {getattr(self, name)}")
        if not self.spot_up_share < self.spot_stays_up < 1:
            raise ValueError(
                f"spot_stays_up must lie between spot_up_share ({self.spot_up_share}) and 1, "
                f"was {self.spot_stays_up}"
            )


ORDINARY = Weather()


def calm(fail_share: float = 0.0) -> Weather:
    """Nothing is drawn but the failing calls: what is asked for is there at once, notices in time."""
    return Weather(
        fail_share=fail_share,
        pending_s=(0.0, 0.0),
        hidden_s=0.0,
        ending_s=(0.0, 0.0),
        recorded_s=(0.0, 0.0),
        late_share=0.0,
        double_share=0.0,
        missing_share=0.0,
        silent_share=0.0,
        rebalance_share=0.0,
        on_demand_out_share=0.0,
        throttled=False,
    )
