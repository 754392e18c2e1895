"""What is believed of spot counts that nobody says, by those who fill on paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spotline.domain.drawn import uniform
from spotline.domain.units import S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSettings:
    """What is believed of offerings whose spot counts nobody says, and how paper behaves.

    `most_instances` are there while an offering is up, none while it is down. It is up `up_share` of
    the time, and an hour after it was up it is up with probability `stays_up`. The defaults lie in
    the middle of what the zones of the SkyPilot traces (AWS, V100) show: up 44-63 % of the time, and
    an hour later with 0.58-0.96. `launch_delay_s` passes between a launch and readiness.
    """

    seed: int = 0
    launch_delay_s: int = 120
    most_instances: int = 16
    up_share: float = 0.54
    stays_up: float = 0.77

    def __post_init__(self) -> None:
        for name in ("launch_delay_s", "most_instances"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        if not 0 < self.up_share < 1:
            raise ValueError(f"up_share must lie between 0 and 1, was {self.up_share}")
        if not self.up_share < self.stays_up < 1:
            raise ValueError(
                f"stays_up must lie between up_share ({self.up_share}) and 1, was {self.stays_up}"
            )


class BelievedCounts:
    """Counts that nobody says, slot by slot: they depend on settings, offering and slot alone."""

    def __init__(self, settings: PaperSettings) -> None:
        self._settings = settings
        self._last: dict[str, tuple[int, bool]] = {}

    def spot_available(self, offering_id: str, slot: int, slot_s: int) -> int:
        """How many spot instances are believed to be there in a slot."""
        return self._settings.most_instances if self._is_up(offering_id, slot, slot_s) else 0

    def _is_up(self, offering_id: str, slot: int, slot_s: int) -> bool:
        settings = self._settings
        at, up = self._last.get(offering_id, (-1, False))
        if at > slot or at < 0:
            at, up = 0, self._drawn(offering_id, 0) < settings.up_share
        # The share of the way to the long run that a slot goes.
        hours = slot_s / S_PER_HOUR
        left = (settings.stays_up - settings.up_share) / (1 - settings.up_share)
        mixed = 1 - math.exp(hours * math.log(left))
        for later in range(at + 1, slot + 1):
            stays = settings.up_share * mixed + (1 - mixed if up else 0)
            up = self._drawn(offering_id, later) < stays
        self._last[offering_id] = (slot, up)
        return up

    def _drawn(self, offering_id: str, slot: int) -> float:
        return uniform(self._settings.seed, "believed up", offering_id, slot)
