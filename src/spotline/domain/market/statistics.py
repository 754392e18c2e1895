"""What a market is like: levels, change, persistence, autocorrelation and runs per offering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.market.market import UNKNOWN, IntArray, Market
from spotline.domain.units import MICRO_USD_PER_USD, S_PER_HOUR

_DAY_H = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStatistics:
    """Spot price of one offering, USD per instance-hour.

    `changes_per_day` counts slots whose price differs from the slot before. `persistence_error_1h`
    is the mean absolute change over an hour, in USD, and `_percent` the same relative to the mean.
    Autocorrelations are None where the price never moves or the market is too short.
    """

    mean_usd: float
    min_usd: float
    max_usd: float
    mean_fraction_of_on_demand: float
    changes_per_day: float
    changed_slot_fraction: float
    median_step_percent: float | None
    persistence_error_1h_usd: float | None
    persistence_error_1h_percent: float | None
    autocorrelation_1h: float | None
    autocorrelation_24h: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatistics:
    """Lengths, in hours, of unbroken runs; the first and last are cut by the market's ends."""

    runs: int
    mean_h: float
    median_h: float
    p95_h: float
    max_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityStatistics:
    """Available spot instances of one offering.

    *Up* means at least one instance, *full* the most ever seen there. `persistence_error_1h` is
    the mean absolute change over an hour, in instances. Autocorrelations are None where the count
    never moves or the market is too short.
    """

    most_instances: int
    mean_instances: float
    up_fraction: float
    full_fraction: float
    none_or_full_fraction: float
    changed_slot_fraction: float
    persistence_error_1h_instances: float | None
    autocorrelation_1h: float | None
    autocorrelation_24h: float | None
    up_runs: RunStatistics | None
    down_runs: RunStatistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingStatistics:
    """One offering; `availability` is None where its counts are unknown in any slot."""

    offering_id: str
    on_demand_mean_usd: float
    price: PriceStatistics
    availability: AvailabilityStatistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStatistics:
    """All offerings of a market, in its order.

    `any_up_fraction` is the share of slots with at least one instance somewhere;
    `availability_correlation[i][j]` the correlation of two offerings' counts in the same slot,
    None where a count is unknown or never moves.
    """

    slots: int
    slot_s: int
    duration_h: float
    offerings: tuple[OfferingStatistics, ...]
    any_up_fraction: float | None
    availability_correlation: tuple[tuple[float | None, ...], ...]


def measure(market: Market) -> MarketStatistics:
    """Measure every offering of `market` over all its slots."""
    columns = range(len(market.offerings))
    known = [bool((market.spot_provenance[:, c] != UNKNOWN).all()) for c in columns]
    up = [market.spot_available[:, c] > 0 for c in columns if known[c]]
    return MarketStatistics(
        slots=market.slots,
        slot_s=market.slot_s,
        duration_h=market.slots * market.slot_s / S_PER_HOUR,
        offerings=tuple(_measure_offering(market, column, known[column]) for column in columns),
        any_up_fraction=float(np.any(up, axis=0).mean()) if up else None,
        availability_correlation=tuple(
            tuple(
                _correlation(market.spot_available[:, a], market.spot_available[:, b])
                if known[a] and known[b]
                else None
                for b in columns
            )
            for a in columns
        ),
    )


def autocorrelation(series: IntArray, lag_slots: int) -> float | None:
    """Correlation of `series` with itself `lag_slots` later; None where it is not defined.

    The denominator is the variance over the whole series, so the value lies in -1..1.
    """
    if not 0 < lag_slots < len(series):
        return None
    centred = series - series.mean()
    power = float(centred @ centred)
    if power == 0.0:
        return None
    return float(centred[:-lag_slots] @ centred[lag_slots:]) / power


def run_lengths_h(state: npt.NDArray[np.bool_], slot_s: int) -> npt.NDArray[np.float64]:
    """Lengths, in hours, of the unbroken runs of True in `state`, shape (runs,)."""
    edges = np.diff(np.concatenate(([False], state, [False])).astype(np.int8))
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    hours: npt.NDArray[np.float64] = lengths * np.float64(slot_s / S_PER_HOUR)
    return hours


def lag_slots(hours: float, slot_s: int) -> int:
    """Slots nearest to a lag of `hours`; 0 where slots are too long to show it."""
    return round(hours * S_PER_HOUR / slot_s)


def _measure_offering(market: Market, column: int, counts_known: bool) -> OfferingStatistics:
    on_demand = market.on_demand_price_micro_usd[:, column]
    available = market.spot_available[:, column]
    return OfferingStatistics(
        offering_id=market.offerings[column].offering_id,
        on_demand_mean_usd=float(on_demand.mean()) / MICRO_USD_PER_USD,
        price=_measure_price(market.spot_price_micro_usd[:, column], on_demand, market.slot_s),
        availability=_measure_availability(available, market.slot_s) if counts_known else None,
    )


def _measure_price(price: IntArray, on_demand: IntArray, slot_s: int) -> PriceStatistics:
    steps = np.diff(price)
    moved = steps != 0
    error = _persistence_error(price, slot_s)
    changed = float(moved.mean()) if len(steps) else 0.0
    relative = np.abs(steps[moved]) / price[:-1][moved]
    return PriceStatistics(
        mean_usd=float(price.mean()) / MICRO_USD_PER_USD,
        min_usd=int(price.min()) / MICRO_USD_PER_USD,
        max_usd=int(price.max()) / MICRO_USD_PER_USD,
        mean_fraction_of_on_demand=float((price / np.maximum(1, on_demand)).mean()),
        changes_per_day=changed * _DAY_H * S_PER_HOUR / slot_s,
        changed_slot_fraction=changed,
        median_step_percent=float(np.median(relative)) * 100 if len(relative) else None,
        persistence_error_1h_usd=None if error is None else error / MICRO_USD_PER_USD,
        persistence_error_1h_percent=None if error is None else 100 * error / float(price.mean()),
        autocorrelation_1h=autocorrelation(price, lag_slots(1, slot_s)),
        autocorrelation_24h=autocorrelation(price, lag_slots(_DAY_H, slot_s)),
    )


def _measure_availability(available: IntArray, slot_s: int) -> AvailabilityStatistics:
    most = int(available.max())
    up = available > 0
    full = (available == most) & up
    return AvailabilityStatistics(
        most_instances=most,
        mean_instances=float(available.mean()),
        up_fraction=float(up.mean()),
        full_fraction=float(full.mean()),
        none_or_full_fraction=float((full | ~up).mean()),
        changed_slot_fraction=float((np.diff(available) != 0).mean()) if len(up) > 1 else 0.0,
        persistence_error_1h_instances=_persistence_error(available, slot_s),
        autocorrelation_1h=autocorrelation(available, lag_slots(1, slot_s)),
        autocorrelation_24h=autocorrelation(available, lag_slots(_DAY_H, slot_s)),
        up_runs=_measure_runs(up, slot_s),
        down_runs=_measure_runs(~up, slot_s),
    )


def _persistence_error(series: IntArray, slot_s: int) -> float | None:
    lag = lag_slots(1, slot_s)
    if not 0 < lag < len(series):
        return None
    return float(np.abs(series[lag:] - series[:-lag]).mean())


def _measure_runs(state: npt.NDArray[np.bool_], slot_s: int) -> RunStatistics | None:
    lengths_h = run_lengths_h(state, slot_s)
    if not len(lengths_h):
        return None
    return RunStatistics(
        runs=len(lengths_h),
        mean_h=float(lengths_h.mean()),
        median_h=float(np.median(lengths_h)),
        p95_h=float(np.percentile(lengths_h, 95)),
        max_h=float(lengths_h.max()),
    )


def _correlation(first: IntArray, second: IntArray) -> float | None:
    a, b = first - first.mean(), second - second.mean()
    power = float(a @ a) * float(b @ b)
    return float(a @ b) / power**0.5 if power > 0.0 else None
