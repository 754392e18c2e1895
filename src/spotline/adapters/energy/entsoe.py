"""Reader of ENTSO-E day-ahead electricity prices: hourly, per bidding zone.

Rows carry the delivery day and hour on the local clock of the market, CET or CEST. It is turned
into UTC by the European rule (clocks change on the last Sundays of March and October at 01:00 UTC),
without a time zone database, which not every machine has. Of the hour that autumn doubles the
source keeps one value; it is taken for the first, and the second repeats it.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.parse import read_csv
from spotline.contracts.errors import ContractError
from spotline.domain.units import NS_PER_S, ns_from_datetime

DAY_AHEAD_FILE = "electricity-entsoe-hourly/entsoe_day_ahead_hourly_2023-01_2024-08.csv.gz"

_NS_PER_HOUR = 3600 * NS_PER_S
_KWH_PER_MWH = 1000.0
# The market's own limits are -500 and +5000 EUR/MWh, and were wider in some zones.
_MOST_EUR_PER_MWH = 20_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAheadPrices:
    """Prices of a zone; hours without a price are left out.

    Attributes
    ----------
    ts_ns
        Start of each hour, UTC, ascending, shape (H,).
    eur_per_kwh
        Shape (H,); may be negative.
    """

    ts_ns: npt.NDArray[np.int64]
    eur_per_kwh: npt.NDArray[np.float64]

    def at(self, ts_ns: int) -> float:
        """Price at a time: of its hour, or where that is missing of the last hour before it.

        Raises
        ------
        ValueError
            The first price is later.
        """
        place = int(np.searchsorted(self.ts_ns, ts_ns, side="right")) - 1
        if place < 0:
            raise ValueError("there is no price as early as that")
        return float(self.eur_per_kwh[place])

    def covered(self, start_ns: int, end_ns: int) -> float:
        """Share of the hours in [start, end) that have a price of their own."""
        hours = max(1, -(-(end_ns - start_ns) // _NS_PER_HOUR))
        low, high = np.searchsorted(self.ts_ns, [start_ns, end_ns])
        return float(high - low) / hours


def read_day_ahead(
    path: Path,
    zones: Collection[str],
    *,
    first: date | None = None,
    last: date | None = None,
) -> dict[str, DayAheadPrices]:
    """Read the prices of some bidding zones, by zone, ascending.

    Parameters
    ----------
    path
        CSV with the columns date, hour, country, area, price_eur_mwh.
    zones
        Codes as in `area` without `BZN`, say DE-LU or IT-North.
    first, last
        Delivery days to keep, both included; all if not given.

    Raises
    ------
    ContractError
        A column is missing, a value is not what it should be, or a zone has no price.
    """
    wanted = {f"BZN {zone}": zone for zone in zones}
    earliest = first.isoformat() if first else ""
    latest = last.isoformat() if last else "9999"
    found: dict[str, dict[int, float]] = {zone: {} for zone in zones}
    for where, row in read_csv(path, ("date", "hour", "area", "price_eur_mwh")):
        zone = wanted.get(row["area"])
        # ISO dates sort as text; a date that is none is refused below.
        if zone is None or not earliest <= row["date"] <= latest:
            continue
        ts_ns = _hour_ns(row["date"], row["hour"], where)
        found[zone][ts_ns] = _eur_per_kwh(row["price_eur_mwh"], where)
    prices = {}
    for zone in sorted(found):
        if not found[zone]:
            raise ContractError(str(path), f"expected prices of the zone {zone}, found none")
        times = sorted(found[zone])
        prices[zone] = DayAheadPrices(
            ts_ns=np.array(times, dtype=np.int64),
            eur_per_kwh=np.array([found[zone][ts_ns] for ts_ns in times]),
        )
    return prices


def _hour_ns(day_text: str, hour_text: str, where: str) -> int:
    try:
        hour = int(hour_text)
    except ValueError as error:
        raise ContractError(
            f"{where}, field hour", f"expected a whole number in 0..23, found {hour_text!r}"
        ) from error
    if not 0 <= hour <= 23:
        raise ContractError(
            f"{where}, field hour", f"expected a whole number in 0..23, found {hour}"
        )
    try:
        return _midnight_ns(day_text) + _elapsed_hours(day_text, hour) * _NS_PER_HOUR
    except ValueError as error:
        raise ContractError(
            f"{where}, field date", f"expected a day such as 2024-01-31, found {day_text!r}"
        ) from error


@lru_cache(maxsize=4096)
def _midnight_ns(day_text: str) -> int:
    day = date.fromisoformat(day_text)
    spring, autumn = _last_sunday(day.year, 3), _last_sunday(day.year, 10)
    # At midnight of either Sunday the clocks have not changed yet.
    ahead = 2 if spring < day <= autumn else 1
    return ns_from_datetime(datetime(day.year, day.month, day.day, tzinfo=UTC)) - (
        ahead * _NS_PER_HOUR
    )


@lru_cache(maxsize=4096)
def _elapsed_hours(day_text: str, hour: int) -> int:
    """Hours since midnight at which the local clock shows `hour`."""
    day = date.fromisoformat(day_text)
    if day == _last_sunday(day.year, 3) and hour >= 3:
        return hour - 1
    if day == _last_sunday(day.year, 10) and hour >= 3:
        return hour + 1
    return hour


def _last_sunday(year: int, month: int) -> date:
    last = date(year, month, calendar.monthrange(year, month)[1])
    return last - timedelta(days=(last.weekday() + 1) % 7)


def _eur_per_kwh(text: str, where: str) -> float:
    place = f"{where}, field price_eur_mwh"
    try:
        price = float(text)
    except ValueError as error:
        raise ContractError(place, f"expected a price in EUR per MWh, found {text!r}") from error
    if not (math.isfinite(price) and abs(price) <= _MOST_EUR_PER_MWH):
        raise ContractError(
            place, f"expected a price within +-{_MOST_EUR_PER_MWH:g} EUR per MWh, found {text}"
        )
    return price / _KWH_PER_MWH
