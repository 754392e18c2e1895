"""What is known of AWS's offerings and what was said of them: a pure fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spotline.adapters.clouds.aws.feeds.spot_prices import SpotPricePoint
from spotline.application.market_ingest.ports import Quoted, QuotesStale
from spotline.domain.market.offering import UNKNOWN_COUNT, Quote


@dataclass(slots=True, kw_only=True)
class QuoteBook:
    """Joins spot and on-demand prices of offerings into quotes, each said once.

    A quote lies at the moment of a price's change, or at that of an answer that says it still
    holds: that is said anew after `confirm_every_ns`. An offering of which nothing was confirmed
    for longer than `stale_after_ns` is stale. `remembered` are quotes from before it was begun. AWS
    publishes no counts: they are unknown.
    """

    began_ns: int
    confirm_every_ns: int
    stale_after_ns: int
    remembered: Mapping[str, Quote] = field(default_factory=dict)
    _points: dict[str, SpotPricePoint] = field(default_factory=dict)
    _said: dict[str, Quote] = field(default_factory=dict)
    _stale: set[str] = field(default_factory=set)
    _advice: dict[str, tuple[int, int]] = field(default_factory=dict)

    def advised(self, offering_id: str, score: int, at_ns: int) -> None:
        """Take in a placement score; it is said with the next quote of the offering."""
        self._advice[offering_id] = score, at_ns

    def heard(
        self, offering_id: str, points: Sequence[SpotPricePoint], on_demand: int, at_ns: int
    ) -> list[Quote]:
        """What an answer says anew of an offering; `points` ascend, and are known in part.

        `on_demand` is its price in micro-USD per instance-hour. Nothing is said of an offering
        without a spot price: there is no spot of it.
        """
        quotes: list[Quote] = []
        for point in points:
            known = self._points.get(offering_id)
            if known is not None and point.at_ns <= known.at_ns:
                continue
            self._points[offering_id] = point
            said = self._said.get(offering_id)
            # What was in force before anybody asked is said once, as of the answer.
            if said is not None and said.ts_event_ns < point.at_ns <= at_ns:
                quotes += self._say(offering_id, point.price_micro_usd, on_demand, point.at_ns)
        quotes += self._confirmed(offering_id, on_demand, at_ns)
        return quotes

    def begun(self) -> list[Quote]:
        """The remembered quotes of offerings of which nothing was heard yet, said again."""
        missing = [self.remembered[name] for name in sorted(self.remembered.keys() - self._said)]
        self._said.update({quote.offering_id: quote for quote in missing})
        return missing

    def silent(self, offering_ids: Sequence[str], at_ns: int) -> list[Quoted]:
        """Those of the offerings that have become stale, as one word or none."""
        fallen = []
        for offering_id in sorted(offering_ids):
            since_ns = self._since(offering_id)
            if at_ns - since_ns <= self.stale_after_ns:
                self._stale.discard(offering_id)
            elif offering_id not in self._stale:
                self._stale.add(offering_id)
                fallen.append(offering_id)
        if not fallen:
            return []
        return [
            QuotesStale(offering_ids=tuple(fallen), since_ns=max(map(self._since, fallen))),
        ]

    def latest(self) -> Mapping[str, Quote]:
        """The last quote of each offering that has one."""
        return {**self.remembered, **self._said}

    def _confirmed(self, offering_id: str, on_demand: int, at_ns: int) -> list[Quote]:
        """The price in force as of an answer, where that says anything new."""
        point, said = self._points.get(offering_id), self._said.get(offering_id)
        if point is None:
            return []
        if said is not None:
            prices = (said.spot_price_micro_usd, said.on_demand_price_micro_usd)
            due = at_ns - said.ts_event_ns >= self.confirm_every_ns
            if at_ns <= said.ts_event_ns or (
                prices == (point.price_micro_usd, on_demand) and not due
            ):
                return []
        return self._say(offering_id, point.price_micro_usd, on_demand, at_ns)

    def _say(self, offering_id: str, spot: int, on_demand: int, at_ns: int) -> list[Quote]:
        score, scored_ns = self._advice.get(offering_id, (0, 0))
        quote = Quote(
            offering_id=offering_id,
            ts_event_ns=at_ns,
            spot_price_micro_usd=spot,
            on_demand_price_micro_usd=on_demand,
            spot_available=UNKNOWN_COUNT,
            on_demand_available=UNKNOWN_COUNT,
            placement_score=score,
            scored_ns=scored_ns,
        )
        self._said[offering_id] = quote
        return [quote]

    def _since(self, offering_id: str) -> int:
        """Until when something was known of an offering."""
        said = self._said.get(offering_id)
        return self.began_ns if said is None else said.ts_event_ns
