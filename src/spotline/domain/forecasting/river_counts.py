"""How many instances an offering will have: thresholds, and experts that compete on each.

Availability is forecast as P(count >= c) for a few thresholds c: one instance, a quarter, half
and all of the greatest count seen, and the two beside the present count. For each threshold and
step ahead five estimates compete, mixed by exponential weights on their Brier scores (their sum
over all thresholds is the ranked probability score):

- persistence;
- a heavy tail: a run of age a goes on for h more slots with chance a / (a + h), else it is even;
- how often the threshold was met so long after a slot like this one, over all ages of the run;
- the same for the present age of the run;
- a River logistic regression that corrects the third by age, fraction, hour and the other zones.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from river import linear_model, optim

from spotline.domain.forecasting.distribution import quantised
from spotline.domain.forecasting.river_state import linear
from spotline.domain.market.forecast import CountProbability

_EXPERTS = 5
_MEMORY = 0.995  # decay per slot of frequencies: about two hundred slots
_LOSS_MEMORY = 0.97  # the mixture follows a change of regime in some thirty slots
_PERSISTENCE_EDGE = 0.5  # Brier score that persistence is ahead of the others at equal losses
_MIX_RATE = 2.0  # Brier scores are mixable up to this rate
_FORGOTTEN = 0.25  # share of frequencies and losses that is left after drift
_AGE_BUCKETS = 7
_PRIOR_SLOTS = 2.0  # weight of the prior that runs go on, in slots
_BUCKET_PRIOR_SLOTS = 20.0  # overlapping labels: a slot is worth less than one sample
_RECENT_COUNTS = 256
_RUNS_KEPT = 64
_MOVE_RATE = 0.1
_PROBABILITY_FLOOR = 0.002
_LOGISTIC_RATE = 0.02


def _logit(probability: float) -> float:
    return math.log(probability / (1.0 - probability))


@dataclass(slots=True)
class _Frequencies:
    """Decayed frequencies of "still or again met" after each step, one row per age bucket.

    Row 0 holds all ages. `met` and `seen` have shape (1 + age buckets, horizon).
    """

    met: list[list[float]]
    seen: list[list[float]]

    @classmethod
    def empty(cls, horizon_slots: int) -> _Frequencies:
        rows = _AGE_BUCKETS + 1
        return cls(
            [[0.0] * horizon_slots for _ in range(rows)],
            [[0.0] * horizon_slots for _ in range(rows)],
        )

    def learn(self, bucket: int, h: int, label: float) -> None:
        for row in (0, bucket):
            self.met[row][h] = _MEMORY * self.met[row][h] + label
            self.seen[row][h] = _MEMORY * self.seen[row][h] + 1.0

    def fade(self, kept: float) -> None:
        for rows in (self.met, self.seen):
            for row in rows:
                row[:] = [kept * value for value in row]

    def estimate(self, *, above: bool, bucket: int, h: int, tail: float) -> tuple[float, float]:
        """Probability of being met at index `h`, over all ages and for this age of the run.

        Ages seldom seen lean on `tail`.
        """
        stays = 0.5 + 0.5 * 0.97 ** (h + 1)
        prior = stays if above else 1.0 - stays
        overall = (self.met[0][h] + _PRIOR_SLOTS * prior) / (self.seen[0][h] + _PRIOR_SLOTS)
        aged = (self.met[bucket][h] + _BUCKET_PRIOR_SLOTS * tail) / (
            self.seen[bucket][h] + _BUCKET_PRIOR_SLOTS
        )
        floor = _PROBABILITY_FLOOR
        return (
            min(1.0 - floor, max(floor, overall)),
            min(1.0 - floor, max(floor, aged)),
        )


def _logistic() -> Any:
    """A logistic regression that starts as the identity on `prior`."""
    model = linear_model.LogisticRegression(
        optimizer=optim.SGD(_LOGISTIC_RATE),
        initializer=optim.initializers.Constant(1.0),
        intercept_lr=_LOGISTIC_RATE,
        clip_gradient=1.0,
    )
    model.learn_one({"prior": 1.0}, True, w=0.0)
    model.initializer = optim.initializers.Zeros()
    return model


@dataclass(slots=True)
class _Side:
    """What is known of one threshold while it is met (or while it is not)."""

    frequencies: _Frequencies
    losses: list[list[float]]  # decayed Brier sums, shape (horizon, experts)
    logistic: Annotated[Any, linear(_logistic)]

    @classmethod
    def fresh(cls, horizon_slots: int) -> _Side:
        return cls(
            _Frequencies.empty(horizon_slots),
            [[0.0] * _EXPERTS for _ in range(horizon_slots)],
            _logistic(),
        )

    def mixed(self, h: int, experts: Sequence[float]) -> float:
        losses = [self.losses[h][0] - _PERSISTENCE_EDGE, *self.losses[h][1:]]
        least = min(losses)
        total = mixed = 0.0
        for loss, probability in zip(losses, experts, strict=True):
            weight = math.exp(-_MIX_RATE * (loss - least))
            total += weight
            mixed += weight * probability
        return mixed / total

    def learn(self, view: _View, h: int, label: bool, season: tuple[float, float]) -> None:
        met = 1.0 if label else 0.0
        self.frequencies.learn(view.bucket, h, met)
        losses = self.losses[h]
        for i, probability in enumerate(view.experts[h]):
            losses[i] = _LOSS_MEMORY * losses[i] + (probability - met) ** 2
        self.logistic.learn_one(view.features(h, season), label)


@dataclass(slots=True)
class _View:
    """One threshold as seen when a forecast was issued; `experts` has shape (horizon, experts)."""

    key: str
    count: int
    bucket: int
    age: float
    fraction: float
    elsewhere: float
    experts: list[tuple[float, float, float, float, float]]

    def features(self, h: int, season: tuple[float, float]) -> dict[str, float]:
        return self.features_of(self.experts[h][1], h, season)

    def features_of(self, prior: float, h: int, season: tuple[float, float]) -> dict[str, float]:
        return {
            "prior": _logit(prior),
            "age": self.age,
            "steps": math.log2(h + 1) / 4.0,
            "fraction": self.fraction,
            "elsewhere": self.elsewhere,
            "sin": season[0],
            "cos": season[1],
        }


@dataclass(slots=True)
class CountModel:
    """The availability of one offering."""

    horizon_slots: int
    greatest: int = 0
    last: int | None = None
    runs: list[tuple[int, int]] = field(default_factory=list)  # (first slot, count)
    recent: list[int] = field(default_factory=list)
    ordered: list[int] = field(default_factory=list)  # `recent`, sorted
    usual_move: float = 1.0  # decayed mean of the changes that are not 0
    sides: dict[str, _Side] = field(default_factory=dict)
    issued: list[tuple[int, list[_View]]] = field(default_factory=list)

    def learn(self, slot: int, count: int, season: tuple[float, float]) -> None:
        """Take in a known count: label what matures in this slot."""
        self.issued = [i for i in self.issued if slot - i[0] <= self.horizon_slots]
        for issued_slot, views in self.issued:
            h = slot - issued_slot - 1
            for view in views:
                self.sides[view.key].learn(view, h, count >= view.count, season)
        if self.last is not None and count != self.last:
            self.usual_move += _MOVE_RATE * (abs(count - self.last) - self.usual_move)
        self.last = count
        self.greatest = max(self.greatest, count)
        self.recent = [*self.recent[1 - _RECENT_COUNTS :], count]
        self.ordered = sorted(self.recent)
        if not self.runs or self.runs[-1][1] != count:
            self.runs = [*self.runs[1 - _RUNS_KEPT :], (slot, count)]

    def issue(
        self, slot: int, seasons: Sequence[tuple[float, float]], elsewhere: float
    ) -> list[tuple[CountProbability, ...]]:
        """Distributions of the count 1, 2, ... steps after `slot`, whose count was just learnt."""
        last = self.last
        if last is None:
            raise ValueError("a count must be learnt before distributions are issued")
        horizon = range(self.horizon_slots)
        views: list[_View] = []
        chances: list[list[float]] = []  # P(count >= threshold), shape (thresholds, horizon)
        for threshold, role in self._thresholds(last):
            above = last >= threshold
            key = f"{role}:{above}"
            if key not in self.sides:
                self.sides[key] = _Side.fresh(self.horizon_slots)
            side = self.sides[key]
            age_slots = self._age_slots(slot, threshold, above)
            bucket = min(_AGE_BUCKETS, age_slots.bit_length())
            view = _View(
                key=key,
                count=threshold,
                bucket=bucket,
                age=math.log2(age_slots) / 4.0 - 1.0,
                fraction=last / self.greatest,
                elsewhere=elsewhere,
                experts=[],
            )
            for h in horizon:
                lasts = 0.5 + 0.5 * age_slots / (age_slots + h + 1)
                tail = lasts if above else 1.0 - lasts
                overall, aged = side.frequencies.estimate(
                    above=above, bucket=bucket, h=h, tail=tail
                )
                features = view.features_of(overall, h, seasons[h])
                corrected = side.logistic.predict_proba_one(features)[True]
                view.experts.append((1.0 if above else 0.0, overall, aged, corrected, tail))
            views.append(view)
            chances.append([side.mixed(h, view.experts[h]) for h in horizon])
        self.issued.append((slot, views))
        thresholds = [view.count for view in views]
        return [
            self._distribution(
                self._places(thresholds, last, h + 1), [chance[h] for chance in chances]
            )
            for h in horizon
        ]

    def forget(self) -> None:
        """Keep a share of what was learnt, so that the next slots count for more."""
        for side in self.sides.values():
            side.frequencies.fade(_FORGOTTEN)
            for losses in side.losses:
                losses[:] = [_FORGOTTEN * loss for loss in losses]

    def _thresholds(self, last: int) -> list[tuple[int, str]]:
        """Thresholds in ascending order, each with the role whose model serves it."""
        full = self.greatest
        roles = [
            ("any", 1),
            ("full", full),
            ("half", -(-full // 2)),
            ("quarter", -(-full // 4)),
            ("same", last),
            ("more", last + 1),
        ]
        chosen: dict[int, str] = {}
        for role, threshold in roles:
            if 1 <= threshold <= full:
                chosen.setdefault(threshold, role)
        return sorted(chosen.items())

    def _age_slots(self, slot: int, threshold: int, above: bool) -> int:
        """Slots since the threshold was last crossed, counting this one; at least 1."""
        since = slot
        for first, count in reversed(self.runs):
            if (count >= threshold) != above:
                break
            since = first
        return slot - since + 1

    def _places(self, thresholds: Sequence[int], last: int, steps: int) -> list[int]:
        """A representative count for each interval between 0, the thresholds and the end.

        The median of recent counts inside it; if nearer to the present count, where a random walk
        of the usual moves would have got to.
        """
        walked = max(1, round(self.usual_move * math.sqrt(steps)))
        places = []
        for low, end in pairwise([0, *thresholds, self.greatest + 1]):
            if low <= last < end:
                places.append(last)
                continue
            first, stop = bisect_left(self.ordered, low), bisect_left(self.ordered, end)
            inside = self.ordered[(first + stop) // 2] if stop > first else (low + end - 1) // 2
            if last < low:
                places.append(min(inside, max(low, last + walked)))
            else:
                places.append(max(inside, min(end - 1, last - walked)))
        return places

    @staticmethod
    def _distribution(
        places: Sequence[int], chances: Sequence[float]
    ) -> tuple[CountProbability, ...]:
        """Masses between chances of >= each threshold, forced to fall as the threshold rises."""
        masses = []
        before = 1.0
        for place, chance in zip(places, [*chances, 0.0], strict=True):
            now = min(before, chance)
            masses.append((place, before - now))
            before = now
        return quantised(masses)
