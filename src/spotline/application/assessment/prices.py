"""What spot cost while a job ran: from a price history, from the bill itself, or assumed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from spotline.domain.assessment.facts import RebuiltJob, SpotPriceSeries
from spotline.domain.market.prior_laws import SLOT_S
from spotline.domain.units import PPM

IntArray = npt.NDArray[np.int64]

CELL_S = SLOT_S
"""Seconds of a cell of the calendar: availability is drawn, and prices are read, cell by cell."""

# A price is never nothing: it would be no price.
_LEAST_PPM = 1_000


class PriceFrom(Enum):
    """What says what spot cost."""

    HISTORY = "history"
    BILL = "bill"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCalendar:
    """The time of a bill and some beyond, in `cells` of `CELL_S` seconds."""

    begin_s: int
    cells: int

    def cell_of(self, at_s: int | IntArray) -> IntArray:
        """The cell in which a time lies; what lies outside is of the nearest."""
        found: IntArray = np.clip((np.asarray(at_s) - self.begin_s) // CELL_S, 0, self.cells - 1)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotPrices:
    """What spot cost in every cell, in millionths of the list price, shape (cells,).

    `zone` is the cheapest when the job began, of those of its region that the history knows; `held`
    says that the job began before the history does: its first price is held.
    """

    source: PriceFrom
    zone: str
    ratio_ppm: IntArray
    held: bool = False


class KnownPrices:
    """The prices of a bill's jobs, found once for all that share them."""

    def __init__(
        self,
        jobs: Iterable[RebuiltJob],
        series: Sequence[SpotPriceSeries],
        calendar: CellCalendar,
        assumed_ppm: int,
    ) -> None:
        self._calendar = calendar
        self._assumed_ppm = assumed_ppm
        self._of_bill = _seen_on_bill(jobs)
        self._series: dict[tuple[str, str], list[SpotPriceSeries]] = {}
        for one in sorted(series, key=lambda s: s.machine.zone):
            if one.times_s:
                where = (one.machine.region, one.machine.instance_type)
                self._series.setdefault(where, []).append(one)
        self._laid: dict[tuple[int, int], IntArray] = {}
        self._flat: dict[int, IntArray] = {}

    def of(self, job: RebuiltJob, list_price_micro: int) -> SpotPrices:
        """What spot cost for a job; ratios are to `list_price_micro`, micro per instance-hour."""
        where = (job.machine.region, job.machine.instance_type)
        known = self._series.get(where)
        if known:
            best = min(known, key=lambda s: (_price_at(s, job.begin_s), s.machine.zone))
            return SpotPrices(
                source=PriceFrom.HISTORY,
                zone=best.machine.zone,
                ratio_ppm=self._along(best, list_price_micro),
                held=job.begin_s < best.times_s[0],
            )
        seen = self._of_bill.get(where, self._of_bill.get(("", where[1])))
        source = PriceFrom.ASSUMED if seen is None else PriceFrom.BILL
        ratio = self._assumed_ppm if seen is None else seen
        return SpotPrices(source=source, zone=job.machine.zone, ratio_ppm=self._constant(ratio))

    def _along(self, series: SpotPriceSeries, list_price_micro: int) -> IntArray:
        key = (id(series), list_price_micro)
        if key not in self._laid:
            calendar = self._calendar
            opens = calendar.begin_s + np.arange(calendar.cells, dtype=np.int64) * CELL_S
            at = np.searchsorted(np.array(series.times_s, dtype=np.int64), opens, side="right") - 1
            prices = np.array(series.prices_micro, dtype=np.int64)[np.maximum(at, 0)]
            self._laid[key] = np.maximum(prices * PPM // list_price_micro, _LEAST_PPM)
        return self._laid[key]

    def _constant(self, ratio_ppm: int) -> IntArray:
        if ratio_ppm not in self._flat:
            self._flat[ratio_ppm] = np.full(self._calendar.cells, ratio_ppm, dtype=np.int64)
        return self._flat[ratio_ppm]


def _price_at(series: SpotPriceSeries, at_s: int) -> int:
    return series.prices_micro[max(0, bisect_right(series.times_s, at_s) - 1)]


def _seen_on_bill(jobs: Iterable[RebuiltJob]) -> Mapping[tuple[str, str], int]:
    """What jobs paid for spot, in millionths of its list prices, by region and instance type.

    Under the region "" stands what all regions paid together.
    """
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for job in jobs:
        paid, listed = job.spot_micro, job.spot_listed_micro
        for region in (job.machine.region, ""):
            key = (region, job.machine.instance_type)
            before = sums.get(key, (0, 0))
            sums[key] = (before[0] + paid, before[1] + listed)
    return {
        key: max(_LEAST_PPM, paid * PPM // listed)
        for key, (paid, listed) in sums.items()
        if listed > 0
    }
