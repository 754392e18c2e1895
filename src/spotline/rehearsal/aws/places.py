"""What is sold where: the columns of the market file, with prices and counts at any time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.units import NS_PER_S, S_PER_HOUR
from spotline.rehearsal.aws.drawn import hexadecimal
from spotline.rehearsal.aws.plans import SoldPlan
from spotline.rehearsal.aws.weather import Weather

IntArray = npt.NDArray[np.int64]

SPOT, ON_DEMAND = "spot", "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class SoldPlace:
    """One offering of the file, as AWS would see it.

    `disk_gb` are the disks of one instance, by the launch template that is used there, at so much a
    gigabyte and month. `reservation` is the id of the capacity reservation that it is, empty for what anybody may buy;
    `reserved` how many that holds, at what an hour of each, until when (0: without end).
    """

    offering_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str
    gpu_model: str
    gpus: int
    disk_gb: int = 0
    disk_micro_usd_per_gb_month: int = 0
    reservation: str = ""
    reserved: int = 0
    reservation_ends_ns: int = 0
    sunk_price_micro_usd: int = 0


class Places:
    """Every place of a market, its prices and its counts; after the last slot that goes on."""

    def __init__(
        self, market: Market, account_ids: Mapping[str, str], weather: Weather, seed: int
    ) -> None:
        # AWS tells times to the second: so do we, and nothing is lost between log and answer.
        self.market = market.beginning_at(market.start_ns // NS_PER_S * NS_PER_S)
        self.places: dict[str, SoldPlace] = {}
        self._columns: dict[str, int] = {}
        self._counts: dict[tuple[str, str], IntArray] = {}
        # Slots that open with another spot count than the one before.
        self._changes: dict[str, IntArray] = {}
        plans: dict[str, SoldPlan] = {}
        for column, offering in enumerate(self.market.offerings):
            held = offering.reservation
            name = offering.offering_id
            if held is not None and held.plan:
                # It is no place: what is launched there is on demand, at a price of its own.
                plan = plans.setdefault(
                    held.plan,
                    SoldPlan(
                        plan_id=held.plan,
                        micro_usd_per_hour=held.plan_micro_usd_per_hour,
                        ends_ns=held.ends_ns,
                    ),
                )
                where = account_ids[offering.account], offering.region, offering.instance_type
                plan.prices[where] = held.sunk_price_micro_usd
                continue
            self.places[name] = SoldPlace(
                offering_id=name,
                account_id=account_ids[offering.account],
                region=offering.region,
                zone=offering.zone,
                instance_type=offering.instance_type,
                gpu_model=offering.gpu_model,
                gpus=offering.gpus_per_instance,
                disk_gb=0 if offering.disks is None else offering.disks.gb,
                disk_micro_usd_per_gb_month=(
                    0 if offering.disks is None else offering.disks.micro_usd_per_gb_month
                ),
                reservation="" if held is None else "cr-" + hexadecimal(17, "reservation", name),
                reserved=0 if held is None else held.instances,
                reservation_ends_ns=0 if held is None else held.ends_ns,
                sunk_price_micro_usd=0 if held is None else held.sunk_price_micro_usd,
            )
            self._columns[name] = column
            spot = _spot_counts(self.market, column, weather, seed)
            self._counts[name, SPOT] = spot
            self._changes[name] = np.flatnonzero(np.diff(spot)) + 1
            self._counts[name, ON_DEMAND] = _on_demand_counts(self.market, column, weather, seed)
        self.plans = tuple(plans.values())

    @property
    def start_ns(self) -> int:
        """When the market begins."""
        return self.market.start_ns

    def count(self, offering_id: str, lifecycle: str, at_ns: int) -> int:
        """How many the file has there at a time, held ones among them."""
        return int(self._counts[offering_id, lifecycle][self._slot(at_ns)])

    def least_count(self, offering_id: str, lifecycle: str, from_ns: int, until_ns: int) -> int:
        """How many the file has there all through a time."""
        counts = self._counts[offering_id, lifecycle]
        return int(counts[self._slot(from_ns) : self._slot(until_ns) + 1].min())

    def next_change_ns(self, offering_id: str, after_ns: int) -> int | None:
        """When the spot count changes next, strictly after a time; None: never again."""
        changes = self._changes[offering_id]
        first = 0 if after_ns < self.start_ns else self._slot(after_ns) + 1
        place = int(np.searchsorted(changes, first))
        return self._opens_ns(int(changes[place])) if place < changes.size else None

    def price_micro_usd(self, offering_id: str, lifecycle: str, at_ns: int) -> int:
        """Price per instance-hour in force at a time."""
        return int(self._prices(offering_id, lifecycle)[self._slot(at_ns)])

    def price_changes(
        self, offering_id: str, lifecycle: str, from_ns: int, until_ns: int
    ) -> list[tuple[int, int]]:
        """Since when which price is in force: the last change before `from_ns`, and all until then."""
        if until_ns < from_ns:
            return []
        prices = self._prices(offering_id, lifecycle)
        first, last = self._slot(from_ns), self._slot(until_ns)
        while first > 0 and prices[first - 1] == prices[first]:
            first -= 1
        slots = [first] + [
            first + 1 + int(step) for step in np.flatnonzero(np.diff(prices[first : last + 1]))
        ]
        return [(self._opens_ns(slot), int(prices[slot])) for slot in slots]

    def _prices(self, offering_id: str, lifecycle: str) -> IntArray:
        column = self._columns[offering_id]
        if lifecycle == SPOT:
            return self.market.spot_price_micro_usd[:, column]
        return self.market.on_demand_price_micro_usd[:, column]

    def _slot(self, at_ns: int) -> int:
        passed = (at_ns - self.start_ns) // (self.market.slot_s * NS_PER_S)
        return min(max(passed, 0), self.market.slots - 1)

    def _opens_ns(self, slot: int) -> int:
        return self.start_ns + slot * self.market.slot_s * NS_PER_S


def _spot_counts(market: Market, column: int, weather: Weather, seed: int) -> IntArray:
    counts = market.spot_available[:, column].copy()
    unknown = market.spot_provenance[:, column] == UNKNOWN
    if market.offerings[column].reservation is not None:
        return np.zeros_like(counts)
    if unknown.any():
        up = _up(market, column, weather, seed)
        counts[unknown] = np.where(up, weather.spot_most, 0)[unknown]
    return counts


def _on_demand_counts(market: Market, column: int, weather: Weather, seed: int) -> IntArray:
    counts = market.on_demand_available[:, column].copy()
    unknown = market.on_demand_provenance[:, column] == UNKNOWN
    if unknown.any():
        drawn = _dice(market, column, seed, "on demand").random(market.slots)
        there = drawn >= weather.on_demand_out_share
        counts[unknown] = np.where(there, weather.on_demand_most, 0)[unknown]
    return counts


def _up(market: Market, column: int, weather: Weather, seed: int) -> npt.NDArray[np.bool_]:
    """Whether a place has spot: `spot_up_share` of the time, and what is up tends to stay so."""
    drawn = _dice(market, column, seed, "spot").random(market.slots)
    share = weather.spot_up_share
    left = (weather.spot_stays_up - share) / (1 - share)
    mixed = 1 - math.exp(market.slot_s / S_PER_HOUR * math.log(left))
    up = np.empty(market.slots, dtype=np.bool_)
    up[0] = drawn[0] < share
    for slot in range(1, market.slots):
        up[slot] = drawn[slot] < share * mixed + (1 - mixed if up[slot - 1] else 0.0)
    return up


def _dice(market: Market, column: int, seed: int, what: str) -> np.random.Generator:
    offering_id = market.offerings[column].offering_id
    return np.random.default_rng(int(hexadecimal(16, seed, what, offering_id), 16))
