"""Paper in place of a cloud: it fills from what is believed of the market, and nothing is paid.

Where a quote says how many spot instances there are, that is what is granted, and what is beyond it
is taken back. Where it says nothing, as no cloud does, an offering is believed to be up or down by
a chain of two states, drawn by a seed: a run repeats itself. Ids begin with `PAPER_PREFIX`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings, uniform
from spotline.application.cloud_actuator.messages import Moment
from spotline.domain.market.offering import Count, Provenance, Quote
from spotline.domain.modes import PAPER_PREFIX
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


class PaperCloud(SimulatedCloud):
    """Implements `CloudProvider` on paper, on a store of its own.

    `notice_lead_s` is that of the cloud in whose place it stands.
    """

    def __init__(self, path: Path, settings: PaperSettings, *, notice_lead_s: int) -> None:
        super().__init__(
            path,
            SimulatedCloudSettings(
                seed=settings.seed,
                launch_delay_s=settings.launch_delay_s,
                notice_lead_s=notice_lead_s,
            ),
            id_prefix=PAPER_PREFIX,
        )
        self._beliefs = BelievedCounts(settings)

    def open_slot(self, at: Moment, quotes: Sequence[Quote]) -> None:
        """Take over the slot's quotes, with what is believed where they say nothing."""
        super().open_slot(at, [self._believed(quote, at) for quote in quotes])

    def _believed(self, quote: Quote, at: Moment) -> Quote:
        if quote.spot_available.known:
            return quote
        count = self._beliefs.spot_available(quote.offering_id, at.slot, at.slot_s)
        return replace(quote, spot_available=Count(instances=count, provenance=Provenance.INFERRED))
