"""The fixed families of markets on which decisions are compared, in slots of 30 minutes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.bench.quality.skynomad_series import (
    H100_LEARNED_DAYS,
    NINE_ZONES_START,
    read_h100,
    read_v100_prices,
    with_prices,
)
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market

SLOT_S = 1800

IntArray = npt.NDArray[np.int64]

_SKYPILOT = "spot-traces-skypilot"
_AWS_PRICES = "spot-price-aws-gpu-2020/aws_spot_price_2019-12-20_2020-03-23.csv.gz"
_NEOCLOUD = "gpu-market-prime-intellect"
_DATED = re.compile(r"(?P<month>\d{2})-(?P<day>\d{2})-(?P<year>\d{4})$")

# Seeds of the synthetic prices: each makes a world of its own, on the same recorded counts.
PRICE_SEEDS = (11, 12)
_NODES_AS_INSTANCES = 4

# The synthetic price, as a share of on-demand: mean-reverting, with spikes that fade.
_PRICE_CENTRE = 0.30
_PRICE_SPREAD = 0.15  # standard deviation of its logarithm
_PRICE_HOURS = 8.0  # time constant of its way back
_SPIKE_MEAN = 0.5  # mean height of a spike, in the logarithm
_SPIKE_EVERY_HOURS = 36.0
_SPIKE_HOURS = 2.0
_PRICE_RANGE = (0.15, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize:
    """Work in slots of one instance, and the most instances that a job can use."""

    work_slots: float
    max_instances: int


GANG = JobSize(work_slots=80.0, max_instances=12)
# The same job where a zone shows one instance: as tight, with nothing to choose but whether.
SINGLE = JobSize(work_slots=80.0 / 12.0, max_instances=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One offering's slots in one world.

    Attributes
    ----------
    name
        Zone or GPU model.
    together
        Series of one world with the same value are forecast together, as one market.
    world
        Which price seed; 0 where prices are recorded.
    market
        A single offering, in slots of `SLOT_S` seconds, from the first of `together` on.
    learned_slots
        How many may be learned from, where that is not half of them.
    """

    name: str
    together: str
    world: int
    market: Market
    learned_slots: int | None = None

    @property
    def slots(self) -> int:
        """How long it is."""
        return self.market.slots

    @property
    def half(self) -> int:
        """The first slot of what is reported; all before may be learned from."""
        if self.learned_slots is not None:
            return self.learned_slots
        return self.market.slots // 2

    @property
    def on_demand_price(self) -> int:
        """Micro-USD per instance-hour; constant in every family."""
        return int(self.market.on_demand_price_micro_usd[0, 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Markets that are reported as one number."""

    name: str
    description: str
    size: JobSize
    series: tuple[Series, ...]


def load_families(
    data: Path, *, names: Sequence[str] = (), most_slots: int | None = None
) -> tuple[tuple[Family, ...], tuple[str, ...]]:
    """Read the families under `data`, in the order of the reports.

    Parameters
    ----------
    names
        Which; none means all.
    most_slots
        Cut every series to its first slots: for trying things out.

    Returns
    -------
    tuple
        The families, and the names of those whose data is not there.

    Raises
    ------
    ContractError
        A name is unknown, a file breaks its format, or there is no family at all.
    """
    for name in names:
        if name not in _FAMILIES:
            raise ContractError(
                "--family", f"expected one of {', '.join(_FAMILIES)}, found {name!r}"
            )
    found, missing = [], []
    for name, (description, size, read) in _FAMILIES.items():
        if names and name not in names:
            continue
        series = read(data)
        if not series:
            missing.append(name)
            continue
        cut = tuple(_cut(one, most_slots) for one in series)
        found.append(Family(name=name, description=description, size=size, series=cut))
    if not found:
        raise ContractError(
            "--data", f"expected recorded markets in {data}, found none of {', '.join(missing)}"
        )
    return tuple(found), tuple(missing)


def _cut(series: Series, most_slots: int | None) -> Series:
    if most_slots is None or series.slots <= most_slots:
        return series
    return replace(series, market=series.market.between(0, most_slots), learned_slots=None)


def synthetic_price_ppm(slots: int, *, seed: int, name: str) -> IntArray:
    """A spot price in parts per million of on-demand, shape (slots,).

    The logarithm is an Ornstein-Uhlenbeck process around 0.30 (standard deviation 0.15, time
    constant 8 h) plus spikes that come every 36 h on average, of exponential height (mean 0.5) and
    fading with a time constant of 2 h; clipped to 0.15..0.95. No cloud's prices are claimed to be
    like this: it makes price and availability both matter.
    """
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    slot_h = SLOT_S / 3600.0
    keep = np.exp(-slot_h / _PRICE_HOURS)
    fade = np.exp(-slot_h / _SPIKE_HOURS)
    noise = rng.standard_normal(slots) * _PRICE_SPREAD
    spikes = rng.exponential(_SPIKE_MEAN, slots) * (rng.random(slots) < slot_h / _SPIKE_EVERY_HOURS)
    level = np.empty(slots)
    wander, spike = noise[0], 0.0
    for slot in range(slots):
        if slot:
            wander = keep * wander + np.sqrt(1.0 - keep * keep) * noise[slot]
        spike = fade * spike + spikes[slot]
        level[slot] = wander + spike
    share = np.clip(_PRICE_CENTRE * np.exp(level), *_PRICE_RANGE)
    ppm: IntArray = np.rint(share * 1e6).astype(np.int64)
    return ppm


# --- the families -----------------------------------------------------------------------------


def _traces(
    data: Path,
    kind: str,
    *,
    scale: int = 1,
    price: Path | None = None,
    seeds: Sequence[int] = (),
    start: str | None = None,
) -> tuple[Series, ...]:
    """Every zone of every dated folder, each for itself: zones of one set differ in length.

    The first tick is at `start`, by default where the folder's day begins.
    """
    series = []
    root = data / _SKYPILOT / kind
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        start_ns = time_ns(start or _date_of(folder), str(folder))
        for path in sorted(folder.glob("*.json*")):
            options = ImportOptions(
                price=price or Decimal("0.918"), start_ns=start_ns, slot_s=SLOT_S
            )
            market = import_market("skypilot", [path], options)
            market = replace(market, spot_available=market.spot_available * scale)
            zone = market.offerings[0].zone
            for world, seed in enumerate(seeds or (None,)):
                priced = market if seed is None else _with_synthetic_price(market, seed, zone)
                series.append(Series(name=zone, together=folder.name, world=world, market=priced))
    return tuple(series)


def _date_of(folder: Path) -> str:
    dated = _DATED.search(folder.name)
    if dated is None:
        raise ContractError(str(folder), "expected a name that ends with MM-DD-YYYY")
    return f"{dated['year']}-{dated['month']}-{dated['day']}T00:00:00Z"


def _with_synthetic_price(market: Market, seed: int, name: str) -> Market:
    ppm = synthetic_price_ppm(market.slots, seed=seed, name=name)[:, None]
    price = np.maximum(1, ppm * market.on_demand_price_micro_usd // 1_000_000)
    return replace(market, spot_price_micro_usd=price)


def _sixteen_nodes(data: Path) -> tuple[Series, ...]:
    return _traces(data, "availability/16-node", seeds=PRICE_SEEDS)


def _sixteen_nodes_aws(data: Path) -> tuple[Series, ...]:
    prices = data / _AWS_PRICES
    if not prices.is_file():
        return ()
    return _traces(data, "availability/16-node", price=prices)


def _four_nodes(data: Path) -> tuple[Series, ...]:
    kind = "preemption/4-node"
    return _traces(data, kind, scale=_NODES_AS_INSTANCES, seeds=PRICE_SEEDS)


def _single_zones(data: Path) -> tuple[Series, ...]:
    return _traces(data, "availability/1-node", seeds=PRICE_SEEDS[:1])


def _nine_zones(data: Path) -> tuple[Series, ...]:
    prices = read_v100_prices(data)
    if not prices:
        return ()
    found = _traces(data, "availability/1-node", start=NINE_ZONES_START)
    return tuple(replace(one, market=with_prices(one.market, prices)) for one in found)


def _h100(data: Path) -> tuple[Series, ...]:
    learned = H100_LEARNED_DAYS * 86_400 // SLOT_S
    return tuple(
        Series(
            name=market.offerings[0].zone,
            together="h100",
            world=0,
            market=market,
            learned_slots=learned,
        )
        for market in read_h100(data, SLOT_S)
    )


def _neocloud(data: Path) -> tuple[Series, ...]:
    series = []
    for path in sorted((data / _NEOCLOUD).glob("*.jsonl.gz")):
        market = import_market("prime-intellect", [path], ImportOptions(slot_s=SLOT_S))
        name = market.offerings[0].gpu_model
        series.append(Series(name=name, together=name, world=0, market=market))
    return tuple(series)


_FAMILIES: Mapping[str, tuple[str, JobSize, Callable[[Path], tuple[Series, ...]]]] = (
    MappingProxyType(
        {
            "16-node": (
                "AWS V100 gangs of 16, 2023, every zone for itself; synthetic prices, two seeds",
                GANG,
                _sixteen_nodes,
            ),
            "16-node-aws": (
                "the same gangs; AWS V100 spot prices of 2020 laid over them (a synthetic pairing)",
                GANG,
                _sixteen_nodes_aws,
            ),
            "4-node-x4": (
                "AWS V100 groups of 4 that really ran, 2023, each node taken as four instances; "
                "synthetic prices, two seeds",
                GANG,
                _four_nodes,
            ),
            "single-zones": (
                "AWS V100, nine zones of 2023, each for itself, up or down; the job uses one "
                "instance for 80/12 slots; synthetic prices, one seed",
                SINGLE,
                _single_zones,
            ),
            "neocloud": (
                "offers of five GPU models, 2025, price and stock as recorded: one listed offer is "
                "one instance, the dearest is on-demand",
                GANG,
                _neocloud,
            ),
            "nine-zones": (
                "the nine zones of `single-zones`, each for itself, with the spot prices of the "
                "same days (2023); the job uses one instance for 80/12 slots",
                SINGLE,
                _nine_zones,
            ),
            "h100": (
                "H100 in nine GCP zones, October 2025: how many of 16 could be launched, list "
                "prices; days 1-4 are learned from, days 5-7 reported",
                GANG,
                _h100,
            ),
        }
    )
)
FAMILY_NAMES = tuple(_FAMILIES)
