"""Placement scores beside quotes: shown with their age, and taken for what launches show them to be worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from spotline.adapters.clouds.aws.feeds.placement_scores import (
    KEPT_S,
    PlacementScores,
    ScoredConfiguration,
)
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.offering import BEST_PLACEMENT_SCORE
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingScore:
    """The score of an offering, 1 to 10, and when AWS gave it."""

    offering_id: str
    score: int
    asked_ns: int


class PlacementAdvice:
    """Asks for the scores of offerings, for so many instances, as seldom as `PlacementScores` allows.

    What AWS does not answer is asked for again a day later: there is no right, or it is too often.
    """

    def __init__(self, scores: PlacementScores, instances: int) -> None:
        self._scores, self._instances = scores, instances
        self._not_before_ns: dict[str, int] = {}

    async def of(self, offerings: Sequence[AwsOffering], now_ns: int) -> list[OfferingScore]:
        """The scores of those that have one, in order of ids."""
        by_place: dict[tuple[str, str, str], list[AwsOffering]] = {}
        for offering in sorted(offerings, key=lambda each: each.offering_id):
            where = offering.account, offering.region, offering.instance_type
            by_place.setdefault(where, []).append(offering)
        found: list[OfferingScore] = []
        for (account, region, kind), sold in sorted(by_place.items()):
            what = ScoredConfiguration(
                account=account, region=region, instance_type=kind, instances=self._instances
            )
            found += await self._scored(what, sold, now_ns)
        return found

    async def _scored(
        self, what: ScoredConfiguration, sold: Sequence[AwsOffering], now_ns: int
    ) -> list[OfferingScore]:
        if now_ns < self._not_before_ns.get(what.key, 0):
            return []
        try:
            given = await self._scores.given(what, now_ns)
        except ProviderUnavailable as error:
            self._not_before_ns[what.key] = now_ns + KEPT_S * NS_PER_S
            _log.warning("placement_scores_silent", what=what.key, error=str(error))
            return []
        if given is None:
            return []
        return [
            OfferingScore(
                offering_id=offering.offering_id,
                score=min(BEST_PLACEMENT_SCORE, given.by_zone[offering.zone]),
                asked_ns=given.asked_ns,
            )
            for offering in sold
            if given.by_zone.get(offering.zone, 0) > 0
        ]
