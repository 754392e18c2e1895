"""Paper in place of a cloud: it fills from what is believed of the market, and nothing is paid.

Where a quote says how many spot instances there are, that is what is granted, and what is beyond it
is taken back. Where it says nothing, as no cloud does, an offering is believed to be up or down by
a chain of two states, drawn by a seed: a run repeats itself. Ids begin with `PAPER_PREFIX`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.messages import Moment
from spotline.domain.market.believed import BelievedCounts, PaperSettings
from spotline.domain.market.offering import Count, Provenance, Quote
from spotline.domain.modes import PAPER_PREFIX


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
