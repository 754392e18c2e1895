"""Settings of the forecaster, read once at start."""

from __future__ import annotations

from pydantic import Field

from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.market.learning_rules import LearningRules
from spotline.runtime.settings import ServiceSettings


class ForecasterSettings(ServiceSettings):
    """`SPOTLINE_*` of the forecaster; `forecaster` is a name of the registry.

    `watch_laws`: what a market did before its law changed is forgotten. `whole_gangs`: laws tell a
    whole gang from one that has lost a few. `falling_ends`: the ends of runs are drawn towards a power of
    their age. `present_prices`: prices are learned from recent slots, with the latest among the levels.
    With `priors` laws are drawn towards those in the wheel until the market has shown its own.
    """

    forecaster: str = DEFAULT_FORECASTER
    horizon_slots: int = Field(default=12, ge=1, le=96)
    watch_laws: bool = True
    whole_gangs: bool = True
    falling_ends: bool = True
    present_prices: bool = True
    priors: bool = True

    @property
    def learning(self) -> LearningRules:
        """How laws are learned."""
        return LearningRules(
            watch_laws=self.watch_laws,
            whole_gangs=self.whole_gangs,
            falling_ends=self.falling_ends,
            present_prices=self.present_prices,
        )
