"""Generate markets whose statistics match measured ones, for demos, tests and benchmarks.

Availability follows a latent Gaussian process per zone: a sum of Ornstein-Uhlenbeck processes
with time constants from under an hour to days (that spread of scales makes the runs heavy-tailed)
plus an hour-of-day season, each partly shared within a region and across all. A zone has capacity
where its latent value lies above a threshold, which sets the fraction of time it is up.
The targets are the statistics of published availability and price traces; the tests state them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from statistics import NormalDist
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from spotline.domain.market.market import OBSERVED, UNKNOWN, IntArray, Market
from spotline.domain.market.offering import ASSUMED_NOTICE_LEAD_S, Offering
from spotline.domain.units import NS_PER_S, S_PER_HOUR, micro_usd_from_usd

FloatArray: TypeAlias = npt.NDArray[np.float64]

_DAY_S = 24 * S_PER_HOUR

# (share of the latent variance, time constant in hours): minutes-long flicker, outages of a few
# hours, spells of days. The rest of the variance is the season.
_LATENT_SCALES = ((0.15, 1.4), (0.36, 7.0), (0.32, 40.0))
_SEASON_SHARE = 0.17

# Shares of each stochastic component that all zones, and the zones of a region, have in common.
_GLOBAL_SHARE = 0.18
_REGIONAL_SHARE = 0.38

# Sticky cloud prices: steps of about 0.2 %, a floor at 0.30 of on-demand, rarely above 0.40.
_STEP_MEDIAN = 0.002
_STEP_SPREAD = 0.7
_PRICE_FLOOR = 0.30
_PRICE_CENTRE = 0.33
_PRICE_CEILING = 0.42
_KEEP_DIRECTION = 0.8
_BURN_IN_DAYS = 40
_CENT_OF_A_CENT_MICRO_USD = 100  # clouds quote four decimals of a dollar

# Neocloud prices jump between what the present offers ask, as fractions of on-demand.
_NEOCLOUD_LEVELS = (0.25, 0.32, 0.40, 0.50, 0.65, 0.85)
_NEOCLOUD_BOUNDS = (-1.1, -0.45, 0.1, 0.65, 1.3)
_NEOCLOUD_PRICE_SCALES = ((0.15, 1.0), (0.85, 21.0))
_NEOCLOUD_STOCK_SCALES = ((0.25, 2.0), (0.75, 26.0))
_NEOCLOUD_PRICE_HELD_H = 2.5
_NEOCLOUD_STOCK_HELD_H = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudZone:
    """One zone of a large cloud: gangs that are there whole or not at all, and a sticky price.

    Parameters
    ----------
    fraction_up
        Share of the time in which any instance is available, in 0..1.
    ramp
        Width, in standard deviations of the latent value, of the band of partial counts.
    instances
        Size of the gang.
    price_changes_per_day
        Mean number of spot price changes per day; 0 pins the price at its floor.
    season_peak_utc_h
        Hour of the day, UTC, at which capacity is most likely.
    """

    region: str
    zone: str
    fraction_up: float
    ramp: float
    instances: int = 16
    price_changes_per_day: float = 3.5
    season_peak_utc_h: float = 14.0
    on_demand_usd_per_instance_hour: float = 3.06
    instance_type: str = "v100-1x"
    gpu_model: str = "v100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neocloud:
    """Offers of small clouds: prices that jump, counts anywhere in 0..`instances`."""

    region: str
    zone: str
    instances: int = 16
    on_demand_usd_per_instance_hour: float = 2.99
    instance_type: str = "a100-1x"
    gpu_model: str = "a100-80gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A named recipe for a market; offerings appear in the order zones, then neoclouds."""

    name: str
    description: str
    zones: tuple[CloudZone, ...] = ()
    neoclouds: tuple[Neocloud, ...] = ()


def _presets() -> Mapping[str, Preset]:
    text = files("spotline.domain.market").joinpath("presets.toml").read_text("utf-8")
    return MappingProxyType(
        {
            name: Preset(
                name=name,
                description=recipe["description"],
                zones=tuple(CloudZone(**zone) for zone in recipe.get("zones", ())),
                neoclouds=tuple(Neocloud(**place) for place in recipe.get("neoclouds", ())),
            )
            for name, recipe in tomllib.loads(text).items()
        }
    )


PRESETS: Mapping[str, Preset] = _presets()


def generate(preset: str, *, seed: int, slots: int, slot_s: int, start_ns: int) -> Market:
    """Generate the market of a preset; the same arguments give the same market.

    Parameters
    ----------
    preset
        A key of `PRESETS`.
    seed
        Seed of numpy's PCG64, >= 0.
    slots
        Number of slots, >= 1.
    slot_s
        Slot length in seconds, >= 1.
    start_ns
        Opening of the first slot, nanoseconds since the epoch; the season follows the UTC hour.

    Returns
    -------
    Market
        Spot counts are observed, on-demand stock is unknown, every quote is as old as its slot.

    Raises
    ------
    ValueError
        Unknown preset, or a number outside its range.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(sorted(PRESETS))}, was {preset!r}")
    if seed < 0 or slots < 1 or slot_s < 1:
        raise ValueError(
            f"seed >= 0, slots >= 1 and slot_s >= 1 are needed, were {seed}, {slots}, {slot_s}"
        )
    recipe = PRESETS[preset]
    rng = np.random.Generator(np.random.PCG64(seed))
    starts_ns = start_ns + np.arange(slots, dtype=np.int64) * (slot_s * NS_PER_S)

    offerings: list[Offering] = []
    prices: list[IntArray] = []
    on_demand: list[int] = []
    counts: list[IntArray] = []
    if recipe.zones:
        counts.extend(_gang_counts(rng, recipe.zones, starts_ns, slot_s))
    for zone in recipe.zones:
        offerings.append(_offering("cloud", zone))
        prices.append(_sticky_price(rng, zone, slots, slot_s))
        on_demand.append(micro_usd_from_usd(zone.on_demand_usd_per_instance_hour))
    for neocloud in recipe.neoclouds:
        offerings.append(_offering("neocloud", neocloud))
        price, count = _neocloud_quotes(rng, neocloud, slots, slot_s)
        prices.append(price)
        counts.append(count)
        on_demand.append(micro_usd_from_usd(neocloud.on_demand_usd_per_instance_hour))

    shape = (slots, len(offerings))
    return Market(
        offerings=tuple(offerings),
        slot_s=slot_s,
        start_ns=start_ns,
        spot_price_micro_usd=np.column_stack(prices),
        on_demand_price_micro_usd=np.tile(np.array(on_demand, dtype=np.int64), (slots, 1)),
        spot_available=np.column_stack(counts),
        spot_provenance=np.full(shape, OBSERVED, dtype=np.int64),
        on_demand_available=np.zeros(shape, dtype=np.int64),
        on_demand_provenance=np.full(shape, UNKNOWN, dtype=np.int64),
        quoted_ns=np.repeat(starts_ns[:, None], len(offerings), axis=1),
        source=f"generated: preset {preset}, seed {seed}",
    )


def _offering(provider: str, place: CloudZone | Neocloud) -> Offering:
    return Offering(
        offering_id=f"{provider}:{place.zone}:{place.instance_type}",
        provider=provider,
        account="default",
        region=place.region,
        zone=place.zone,
        instance_type=place.instance_type,
        gpu_model=place.gpu_model,
        gpus_per_instance=1,
        quota_pool=f"{provider}:{place.region}",
        notice_lead_s=ASSUMED_NOTICE_LEAD_S,
    )


def _ornstein_uhlenbeck(
    rng: np.random.Generator, slots: int, slot_s: int, time_constants_h: FloatArray
) -> FloatArray:
    """Stationary processes of unit variance, one column per time constant, exact for any slot."""
    keep = np.exp(-slot_s / (time_constants_h * S_PER_HOUR))
    paths = rng.standard_normal((slots, len(time_constants_h)))
    paths[1:] *= np.sqrt(1.0 - keep * keep)
    for slot in range(1, slots):
        paths[slot] += keep * paths[slot - 1]
    return paths


def _gang_counts(
    rng: np.random.Generator, zones: tuple[CloudZone, ...], starts_ns: IntArray, slot_s: int
) -> list[IntArray]:
    regions = sorted({zone.region for zone in zones})
    # One path for all, one per region, one per zone, for every time scale.
    paths_per_scale = 1 + len(regions) + len(zones)
    time_constants_h = np.repeat([hours for _, hours in _LATENT_SCALES], paths_per_scale)
    paths = _ornstein_uhlenbeck(rng, len(starts_ns), slot_s, time_constants_h)
    hour_of_day = (starts_ns // NS_PER_S % _DAY_S) / S_PER_HOUR

    counts = []
    for position, zone in enumerate(zones):
        angle = 2.0 * math.pi * (hour_of_day - zone.season_peak_utc_h) / 24.0
        latent = math.sqrt(2.0 * _SEASON_SHARE) * np.cos(angle)
        for scale, (share, _) in enumerate(_LATENT_SCALES):
            first = scale * paths_per_scale
            everywhere = paths[:, first]
            regional = paths[:, first + 1 + regions.index(zone.region)]
            own = paths[:, first + 1 + len(regions) + position]
            latent += math.sqrt(share * _GLOBAL_SHARE) * everywhere
            latent += math.sqrt(share * _REGIONAL_SHARE) * regional
            latent += math.sqrt(share * (1.0 - _GLOBAL_SHARE - _REGIONAL_SHARE)) * own
        threshold = NormalDist().inv_cdf(1.0 - zone.fraction_up)
        filled = np.ceil(zone.instances * (latent - threshold) / zone.ramp)
        counts.append(np.clip(filled, 0, zone.instances).astype(np.int64))
    return counts


def _sticky_price(rng: np.random.Generator, zone: CloudZone, slots: int, slot_s: int) -> IntArray:
    """Micro-USD per instance-hour: rare small steps in a direction that tends to persist."""
    on_demand_usd = zone.on_demand_usd_per_instance_hour
    burn_in = math.ceil(_BURN_IN_DAYS * zone.price_changes_per_day)
    steps = rng.poisson(zone.price_changes_per_day * slot_s / _DAY_S, slots)
    fraction, direction = _PRICE_FLOOR, 1.0
    fractions = np.empty(slots)
    for _ in range(burn_in):
        fraction, direction = _price_step(rng, fraction, direction)
    for slot in range(slots):
        for _ in range(int(steps[slot])):
            fraction, direction = _price_step(rng, fraction, direction)
        fractions[slot] = fraction
    in_cents_of_cents = fractions * on_demand_usd * 1e6 / _CENT_OF_A_CENT_MICRO_USD
    return np.rint(in_cents_of_cents).astype(np.int64) * _CENT_OF_A_CENT_MICRO_USD


def _price_step(rng: np.random.Generator, fraction: float, direction: float) -> tuple[float, float]:
    if rng.random() > _KEEP_DIRECTION:
        # Pulled back to the centre: the further above it, the likelier a fall.
        rise = min(max(0.5 - 6.0 * (fraction - _PRICE_CENTRE), 0.05), 0.95)
        direction = 1.0 if rng.random() < rise else -1.0
    step = _STEP_MEDIAN * math.exp(_STEP_SPREAD * rng.standard_normal())
    moved = fraction * (1.0 + direction * step)
    if not _PRICE_FLOOR <= moved <= _PRICE_CEILING:
        direction = -direction
        moved = fraction * (1.0 + direction * step)
    return min(max(moved, _PRICE_FLOOR), _PRICE_CEILING), direction


def _neocloud_quotes(
    rng: np.random.Generator, neocloud: Neocloud, slots: int, slot_s: int
) -> tuple[IntArray, IntArray]:
    """Price in micro-USD per instance-hour and count; both are re-posted only now and then."""
    scales = _NEOCLOUD_PRICE_SCALES + _NEOCLOUD_STOCK_SCALES
    paths = _ornstein_uhlenbeck(rng, slots, slot_s, np.array([hours for _, hours in scales]))
    weighted = paths * np.sqrt([share for share, _ in scales])
    dearness = weighted[:, 0] + weighted[:, 1]
    # Scarce when dear, loosely.
    stock = 0.9 * (weighted[:, 2] + weighted[:, 3]) - math.sqrt(1.0 - 0.81) * dearness

    on_demand_usd = neocloud.on_demand_usd_per_instance_hour
    ladder = np.array([micro_usd_from_usd(round(f * on_demand_usd, 2)) for f in _NEOCLOUD_LEVELS])
    price = ladder[np.searchsorted(_NEOCLOUD_BOUNDS, dearness)]
    count = np.clip(np.rint(neocloud.instances * (0.5 + 0.34 * stock)), 0, neocloud.instances)
    price_held = _held(rng, price.astype(np.int64), slot_s, _NEOCLOUD_PRICE_HELD_H)
    return price_held, _held(rng, count.astype(np.int64), slot_s, _NEOCLOUD_STOCK_HELD_H)


def _held(rng: np.random.Generator, values: IntArray, slot_s: int, mean_held_h: float) -> IntArray:
    """`values` seen only at random moments, `mean_held_h` apart on average, and held between."""
    posted = rng.random(len(values)) < -math.expm1(-slot_s / (mean_held_h * S_PER_HOUR))
    posted[0] = True
    latest = np.maximum.accumulate(np.where(posted, np.arange(len(values)), 0))
    held: IntArray = values[latest]
    return held
