"""What a provider's placement scores are worth, learned from what launches showed while each stood.

A score says how likely spot is to be had, and no provider says how often it is right. So it weighs nothing
at first; what was granted, refused and taken back beside earlier scores says what one like them tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotline.domain.beliefs.count_laws import LEVEL_STARTS, FloatArray
from spotline.domain.market.offering import BEST_PLACEMENT_SCORE, Quote
from spotline.domain.units import NS_PER_S

SCORE_LASTS_S = 24 * 3600
"""Seconds after a score was given; what slots show later is not laid to it."""

CREDIBLE_SCORES = 20.0
"""A level seen beside this number of scores is judged half by them, half by how often each is given."""

_LEVELS = len(LEVEL_STARTS)


@dataclass(slots=True, kw_only=True)
class ScoreEvidence:
    """The levels that counts had beside the scores of one provider.

    `met` has shape (scores, levels), the score 0, none, among them: each score that was given counts as one, however
    many slots showed something while it stood, shared out among the levels that they left possible.
    """

    met: FloatArray = field(default_factory=lambda: np.zeros((BEST_PLACEMENT_SCORE + 1, _LEVELS)))

    def weights(self, score: int) -> FloatArray:
        """How much likelier each level is by a score than without it, shape (levels,), > 0.

        All 1 as long as nothing was seen beside any score, and where levels and scores have nothing to do with
        each other in the long run.
        """
        given = self.met.sum(axis=1)
        # Before it was ever given one score is as likely as another.
        often = (given[score] + 1.0 / BEST_PLACEMENT_SCORE) / (given.sum() + 1.0)
        beside = self.met.sum(axis=0)
        weights: FloatArray = (self.met[score] / often + CREDIBLE_SCORES) / (
            beside + CREDIBLE_SCORES
        )
        return weights


@dataclass(slots=True, kw_only=True)
class StandingScore:
    """The score that an offering was given last, and what slots have shown while it stood.

    `shown` sums up the levels that each of `slots` left possible, shape (levels,). `stands` tells whether
    it is still the provider's word in the open slot.
    """

    score: int = 0
    given_ns: int = 0
    stands: bool = False
    slots: int = 0
    shown: FloatArray = field(default_factory=lambda: np.zeros(_LEVELS))

    def opened(self, quote: Quote, opened_ns: int, evidence: ScoreEvidence) -> FloatArray | None:
        """Take a quote's score; returns what it weighs where it is a new one, shape (levels,).

        The one before it has told all that it will: its evidence is taken in.
        """
        lasts_ns = SCORE_LASTS_S * NS_PER_S
        self.stands = bool(quote.placement_score) and opened_ns - quote.scored_ns <= lasts_ns
        if not self.stands or quote.scored_ns <= self.given_ns:
            return None
        if self.slots:
            evidence.met[self.score] += self.shown / self.slots
        weights = evidence.weights(quote.placement_score)
        self.score, self.given_ns = quote.placement_score, quote.scored_ns
        self.slots, self.shown = 0, np.zeros(_LEVELS)
        return weights

    def note(self, levels: FloatArray) -> None:
        """Take the levels that the open slot has left possible while it stands, shape (levels,), summing to 1."""
        self.shown = self.shown + levels
        self.slots += 1
