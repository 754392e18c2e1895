"""The forecasters there are, by name. Modules load on first use: River takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from spotline.domain.forecasting.interface import Forecaster

DEFAULT_FORECASTER = "mixture"

_PACKAGE = "spotline.domain.forecasting"
_FORECASTERS = {
    "climatology": (
        "climatology",
        "ClimatologyForecaster",
        "How often each count has been seen lately, whatever the present one.",
    ),
    "law": (
        "law_forecaster",
        "LawForecaster",
        "The learned law of the market, run forward step by step.",
    ),
    "mixture": (
        "mixture",
        "MixtureForecaster",
        "The others pooled, with weights learnt online from their scores.",
    ),
    "persistence": (
        "persistence",
        "PersistenceForecaster",
        "Prices and counts stay what they are: the baseline.",
    ),
    "river": (
        "river_forecaster",
        "RiverForecaster",
        "River's online models, weighted against simpler ones by their errors.",
    ),
    "seasonal_naive": (
        "seasonal_naive",
        "SeasonalNaiveForecaster",
        "What was at the same time of day: counts of recent days, yesterday's price.",
    ),
    "snarimax": (
        "snarimax",
        "SnarimaxForecaster",
        "River's SNARIMAX for price and count, spread by its own recent residuals.",
    ),
}


def forecaster_names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_FORECASTERS))


def forecaster_summary(name: str) -> str:
    """What a registered forecaster says, in one line."""
    return _FORECASTERS[name][2]


def forecaster_factory(name: str) -> type[Forecaster]:
    """Look up a forecaster's class: call it with a horizon, or `load` a dumped state with it.

    Raises
    ------
    ValueError
        No forecaster has this name.
    """
    if name not in _FORECASTERS:
        known = ", ".join(forecaster_names())
        raise ValueError(f"forecaster must be one of {known}, was {name!r}")
    module, attribute, _ = _FORECASTERS[name]
    return cast("type[Forecaster]", getattr(import_module(f"{_PACKAGE}.{module}"), attribute))


def make_forecaster(name: str = DEFAULT_FORECASTER, horizon_slots: int = 12) -> Forecaster:
    """Start a fresh forecaster; `ValueError` where name or horizon is wrong."""
    return forecaster_factory(name)(horizon_slots)
