"""What is believed of the spot counts of a market that publishes none: slot by slot, by offering.

A slot ends with what it has shown: so many were held, and where a launch was refused or instances were
taken back, no more were there. Between two slots the laws pass. What nobody asked for nobody saw: there
the belief drifts back to the long run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spotline.domain.beliefs.count_laws import (
    LEVEL_STARTS,
    UNBOUNDED,
    CountBelief,
    CountLaws,
)
from spotline.domain.beliefs.score_evidence import ScoreEvidence, StandingScore
from spotline.domain.drawn import uniform
from spotline.domain.market.law import AGE_STARTS, MarketLaw, StateSpace
from spotline.domain.market.offering import Quote
from spotline.domain.units import NS_PER_S, PPM

ASKING_S = 60
"""What asking in vain costs: so long a job may be without what it would have held, seconds."""

_MOST_PRICES = 336  # a week of half-hours
_AGES = len(AGE_STARTS)


@dataclass(slots=True, kw_only=True)
class BelievedOffering:
    """One offering: its belief, the prices it was quoted at, and what its open slot has shown.

    `path` is the law and the run state of one path that its counts may have taken. `room` is how many
    more than are held a refusal leaves possible, -1 where nothing was refused. Before `cool_until_ns`
    the cloud is not asked: what is refused until then says nothing. `shown` is the most that a probe
    of the open slot was granted. `levels_seen` are the least and the
    greatest level that the slot settled last may have had, `foreseen` how likely that was before.
    `advice` is the placement score that was given last, and `unmoved` the share of the belief that it left
    where it was in the open slot.
    """

    belief: CountBelief
    prices_ppm: list[int] = field(default_factory=list)
    path: tuple[int, int] = (-1, 0)
    room: int = -1
    cool_until_ns: int = 0
    shown: int = 0
    levels_seen: tuple[int, int] = (0, len(LEVEL_STARTS) - 1)
    foreseen: float = 1.0
    advice: StandingScore = field(default_factory=StandingScore)
    unmoved: float = 1.0

    @property
    def is_bounded(self) -> bool:
        """Whether a refusal or a loss has shown in the open slot how much there is."""
        return self.room >= 0

    def to_ask_for(self, quote: Quote, held: int, opened_ns: int, slot_s: int) -> int:
        """The largest count that is worth asking for now, at least what is held.

        That is while the chance to get it, times what it saves in a slot, is more than asking costs.
        """
        saved = quote.on_demand_price_micro_usd - quote.spot_price_micro_usd
        if saved <= 0 or opened_ns < self.cool_until_ns:
            return held
        worth = ASKING_S * quote.on_demand_price_micro_usd / (slot_s * saved)
        return max(held, self.belief.most_with(worth))

    def advised(self, quote: Quote, opened_ns: int, evidence: ScoreEvidence) -> None:
        """Take the placement score of a slot that opens, as far as scores have shown what they tell."""
        weights = self.advice.opened(quote, opened_ns, evidence)
        self.unmoved = 1.0 if weights is None else self.belief.weigh(weights)

    def note_refused(self, requested: int, granted: int, now_ns: int, retry_after_s: int) -> None:
        """Take a refusal for want of capacity: fewer than `requested` were there beside what is held.

        A part that was granted was all there was.
        """
        if now_ns < self.cool_until_ns:
            return
        self.note_room(0 if granted else requested - 1)
        self.cool_until_ns = now_ns + retry_after_s * NS_PER_S

    def note_probed(self, requested: int, granted: int, now_ns: int, retry_after_s: int) -> None:
        """Take what a probe has found; nothing is held where it was sent.

        Where fewer were granted that was for want of capacity: no other refusal tells of the market.
        """
        self.shown = max(self.shown, granted)
        if granted == requested or now_ns < self.cool_until_ns:
            return
        # A gang may come in full or not at all.
        self.note_room(granted or requested - 1)
        self.cool_until_ns = now_ns + retry_after_s * NS_PER_S

    def note_room(self, room: int) -> None:
        """Take that there are at most `room` more than are held."""
        self.room = room if self.room < 0 else min(self.room, room)

    def settle(self, name: str, slot: int, held: int) -> int:
        """End the open slot with so many held; returns the count of the path in it."""
        most = UNBOUNDED if self.room < 0 else held + self.room
        least, self.shown = max(held, self.shown), 0
        most = max(least, most)
        # Paths do not follow advice: where it moved the belief they may be wrong as well.
        self.foreseen = self.unmoved * self.belief.observe(least, most)
        if self.advice.stands and (least or most < UNBOUNDED):
            self.advice.note(self.belief.laws.levels_within(least, most))
        low, high = self.levels_seen = _level(least), _level(most)
        self.room = -1
        law, state = self.path
        chance = uniform(0, "path of counts", name, slot)
        if law >= 0:
            reached = self.belief.laws.transitions[law, state].cumsum()
            state = int(np.searchsorted(reached, chance * reached[-1], side="right"))
        if law < 0 or not low <= state // _AGES <= high:
            reached = self.belief.mass.ravel().cumsum()
            drawn = int(np.searchsorted(reached, chance * reached[-1], side="right"))
            law, state = divmod(drawn, self.belief.mass.shape[1])
        self.path = law, state
        return max(least, LEVEL_STARTS[state // _AGES])


@dataclass(slots=True, kw_only=True)
class SpotBeliefs:
    """The beliefs of all offerings whose counts nobody publishes, by offering id.

    `scores` is what placement scores have shown to be worth, by provider; None where they are left out.
    """

    offerings: dict[str, BelievedOffering] = field(default_factory=dict)
    scores: dict[str, ScoreEvidence] | None = None

    def opened(
        self, quote: Quote, laws: CountLaws, slots: int, *, provider: str, opened_ns: int
    ) -> BelievedOffering:
        """Let an offering's slots pass up to one that opens with this quote; one that is new begins."""
        known = self.offerings.get(quote.offering_id)
        if known is None:
            known = BelievedOffering(belief=CountBelief.before(laws))
            self.offerings[quote.offering_id] = known
        else:
            known.belief.advance(slots)
        known.prices_ppm.append(
            quote.spot_price_micro_usd * PPM // max(1, quote.on_demand_price_micro_usd)
        )
        del known.prices_ppm[:-_MOST_PRICES]
        if self.scores is not None:
            known.advised(quote, opened_ns, self.scores.setdefault(provider, ScoreEvidence()))
        return known

    def run_state(self, offering_id: str, least: int, most: int, space: StateSpace) -> int | None:
        """The likeliest of a law's states with such a count, None where nothing is believed."""
        known = self.offerings.get(offering_id)
        if known is None or space.level_starts != LEVEL_STARTS or space.age_starts != AGE_STARTS:
            return None
        return known.belief.run_state(least, most)

    def risk_ppm(self, offering_id: str, instances: int) -> int:
        """The chance that there are fewer than so many; 0 where nothing is believed."""
        known = self.offerings.get(offering_id)
        return 0 if known is None else round((1.0 - known.belief.chance_of(instances)) * PPM)

    def laws(self) -> Mapping[str, MarketLaw]:
        """The laws that are believed, by offering id."""
        return {name: known.belief.law(known.prices_ppm) for name, known in self.offerings.items()}


def _level(count: int) -> int:
    return int(np.searchsorted(LEVEL_STARTS, count, side="right")) - 1
