"""The market of the proof: a window of a recorded trace, or of a generated market, in one zone.

The window is chosen by a rule that looks at the market alone, never at how jobs fare: of all zones
and all windows that start on a full hour, those qualify that are as a `WindowRule` says, and one of
them is drawn by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.contracts.errors import ContractError
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.units import S_PER_HOUR, utc_iso

FLEET = 4
"""Spot instances by which windows are judged."""
SLOT_S = 900

# 2026-01-05, a Monday: generated markets need a date, not today's.
_GENERATED_START_NS = 1_767_571_200_000_000_000
_GENERATED_SLOTS = 14 * 24 * S_PER_HOUR // SLOT_S
_TRACE_FOLDER = Path("spot-traces-skypilot/availability/16-node/aws-08-27-2023")
_TRACE_START_NS = 1_693_094_400_000_000_000  # 2023-08-27, the day in the folder's name
_PRICES = Path("spot-price-aws-gpu-2020/aws_spot_price_2019-12-20_2020-03-23.csv.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """Which windows of a market qualify, by what a fleet of `FLEET` spot instances would meet there.

    Parameters
    ----------
    share_of_zone
        One in so many instances that there are can be ours.
    slots_per_reclaim
        The fleet loses at least one instance in so many slots.
    least_up
        Half of it can be held for at least this share of the time.
    least_scarce
        A part of it, not all, can be held for at least this share.
    """

    share_of_zone: int
    slots_per_reclaim: int
    least_up: float
    least_scarce: float


RECORDED = WindowRule(share_of_zone=3, slots_per_reclaim=4, least_up=0.75, least_scarce=0.15)
GENERATED = WindowRule(share_of_zone=2, slots_per_reclaim=3, least_up=0.6, least_scarce=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoWindow:
    """A market to run on, and where it comes from, in words.

    `reclaims_per_instance_hour` is how often the whole market takes back what could be held in this
    zone: what happens inside slots, which no quote tells beforehand, is drawn with this rate.
    """

    market: Market
    recorded: bool
    reclaims_per_instance_hour: float
    words: str


def demo_window(data: Path | None, *, slots: int, seed: int) -> DemoWindow:
    """Choose the window of `slots` slots.

    Parameters
    ----------
    data
        Folder of recorded traces; None, or without them: the preset `mixed` is generated.
    slots
        Length of the window, in slots of `SLOT_S` seconds.
    seed
        Of the draw among the windows that qualify, and of a generated market.

    Raises
    ------
    ContractError
        A trace breaks its format, or no window qualifies.
    """
    recorded = _recorded(data) if data is not None else None
    whole = recorded or generate(
        "mixed", seed=seed, slots=_GENERATED_SLOTS, slot_s=SLOT_S, start_ns=_GENERATED_START_NS
    )
    rule = RECORDED if recorded is not None else GENERATED
    whole = replace(whole, spot_available=whole.spot_available // rule.share_of_zone)
    found = qualifying_windows(whole, slots, rule)
    if not found:
        raise ContractError(
            "market",
            f"no window of {slots} slots takes one of a fleet of {FLEET} every "
            f"{rule.slots_per_reclaim} slots, has room for half of it {rule.least_up:.0%} of the "
            f"time, and for a part of it only {rule.least_scarce:.0%}",
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    column, first = found[int(rng.integers(len(found)))]
    market = _alone(whole.between(first, first + slots), column)
    return DemoWindow(
        market=market,
        recorded=recorded is not None,
        reclaims_per_instance_hour=_reclaim_rate(_alone(whole, column)),
        words=(
            f"{whole.source}; one in {rule.share_of_zone} is ours; {slots} slots of {SLOT_S} s of "
            f"{market.offerings[0].zone} from {utc_iso(market.start_ns)}, drawn with seed {seed} "
            f"from {len(found)} windows"
        ),
    )


def qualifying_windows(market: Market, slots: int, rule: WindowRule) -> list[tuple[int, int]]:
    """Columns and first slots of the windows that are as the rule says."""
    counts = np.minimum(market.spot_available, FLEET)
    reclaims = np.maximum(0, -np.diff(counts, axis=0))
    held = counts >= FLEET // 2
    scarce = (counts > 0) & (counts < FLEET)
    step = max(1, S_PER_HOUR // market.slot_s)
    return [
        (column, first)
        for column in range(len(market.offerings))
        for first in range(0, market.slots - slots + 1, step)
        if int(reclaims[first : first + slots - 1, column].sum()) * rule.slots_per_reclaim >= slots
        and float(held[first : first + slots, column].mean()) >= rule.least_up
        and float(scarce[first : first + slots, column].mean()) >= rule.least_scarce
    ]


def _reclaim_rate(market: Market) -> float:
    """Instances taken back for each hour in which one could be held."""
    counts = market.spot_available[:, 0]
    hours = float(counts.sum()) * market.slot_s / S_PER_HOUR
    return float(np.maximum(0, -np.diff(counts)).sum()) / hours


def _alone(market: Market, column: int) -> Market:
    """The market of one offering."""
    arrays: dict[str, Any] = {
        field.name: value[:, [column]]
        for field in fields(market)
        if isinstance(value := getattr(market, field.name), np.ndarray)
    }
    return replace(market, offerings=(market.offerings[column],), **arrays)


def _recorded(data: Path) -> Market | None:
    """Two zones of V100 counts of 2023, with V100 prices of 2020: a synthetic pairing."""
    traces, prices = sorted((data / _TRACE_FOLDER).glob("*.json")), data / _PRICES
    if not traces or not prices.is_file():
        return None
    options = ImportOptions(price=prices, start_ns=_TRACE_START_NS, slot_s=SLOT_S)
    return import_market("skypilot", traces, options)
