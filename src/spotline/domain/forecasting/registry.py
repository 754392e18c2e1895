"""The forecasters there are, by name. Modules load on first use: River takes a second."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from spotline.domain.forecasting.interface import Forecaster

DEFAULT_FORECASTER = "mixture"

_PACKAGE = "spotline.domain.forecasting"
_FORECASTERS = {
    "climatology": ("climatology", "ClimatologyForecaster"),
    "law": ("law_forecaster", "LawForecaster"),
    "mixture": ("mixture", "MixtureForecaster"),
    "persistence": ("persistence", "PersistenceForecaster"),
    "river": ("river_forecaster", "RiverForecaster"),
    "seasonal_naive": ("seasonal_naive", "SeasonalNaiveForecaster"),
    "snarimax": ("snarimax", "SnarimaxForecaster"),
}


def forecaster_names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_FORECASTERS))


def forecaster_factory(name: str) -> type[Forecaster]:
    """Look up a forecaster's class: call it with a horizon, or `load` a dumped state with it.

    Raises
    ------
    ValueError
        No forecaster has this name.
    """
    if name not in _FORECASTERS:
        known = ", ".join(forecaster_names())
        raise ValueError(f"forecaster must be one of {known}, was {name}")
    module, attribute = _FORECASTERS[name]
    return cast("type[Forecaster]", getattr(import_module(f"{_PACKAGE}.{module}"), attribute))


def make_forecaster(name: str = DEFAULT_FORECASTER, horizon_slots: int = 12) -> Forecaster:
    """Start a fresh forecaster; `ValueError` where name or horizon is wrong."""
    return forecaster_factory(name)(horizon_slots)
