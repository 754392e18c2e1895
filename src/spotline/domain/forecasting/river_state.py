"""The state of River's estimators as numbers, and estimators from numbers.

River has no interface for it, so this knows the fields of the release that a state's version
names: a state is read by the release that wrote it, or not at all. What a forecaster sets when it
makes an estimator (rates, losses, limits) is not state and is not written.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spotline.domain.forecasting.state_values import AsPlain

_MOST_ORDER = 4
_LONGEST_SEASON = 86_400


@dataclass(frozen=True, slots=True)
class _Linear:
    """Weights in the order in which features were first seen: sums follow it."""

    weights: dict[str, float]
    intercept: float
    steps: int


def linear(fresh: Callable[[], Any]) -> AsPlain:
    """The state of a linear or logistic regression that `fresh` makes, trained by plain SGD."""

    def to_plain(model: Any) -> _Linear:
        return _linear_state(model)

    def of_plain(state: _Linear) -> Any:
        model = fresh()
        _set_linear(model, state)
        return model

    return AsPlain(_Linear, to_plain, of_plain)


def _linear_state(model: Any) -> _Linear:
    return _Linear(dict(model.weights), model.intercept, model.optimizer.n_iterations)


def _set_linear(model: Any, state: _Linear) -> None:
    from river.utils.vectordict import VectorDict

    model._weights = VectorDict(state.weights)
    model.intercept = state.intercept
    model.optimizer.n_iterations = state.steps


@dataclass(frozen=True, slots=True)
class SnarimaxOrders:
    """The orders of a SNARIMAX that forecasters vary; `m` is the season in slots."""

    p: int
    d: int
    q: int
    m: int
    sp: int

    def __post_init__(self) -> None:
        orders = (self.p, self.d, self.q, self.sp)
        if any(not 0 <= order <= _MOST_ORDER for order in orders):
            raise ValueError(f"orders must lie in 0..{_MOST_ORDER}, were {orders}")
        if not 1 <= self.m <= _LONGEST_SEASON:
            raise ValueError(f"a season must have 1..{_LONGEST_SEASON} slots, was {self.m}")


@dataclass(frozen=True, slots=True)
class _Snarimax:
    """Orders, the past that the lags look at (newest first), and the regression."""

    orders: SnarimaxOrders
    past: list[float]
    differences: list[float]
    errors: list[float]
    regression: _Linear


def snarimax(fresh: Callable[[SnarimaxOrders], Any]) -> AsPlain:
    """The state of a SNARIMAX that `fresh` makes of its orders."""

    def to_plain(model: Any) -> _Snarimax:
        return _Snarimax(
            orders=SnarimaxOrders(model.p, model.d, model.q, model.m, model.sp),
            past=list(model.y_hist),
            differences=list(model.y_diff),
            errors=list(model.errors),
            regression=_linear_state(model.regressor),
        )

    def of_plain(state: _Snarimax) -> Any:
        model = fresh(state.orders)
        model.y_hist = _filled(model.y_hist, state.past)
        model.y_diff = _filled(model.y_diff, state.differences)
        model.errors = _filled(model.errors, state.errors)
        _set_linear(model.regressor, state.regression)
        return model

    return AsPlain(_Snarimax, to_plain, of_plain)


def _filled(empty: deque[float], values: list[float]) -> deque[float]:
    if empty.maxlen is not None and len(values) > empty.maxlen:
        raise ValueError(f"a past of at most {empty.maxlen} was expected, was {len(values)}")
    return deque(values, maxlen=empty.maxlen)


@dataclass(frozen=True, slots=True)
class _Adwin:
    """What River's ADWIN holds: sums, counters, and a row of buckets per power of two.

    `rows[r]` has the number of its buckets that are in use, each of 2**r values; `totals` and
    `variances` hold all buckets of all rows.
    """

    drift_detected: bool
    sums: tuple[float, float, float, float]
    counters: tuple[int, int, int, int]
    sizes: list[tuple[int, int]]
    totals: list[float]
    variances: list[float]


# ADWIN keeps its state in a native object, which gives it out in this layout (River 0.26):
# delta, clock, most buckets, shortest window, grace period; total, variance, width, all widths;
# three counters and the detections; the number of rows.
_ADWIN_HEAD = struct.Struct("<diQdd4d4IQ")
_ADWIN_ROW = struct.Struct("<QQ")
_ADWIN_LENGTH = struct.Struct("<Q")
_MOST_ROWS = 64


def adwin(fresh: Callable[[], Any]) -> AsPlain:
    """The state of an ADWIN detector that `fresh` makes."""

    def of_plain(state: _Adwin) -> Any:
        detector = fresh()
        given: bytes = detector._helper.__getstate__()
        detector._helper.__setstate__(_adwin_bytes(state, given))
        detector._drift_detected = state.drift_detected
        return detector

    return AsPlain(_Adwin, _adwin_state, of_plain)


def _adwin_state(detector: Any) -> _Adwin:
    data: bytes = detector._helper.__getstate__()
    head = _ADWIN_HEAD.unpack_from(data)
    most, rows = int(head[2]), int(head[-1])
    slots = most + 1
    row_format = struct.Struct(f"<{slots}d")
    place = _ADWIN_HEAD.size
    sizes: list[tuple[int, int]] = []
    totals: list[float] = []
    variances: list[float] = []
    for _ in range(rows):
        sizes.append(_ADWIN_ROW.unpack_from(data, place))
        place += _ADWIN_ROW.size
        for kept in (totals, variances):
            (length,) = _ADWIN_LENGTH.unpack_from(data, place)
            if length != slots:
                raise TypeError(f"ADWIN must have {slots} buckets in a row, had {length}")
            place += _ADWIN_LENGTH.size
            kept.extend(row_format.unpack_from(data, place))
            place += row_format.size
    return _Adwin(
        drift_detected=bool(detector.drift_detected),
        sums=head[5:9],
        counters=head[9:13],
        sizes=sizes,
        totals=totals,
        variances=variances,
    )


def _adwin_bytes(state: _Adwin, given: bytes) -> bytes:
    """The layout that `given`, the bytes of a fresh detector, has with this state."""
    head = _ADWIN_HEAD.unpack_from(given)
    most = int(head[2])
    slots = most + 1
    _check_adwin(state, most)
    parts = [_ADWIN_HEAD.pack(*head[:5], *state.sums, *state.counters, len(state.sizes))]
    row_format = struct.Struct(f"<{slots}d")
    for row, (bound, used) in enumerate(state.sizes):
        parts.append(_ADWIN_ROW.pack(bound, used))
        for kept in (state.totals, state.variances):
            parts.append(_ADWIN_LENGTH.pack(slots))
            parts.append(row_format.pack(*kept[row * slots : (row + 1) * slots]))
    # What it was made with stands behind the rows once more.
    fresh_rows = int(head[-1])
    row_bytes = _ADWIN_ROW.size + 2 * (_ADWIN_LENGTH.size + row_format.size)
    parts.append(given[_ADWIN_HEAD.size + fresh_rows * row_bytes :])
    return b"".join(parts)


def _check_adwin(state: _Adwin, most: int) -> None:
    """Refuse what no detector can have come to: native code would trust it."""
    rows, slots = len(state.sizes), most + 1
    if not 1 <= rows <= _MOST_ROWS:
        raise ValueError(f"ADWIN must have 1..{_MOST_ROWS} rows, had {rows}")
    if len(state.totals) != rows * slots or len(state.variances) != rows * slots:
        raise ValueError(f"ADWIN must have {slots} buckets in each of {rows} rows")
    if any(bound != most or not 0 <= used <= most for bound, used in state.sizes):
        raise ValueError(f"ADWIN must use 0..{most} buckets of a row")
    if any(not 0 <= counter < 2**32 for counter in state.counters):
        raise ValueError("the counters of ADWIN must be natural numbers of 32 bits")
    width = sum(used << row for row, (_, used) in enumerate(state.sizes))
    if state.sums[2] != width:
        raise ValueError(f"the window of ADWIN must be {width} wide, was {state.sums[2]}")
