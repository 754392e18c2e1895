"""Chance of the simulated cloud: hashes of a seed and what is hit, so a run repeats itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spotline.domain.drawn import uniform
from spotline.domain.market.offering import ASSUMED_NOTICE_LEAD_S
from spotline.domain.units import S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFailures:
    """Instances that fail without a word right after their start, as those of a broken program do.

    Of the launches in slots `first_slot` to before `end_slot` a share of `probability` fails, each
    as a whole, at most `within_s` seconds after its start and before its slot is over.
    """

    probability: float
    first_slot: int
    end_slot: int
    within_s: int

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie in 0..1, was {self.probability}")
        if self.within_s < 1:
            raise ValueError(f"within_s must be >= 1, was {self.within_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCloudSettings:
    """How the simulated cloud behaves.

    `launch_delay_s` passes between a launch and readiness (billed). `notice_lead_s` is the notice
    before a reclaim. `refusal_probability` hits whole launches; each spot instance is interrupted
    with `interruption_per_instance_hour` probability per hour held, within a slot at most 1.
    Instances end `lease_s` of market time after the last slot that was opened, where slots went by
    that nobody opened, as their agents would have it; 0, as no agent runs on them: they go on.
    `failing` are launches that fail right after their start; None: none do.
    """

    seed: int = 0
    launch_delay_s: int = 120
    notice_lead_s: int = ASSUMED_NOTICE_LEAD_S
    refusal_probability: float = 0.0
    interruption_per_instance_hour: float = 0.0
    lease_s: int = 0
    failing: EarlyFailures | None = None

    def __post_init__(self) -> None:
        for name in ("launch_delay_s", "notice_lead_s", "lease_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        if not 0 <= self.refusal_probability <= 1:
            raise ValueError(
                f"refusal_probability must lie in 0..1, was {self.refusal_probability}"
            )
        hazard = self.interruption_per_instance_hour
        if not (math.isfinite(hazard) and hazard >= 0):
            raise ValueError(
                f"interruption_per_instance_hour must be finite and >= 0, was {hazard}"
            )


def is_refused(
    settings: SimulatedCloudSettings, slot: int, offset_s: int, offering_id: str, *what: str
) -> bool:
    """Whether chance refuses this launch."""
    drawn = uniform(settings.seed, "refusal", slot, offset_s, offering_id, *what)
    return drawn < settings.refusal_probability


def interruption_s(
    settings: SimulatedCloudSettings, slot: int, slot_s: int, instance_id: str
) -> int | None:
    """Second of the slot, 1 to slot_s - 1, in which chance takes an instance; None for never."""
    probability = min(1.0, settings.interruption_per_instance_hour * slot_s / S_PER_HOUR)
    drawn = uniform(settings.seed, "interruption", slot, instance_id)
    if drawn >= probability or slot_s < 2:
        return None
    return 1 + int(drawn / probability * (slot_s - 1))


def failure_s(
    settings: SimulatedCloudSettings, slot: int, slot_s: int, token: str, started_s: int
) -> int | None:
    """Second of the slot in which a launch at `started_s` of it fails; None for never."""
    failing = settings.failing
    if failing is None or not failing.first_slot <= slot < failing.end_slot:
        return None
    drawn = uniform(settings.seed, "early failure", token)
    if drawn >= failing.probability or started_s >= slot_s - 1:
        return None
    after_s = 1 + int(drawn / failing.probability * failing.within_s)
    return min(started_s + after_s, slot_s - 1)
