"""Feature tables as matrices for scikit-learn, and its threads."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from spotline.domain.configuration.features import FeatureTable, Floats

# Values of a category rarer than this get no column of their own.
_RAREST = 2
_MOST_VALUES = 80
# Powers of two that batch and sequence come in, each a column where enough rows have it.
_RAREST_LEVEL = 10


# These bring thread pools of their own when they are first imported.
_POOLED = ("scipy.linalg", "sklearn")


@lru_cache(maxsize=4)
def _threads(loaded: tuple[str, ...]) -> ThreadpoolController:
    # Looking for the libraries' thread pools takes milliseconds: once for all of them is enough.
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Keep linear algebra and trees to one thread.

    A pool would take the cores of other services, and is slower on matrices this small.
    """
    loaded = tuple(name for name in _POOLED if name in sys.modules)
    limit: AbstractContextManager[Any] = _threads(loaded).limit(limits=1)
    return limit


def unchecked() -> AbstractContextManager[Any]:
    """Let scikit-learn trust numbers of ours: looking at them takes longer than predicting."""
    # Where only the analytic model is asked, the library is not loaded.
    from sklearn import config_context

    trusting: AbstractContextManager[Any] = config_context(
        assume_finite=True, skip_parameter_validation=True
    )
    return trusting


class Encoder:
    """Numbers as they are, then a column of 0 and 1 for every repeated value of a category.

    With `levels` also for the powers of two of the global batch and the sequence length.
    """

    def __init__(self, table: FeatureTable, *, levels: bool = False) -> None:
        self.numbers = table.numbers.shape[1] + (1 if levels else 0)
        self._levels = levels
        self.centre = table.numbers.mean(axis=0)
        self._places: dict[str, dict[str, int]] = {}
        columns = 0
        for category, values in self._categories(table).items():
            counts: dict[str, int] = {}
            for value in values:
                counts[value] = counts.get(value, 0) + 1
            if len(counts) < 2:
                continue
            rarest = _RAREST_LEVEL if category.startswith("level ") else _RAREST
            repeated = sorted(
                (value for value in counts if counts[value] >= rarest),
                key=lambda value: (-counts[value], value),
            )[:_MOST_VALUES]
            self._places[category] = {v: columns + place for place, v in enumerate(repeated)}
            columns += len(repeated)
        self._columns = columns

    def matrix(self, table: FeatureTable) -> Floats:
        """Shape (rows, numbers + columns)."""
        codes = np.zeros((len(table), self._columns))
        for category, values in self._categories(table).items():
            places = self._places.get(category)
            if not places:
                continue
            found = np.array([places.get(value, -1) for value in values], dtype=np.intp)
            rows = np.flatnonzero(found >= 0)
            codes[rows, found[rows]] = 1.0
        if not self._levels:
            return np.hstack([table.numbers, codes])
        return np.hstack([table.numbers, _log_batch(table)[:, None], codes])

    def _categories(self, table: FeatureTable) -> dict[str, tuple[str, ...]]:
        if not self._levels:
            return table.categories
        doublings = np.rint(_log_batch(table) / math.log(2)).astype(int).tolist()
        lengths = np.rint(table.column("tokens_per_sample") / math.log(2)).astype(int).tolist()
        return {
            **table.categories,
            "level batch": tuple(map(str, doublings)),
            "level sequence": tuple(map(str, lengths)),
        }


def _log_batch(table: FeatureTable) -> Floats:
    return np.log([float(configuration.batch_size) for configuration in table.configurations])
