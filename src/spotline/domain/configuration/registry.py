"""The knowledge sources there are, by name. Modules load on first use: libraries take a second."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from spotline.domain.configuration.interface import KnowledgeSource

DEFAULT_SOURCE = "combined"

_PACKAGE = "spotline.domain.configuration.sources"
_SOURCES = {
    "analytic": ("analytic", "AnalyticSource"),
    "boosting": ("boosting", "BoostingSource"),
    "combined": ("combined", "CombinedSource"),
    "gaussian_process": ("gaussian_process", "GaussianProcessSource"),
    "history": ("history", "HistorySource"),
    "online": ("online", "OnlineSource"),
}


def source_names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_SOURCES))


def source_factory(name: str) -> type[KnowledgeSource]:
    """Look up a source's class.

    Raises
    ------
    ValueError
        No source has this name.
    """
    if name not in _SOURCES:
        known = ", ".join(source_names())
        raise ValueError(f"source must be one of {known}, was {name}")
    module, attribute = _SOURCES[name]
    return cast("type[KnowledgeSource]", getattr(import_module(f"{_PACKAGE}.{module}"), attribute))


def make_source(name: str = DEFAULT_SOURCE) -> KnowledgeSource:
    """Start a source that has learned nothing; `ValueError` where there is none of this name."""
    return source_factory(name)()
