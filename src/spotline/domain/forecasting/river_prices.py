"""What an offering's spot will cost: its last price, and what a regression adds to it.

The price is the last one, plus what a River linear regression on deviations from slow and fast
means adds wherever it has been beating persistence; sticky prices stay exactly at persistence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from river import linear_model, optim

from spotline.domain.forecasting.river_state import linear

_LINEAR_RATE = 0.01
_PRICE_MEMORY = 0.995
_PRICE_ADVANTAGE = 0.95  # a correction must beat persistence by this much
_SLOW = 0.02
_FAST = 0.2
_STICKY = 0.1  # a price that moves in fewer slots than this share is left alone
_PRICE_WEIGHT_FLOOR = 0.05  # below it a correction is dropped, and the price stays exact


def _clamped(value: float, bound: float) -> float:
    return max(-bound, min(bound, value))


def _regression() -> Any:
    return linear_model.LinearRegression(
        optimizer=optim.SGD(_LINEAR_RATE), intercept_lr=_LINEAR_RATE, clip_gradient=5.0
    )


@dataclass(slots=True)
class _PriceStep:
    """One step ahead: a regression of the log price's move, and how it fares."""

    regression: Annotated[Any, linear(_regression)]
    scale: float = 0.0  # decayed mean of the absolute move
    weight: float = 0.0
    loss: float = 0.0
    persistence_loss: float = 0.0

    def trust(self) -> float:
        """Share of the correction to apply, 0 or in `_PRICE_WEIGHT_FLOOR`..1."""
        margin = self.loss - _PRICE_ADVANTAGE * self.persistence_loss
        exponent = _clamped(margin + 3.0, 50.0)
        share = 1.0 / (1.0 + math.exp(exponent))
        return share if share >= _PRICE_WEIGHT_FLOOR else 0.0


@dataclass(slots=True)
class PriceModel:
    """The spot price of one offering, in logarithms."""

    steps: list[_PriceStep]
    log_price: float = 0.0
    slow: float = 0.0
    fast: float = 0.0
    scale: float = 0.0  # decayed mean of the absolute one-step move
    moving: float = 0.0  # decayed share of slots in which it moved
    learnt: int = 0
    issued: list[tuple[int, float, dict[str, float], list[float]]] = field(default_factory=list)

    @classmethod
    def fresh(cls, horizon_slots: int) -> PriceModel:
        """A model that knows nothing."""
        return cls([_PriceStep(_regression()) for _ in range(horizon_slots)])

    def learn(self, slot: int, price_micro_usd: int) -> None:
        """Take in a price: score and train what matures in this slot."""
        log_price = math.log(price_micro_usd)
        self.issued = [i for i in self.issued if slot - i[0] <= len(self.steps)]
        for issued_slot, then, features, moves in self.issued:
            h = slot - issued_slot - 1
            step = self.steps[h]
            move = log_price - then
            step.scale = _PRICE_MEMORY * step.scale + abs(move)
            step.weight = _PRICE_MEMORY * step.weight + 1.0
            unit = step.scale / step.weight
            if unit > 0.0 and features:
                step.loss = _PRICE_MEMORY * step.loss + abs(move - moves[h]) / unit
                step.persistence_loss = _PRICE_MEMORY * step.persistence_loss + abs(move) / unit
                step.regression.learn_one(features, _clamped(move / unit, 5.0))
        if self.learnt == 0:
            self.slow = self.fast = log_price
        else:
            moved = abs(log_price - self.log_price)
            rate = max(_SLOW, 1.0 / self.learnt)
            self.scale += (moved - self.scale) * rate
            self.moving += ((1.0 if moved > 0.0 else 0.0) - self.moving) * rate
            self.slow += (log_price - self.slow) * max(_SLOW, 1.0 / (self.learnt + 1))
            self.fast += (log_price - self.fast) * _FAST
        self.log_price = log_price
        self.learnt += 1

    def issue(self, slot: int, season: tuple[float, float], price_micro_usd: int) -> list[int]:
        """Expected prices 1, 2, ... steps after `slot`, micro-USD per instance-hour."""
        features: dict[str, float] = {}
        moves = [0.0] * len(self.steps)
        if self.moving >= _STICKY:
            features = {
                "slow": _clamped((self.log_price - self.slow) / self.scale, 10.0) / 5.0,
                "fast": _clamped((self.log_price - self.fast) / self.scale, 10.0) / 5.0,
                "sin": season[0],
                "cos": season[1],
            }
            for h, step in enumerate(self.steps):
                if step.weight > 0.0:
                    unit = step.scale / step.weight
                    moves[h] = _clamped(step.regression.predict_one(features), 3.0) * unit
        self.issued.append((slot, self.log_price, features, moves))
        prices = []
        for step, move in zip(self.steps, moves, strict=True):
            correction = _clamped(step.trust() * move, 2.0)
            prices.append(max(1, round(price_micro_usd * math.exp(correction))))
        return prices
