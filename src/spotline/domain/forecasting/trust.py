"""How far forecasts may be used now: a consumer's judgement, a fold over slots and forecasts.

Two things decide. The scores published with a forecast say how far it is trusted: per offering and
step, a share of it, the rest being persistence.

- A step whose count score is no worse than persistence's is trusted wholly; one that is worse by
  half of it (or of a fiftieth of the greatest count, if more) not at all; in between the share
  falls evenly. The fewer counts were scored, the smaller the discount.
- For `_DRIFT_SLOTS` slots after the score of a step was seen to drift, its share is halved.
- Where the mean share of an offering's steps falls below `_LEAST_SHARE_PPM`, its forecasts are
  not used at all. Scores without a weight, from logs that did not record it, change nothing.

And each forecast is checked when it is issued, against the quotes of its slot and against itself:

- the price one step ahead lies no further from the present one than the market usually moves;
- prices and distributions do not jump back and forth from step to step, as noise does;
- matured one-step distributions were not clearly worse than persistence, several slots running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import crps_milli, quantised, transport_milli
from spotline.domain.forecasting.scoring import quotes_by_offering
from spotline.domain.market.forecast import ForecastScore, ForecastStep, OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.units import PPM

_SANE_TO_RECOVER = 2  # noise may look sane once

_PRICE_FLOOR = 0.02  # moves below it are never suspicious
_USUAL_MOVES = 6.0
_RECENT_MOVES = 1.5
_MOVE_RATE = 0.05
_RECENT_KEPT = 0.9
_PRICE_ZIGZAG = 3.0  # path of the price over its range; independent noise over 12 steps: 4.3
_COUNT_ZIGZAG = 0.15  # mean detour per step, as a share of the greatest count
_FEWEST_STEPS = 4  # shorter forecasts have no shape to judge

_LOSS_KEPT = 0.7
_LOSS_CAP = 0.3  # a calibrated forecast may lose big once
_LOSS_LIMIT = 0.65

_WORST_EXCESS = 0.5  # score above persistence's, as a share of it, at which nothing is trusted
_EXCESS_FLOOR_MILLI = 20  # per instance of the greatest count: less is too little to matter
_EVIDENCE_MILLI = 24_000  # weight of scored slots that discounts half of what it shows
_DRIFT_SLOTS = 12
_DRIFT_SHARE = 0.5
_LEAST_SHARE_PPM = 250_000


@dataclass(slots=True, kw_only=True)
class OfferingTrust:
    """What the judge knows of one offering. Moves are relative, counts shares of `greatest`."""

    price_micro_usd: int = 0
    usual_move: float = 0.0
    recent_move: float = 0.0
    greatest: int = 1
    count: int | None = None
    expected: ForecastStep | None = None
    loss: float = 0.0
    fault: str = ""
    sane: int = _SANE_TO_RECOVER
    shares_ppm: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class ForecastTrust:
    """Judges forecasts as they come; a plain value, to be kept in its owner's state.

    Feed each `SlotOpened` and then the `ForecastIssued` of that slot; a forecast of another slot
    is ignored. Before the first forecast everything is trusted.
    """

    slot: int = -1
    offerings: dict[str, OfferingTrust] = field(default_factory=dict)

    def note_slot(self, slot_opened: SlotOpened) -> None:
        """Take in the truth, and score the one-step forecasts made for this slot."""
        if slot_opened.slot <= self.slot:
            return
        consecutive = slot_opened.slot == self.slot + 1
        self.slot = slot_opened.slot
        quotes = quotes_by_offering(slot_opened)
        for offering_id, quote in quotes.items():
            known = self.offerings.setdefault(offering_id, OfferingTrust())
            _observe(known, quote, consecutive)
        for offering_id in sorted(self.offerings):
            if offering_id not in quotes:
                # It left the market: it is not forecast, which is no fault of the forecaster's.
                del self.offerings[offering_id]

    def note_forecast(self, issued: ForecastIssued) -> None:
        """Judge the forecast of the slot observed last."""
        if issued.slot != self.slot:
            return
        forecasts = {f.offering_id: f.steps for f in issued.forecasts}
        scores: dict[str, list[ForecastScore]] = {}
        for score in issued.scores:
            scores.setdefault(score.offering_id, []).append(score)
        for offering_id in sorted(self.offerings):
            known = self.offerings[offering_id]
            steps = forecasts.get(offering_id, ())
            known.shares_ppm = _shares_ppm(scores.get(offering_id, []), known.greatest, self.slot)
            fault = _fault(known, steps)
            known.expected = steps[0] if steps else None
            known.sane = 0 if fault else min(_SANE_TO_RECOVER, known.sane + 1)
            if fault:
                known.fault = fault
            elif known.sane == _SANE_TO_RECOVER:
                known.fault = ""

    def fault(self, offering_id: str | None = None) -> str:
        """Why forecasts must not be used now, empty if they may; of all offerings or of one."""
        if offering_id is not None:
            known = self.offerings.get(offering_id)
            return known.fault if known is not None else ""
        for each in sorted(self.offerings):
            if self.offerings[each].fault:
                return f"{each}: {self.offerings[each].fault}"
        return ""

    def share_ppm(self, offering_id: str, step: int) -> int:
        """How much of a forecast `step` slots ahead to believe, parts per million."""
        known = self.offerings.get(offering_id)
        if known is None or step > len(known.shares_ppm):
            return PPM
        return known.shares_ppm[step - 1]

    def moderated(self, issued: ForecastIssued) -> ForecastIssued:
        """Draw the forecast of the slot observed last towards persistence, as far as distrusted.

        Counts are mixed with the present one, prices moved towards the present price. Offerings
        whose present count is unknown keep their distributions.
        """
        if issued.slot != self.slot:
            return issued
        forecasts = []
        for forecast in issued.forecasts:
            known = self.offerings.get(forecast.offering_id)
            if known is None or all(share == PPM for share in known.shares_ppm):
                forecasts.append(forecast)
                continue
            shares = (
                self.share_ppm(forecast.offering_id, k + 1) for k in range(len(forecast.steps))
            )
            steps = tuple(
                _moderated(known, step, share)
                for step, share in zip(forecast.steps, shares, strict=True)
            )
            forecasts.append(OfferingForecast(offering_id=forecast.offering_id, steps=steps))
        return replace(issued, forecasts=tuple(forecasts))

    @property
    def trusted(self) -> bool:
        """Whether the forecasts of all offerings may be used now."""
        return not self.fault()


def _observe(known: OfferingTrust, quote: Quote, consecutive: bool) -> None:
    price = quote.spot_price_micro_usd
    if known.price_micro_usd:
        move = abs(price - known.price_micro_usd) / min(price, known.price_micro_usd)
        known.usual_move += _MOVE_RATE * (move - known.usual_move)
        known.recent_move = max(_RECENT_KEPT * known.recent_move, move)
    known.price_micro_usd = price
    before, expected = known.count, known.expected
    known.expected = None
    if not quote.spot_available.known:
        known.count = None
        return
    known.count = quote.spot_available.instances
    known.greatest = max(known.greatest, known.count)
    if consecutive and before is not None and expected is not None:
        lost_milli = crps_milli(expected.counts, known.count) - abs(known.count - before) * 1_000
        lost = lost_milli / 1_000 / known.greatest
        known.loss = _LOSS_KEPT * known.loss + max(-_LOSS_CAP, min(_LOSS_CAP, lost))
        known.loss = max(0.0, known.loss)


def _fault(known: OfferingTrust, steps: Sequence[ForecastStep]) -> str:
    if not known.price_micro_usd:
        return ""
    if not steps:
        return "no forecast of this offering"
    allowed = max(_PRICE_FLOOR, _USUAL_MOVES * known.usual_move, _RECENT_MOVES * known.recent_move)
    first = steps[0].spot_price_micro_usd
    jump = abs(first - known.price_micro_usd) / min(first, known.price_micro_usd)
    if jump > allowed:
        return f"the next price is {jump:.0%} away from the present one"
    if len(steps) >= _FEWEST_STEPS:
        prices = [step.spot_price_micro_usd for step in steps]
        spread = max(prices) - min(prices)
        path = sum(abs(b - a) for a, b in pairwise(prices))
        if spread > allowed * known.price_micro_usd and path > _PRICE_ZIGZAG * spread:
            return "prices jump back and forth from step to step"
        if known.count is not None and _detour(steps, known.greatest) > _COUNT_ZIGZAG:
            return "distributions jump back and forth from step to step"
    if known.shares_ppm and sum(known.shares_ppm) < _LEAST_SHARE_PPM * len(known.shares_ppm):
        return "the published scores are far worse than persistence"
    if known.loss > _LOSS_LIMIT:
        return "recent one-step forecasts were clearly worse than persistence"
    return ""


def _shares_ppm(scores: Sequence[ForecastScore], greatest: int, slot: int) -> tuple[int, ...]:
    """Share to trust of every step up to the last one scored; unscored steps wholly."""
    shares = [PPM] * max((score.step for score in scores), default=0)
    for score in scores:
        if score.scored_milli == 0:
            continue
        excess = score.count_crps_milli - score.persistence_crps_milli
        base = max(score.persistence_crps_milli, _EXCESS_FLOOR_MILLI * greatest)
        discount = min(1.0, max(0.0, excess / base / _WORST_EXCESS))
        discount *= score.scored_milli / (score.scored_milli + _EVIDENCE_MILLI)
        share = 1.0 - discount
        if score.drift_slot and slot - score.drift_slot < _DRIFT_SLOTS:
            share *= _DRIFT_SHARE
        shares[score.step - 1] = round(share * PPM)
    return tuple(shares)


def _moderated(known: OfferingTrust, step: ForecastStep, share_ppm: int) -> ForecastStep:
    if share_ppm == PPM:
        return step
    rest_ppm = PPM - share_ppm
    price = (share_ppm * step.spot_price_micro_usd + rest_ppm * known.price_micro_usd) // PPM
    counts = step.counts
    if known.count is not None:
        masses = [(c.instances, float(c.probability_ppm * share_ppm)) for c in counts]
        counts = quantised([*masses, (known.count, float(PPM * rest_ppm))])
    return ForecastStep(spot_price_micro_usd=max(1, price), counts=counts)


def _detour(steps: Sequence[ForecastStep], greatest: int) -> float:
    """How much longer the way through all steps is than the direct one, per step."""
    path_milli = sum(transport_milli(a.counts, b.counts) for a, b in pairwise(steps))
    direct_milli = transport_milli(steps[0].counts, steps[-1].counts)
    return (path_milli - direct_milli) / 1_000 / greatest / (len(steps) - 1)
