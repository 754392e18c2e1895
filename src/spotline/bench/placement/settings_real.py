"""Real regions: measured throughput, egress prices, and hourly electricity or weekly GPU rents.

Two sets of regions, by what a GPU-hour costs:

- `energy`: the 18 European regions of AWS, Azure and GCP in the Skyplane table whose bidding zone
  ENTSO-E publishes (Great Britain left it). Power is priced hourly at the zone's day-ahead price;
  taxes, network charges and the overhead of cooling are not in it. 1 EUR = 1.08 USD, the mean of
  2023 and 2024. 16 jobs.
- `rent`: the regions of the Skyplane table in which GCP offers A100-40GB (a2-highgpu-1g): spot
  prices, changing about weekly; the table of prices names every region, so what is offered where is
  a list here, from GCP's documentation. 8 jobs. GCP does not say how often spot is taken back, so
  this is measured twice: as if it never were, and with the run laws that Spotline learns from the
  zones of the SkyPilot traces (AWS V100, 2023), one per region in the order of names, shifted by
  one from start to start. Up runs end, and down runs after them, at the law's long-run rates; every
  method meets the same interruptions, drawn from these, and is told the rate of up runs.

GPUs per region are not public either: 16, 32 and 64 A100 in turn, regions ordered by name.

Bandwidth was measured between two VMs. A region's GPUs sit in machines of eight; each forwards
traffic at what one VM was measured to move, in parallel, up to eight machines (as many as Skyplane
uses per region): link = throughput of the VM pair * min(machines here, machines there, 8). That
this adds up linearly is an assumption, and a single 5-s run with 64 streams is an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from pathlib import Path

import numpy as np

from spotline.adapters.energy.entsoe import DAY_AHEAD_FILE, DayAheadPrices, read_day_ahead
from spotline.adapters.market.importers.gcp_gpu_weekly import (
    GCP_GPU_FILE,
    RegionPrices,
    read_gcp_gpu_prices,
)
from spotline.adapters.network.skyplane import (
    EGRESS_FILE,
    THROUGHPUT_FILE,
    Pair,
    read_egress,
    read_throughput,
)
from spotline.bench.cant_be_late.traces import TICK_S, read_traces
from spotline.bench.placement.jobs import A100_40, drawn_jobs
from spotline.bench.placement.setting import Disruption, PriceCurve, Setting
from spotline.domain.market.run_law import RunLaw, common_law, count_runs, own_law
from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis
from spotline.domain.units import NS_PER_S, S_PER_HOUR, ns_from_datetime

USD_PER_EUR = 1.08
MACHINE_TYPE = "a2-highgpu-1g"
GPUS_IN_TURN = (16, 32, 64)
GPUS_PER_MACHINE = 8
MOST_MACHINES = 8
TRACES = Path("spot-traces-skypilot") / "availability" / "1-node"
JOBS = {CostBasis.ENERGY: 16, CostBasis.RENT: 8}

_SEED = 20_260_506
_HORIZON_H = 168
# Days that would be read to a good part from older prices are not begun on.
_LEAST_COVERED = 0.9
_STEP_DAYS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlace:
    """Where a region is: bidding zone (energy only), longitude and latitude in degrees."""

    zone: str
    longitude: float
    latitude: float


def _place(zone: str, longitude: float, latitude: float) -> RegionPlace:
    return RegionPlace(zone=zone, longitude=longitude, latitude=latitude)


# Region of the Skyplane table -> bidding zone of the city the provider names.
EUROPE = {
    "aws:eu-central-1": _place("DE-LU", 8.7, 50.1),  # Frankfurt
    "aws:eu-central-2": _place("CH", 8.5, 47.4),  # Zurich
    "aws:eu-north-1": _place("SE3", 18.1, 59.3),  # Stockholm
    "aws:eu-south-1": _place("IT-North", 9.2, 45.5),  # Milan
    "aws:eu-south-2": _place("ES", -0.9, 41.6),  # Zaragoza
    "aws:eu-west-1": _place("IE(SEM)", -6.3, 53.3),  # Dublin
    "aws:eu-west-3": _place("FR", 2.4, 48.9),  # Paris
    "azure:germanywestcentral": _place("DE-LU", 8.7, 50.1),  # Frankfurt
    "azure:northeurope": _place("IE(SEM)", -6.3, 53.3),  # Dublin
    "azure:norwayeast": _place("NO1", 10.8, 59.9),  # Oslo
    "azure:swedencentral": _place("SE3", 17.1, 60.7),  # Gavle
    "azure:switzerlandnorth": _place("CH", 8.5, 47.4),  # Zurich
    "azure:westeurope": _place("NL", 4.9, 52.4),  # Amsterdam
    "gcp:europe-north1-a": _place("FI", 27.2, 60.6),  # Hamina
    "gcp:europe-west1-b": _place("BE", 3.9, 50.5),  # Saint-Ghislain
    "gcp:europe-west3-a": _place("DE-LU", 8.7, 50.1),  # Frankfurt
    "gcp:europe-west4-a": _place("NL", 6.8, 53.4),  # Eemshaven
    "gcp:europe-west6-a": _place("CH", 8.5, 47.4),  # Zurich
}
A100_REGIONS = {
    "gcp:asia-northeast3-a": _place("", 127.0, 37.6),  # Seoul
    "gcp:asia-southeast1-a": _place("", 103.7, 1.3),  # Jurong West
    "gcp:europe-west4-a": _place("", 6.8, 53.4),  # Eemshaven
    "gcp:me-west1-a": _place("", 34.8, 32.1),  # Tel Aviv
    "gcp:us-central1-a": _place("", -95.9, 41.3),  # Council Bluffs
    "gcp:us-east1-b": _place("", -80.0, 33.2),  # Moncks Corner
    "gcp:us-west1-a": _place("", -121.2, 45.6),  # The Dalles
    "gcp:us-west4-a": _place("", -115.1, 36.2),  # Las Vegas
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTables:
    """What was read for one basis; prices by region.

    `laws` has the run law of each zone of the traces, by name; energy has none.
    """

    basis: CostBasis
    places: dict[str, RegionPlace]
    bytes_per_s: dict[Pair, float]
    egress_usd_per_gb: dict[Pair, float]
    energy: dict[str, DayAheadPrices]
    rents: dict[str, RegionPrices]
    laws: tuple[RunLaw, ...] = ()


def read_tables(
    data: Path, basis: CostBasis, *, first: date | None = None, last: date | None = None
) -> RealTables:
    """Read what a basis needs; electricity only between two days, if given.

    Raises
    ------
    ContractError
        A file is absent or not what it should be.
    """
    places = EUROPE if basis is CostBasis.ENERGY else A100_REGIONS
    energy: dict[str, DayAheadPrices] = {}
    rents: dict[str, RegionPrices] = {}
    if basis is CostBasis.ENERGY:
        zones = sorted({place.zone for place in places.values()})
        energy = read_day_ahead(data / DAY_AHEAD_FILE, zones, first=first, last=last)
    else:
        by_region = read_gcp_gpu_prices(data / GCP_GPU_FILE, MACHINE_TYPE)
        rents = {name: by_region[gcp_region(name)] for name in places}
    laws: tuple[RunLaw, ...] = ()
    if basis is CostBasis.RENT:
        counts = [count_runs(trace.up) for trace in read_traces(data / TRACES)]
        common = common_law(counts)
        laws = tuple(own_law(one, common) for one in counts)
    return RealTables(
        basis=basis,
        places=places,
        bytes_per_s=read_throughput(data / THROUGHPUT_FILE),
        egress_usd_per_gb=read_egress(data / EGRESS_FILE),
        energy=energy,
        rents=rents,
        laws=laws,
    )


def ends_per_hour(law: RunLaw, *, up: bool) -> float:
    """How often a run of this kind ends under a law, per hour of such runs, in the long run."""
    buckets = len(law.age_starts)
    share = law.stationary()[up * buckets :][:buckets]
    return float(share @ law.ends[int(up)] / share.sum()) * S_PER_HOUR / TICK_S


def gcp_region(name: str) -> str:
    """The region of a GCP zone as Skyplane names it: gcp:us-east1-b is in us-east1."""
    return name.removeprefix("gcp:").rpartition("-")[0]


def starts_ns(tables: RealTables, count: int) -> list[int]:
    """When runs begin: days two weeks apart with prices for the week after, spread evenly."""
    curves: Sequence[DayAheadPrices | RegionPrices] = [
        *tables.energy.values(),
        *tables.rents.values(),
    ]
    first_ns = max(int(curve.ts_ns[0]) for curve in curves)
    last_ns = min(int(curve.ts_ns[-1]) for curve in curves)
    day = datetime.fromtimestamp(first_ns // NS_PER_S, tz=UTC).replace(hour=0, minute=0, second=0)
    horizon_ns = _HORIZON_H * S_PER_HOUR * NS_PER_S
    able = []
    while (start_ns := ns_from_datetime(day)) + horizon_ns <= last_ns:
        if start_ns >= first_ns and all(
            curve.covered(start_ns, start_ns + horizon_ns) >= _LEAST_COVERED
            for curve in tables.energy.values()
        ):
            able.append(start_ns)
            day += timedelta(days=_STEP_DAYS)
        else:
            day += timedelta(days=1)
    if len(able) <= count:
        return able
    return [able[place] for place in np.linspace(0, len(able) - 1, count).round().astype(int)]


def real_setting(
    tables: RealTables,
    start_ns: int,
    *,
    jobs: int | None = None,
    draw: int | None = None,
    shift: int = 0,
) -> Setting:
    """The setting of a week from `start_ns` on, with jobs drawn for that start.

    Parameters
    ----------
    tables, start_ns, jobs
        What was read, when it begins, and how many jobs there are if not as many as usual.
    draw
        Spot is taken back as this draw has it; None: never.
    shift
        The first region has the rate of this zone, the next one of the next.
    """
    rng = np.random.default_rng([_SEED, start_ns // NS_PER_S])
    if jobs is None:
        jobs = JOBS[tables.basis]
    prices = _curve(tables, start_ns)
    laws: dict[str, RunLaw] = {}
    if draw is not None:
        for place, name in enumerate(sorted(tables.places)):
            laws[name] = tables.laws[(place + shift) % len(tables.laws)]
    graph = _graph(tables, prices, laws)
    drawn = drawn_jobs(rng, jobs, A100_40)
    return Setting(
        name=f"real-{tables.basis.value}-{datetime.fromtimestamp(start_ns // NS_PER_S, tz=UTC):%Y-%m-%d}",
        graph=graph,
        jobs=drawn,
        basis=tables.basis,
        prices=prices,
        disruptions=_interruptions(laws, (start_ns // NS_PER_S, draw or 0)),
    )


def _curve(tables: RealTables, start_ns: int) -> PriceCurve:
    names = sorted(tables.places)
    hours = np.arange(_HORIZON_H)
    at_ns = [start_ns + int(hour) * S_PER_HOUR * NS_PER_S for hour in hours]
    if tables.basis is CostBasis.ENERGY:
        zones = {
            zone: np.array([curve.at(ts_ns) for ts_ns in at_ns])
            for zone, curve in tables.energy.items()
        }
        usd_per_kwh = np.stack(
            [zones[tables.places[name].zone] * USD_PER_EUR for name in names], axis=1
        )
        usd = usd_per_kwh * A100_40.kw
    else:
        usd = np.stack(
            [np.array([tables.rents[name].spot_at(ts_ns) for ts_ns in at_ns]) for name in names],
            axis=1,
        )
    changes = np.concatenate([[True], (np.diff(usd, axis=0) != 0).any(axis=1)])
    return PriceCurve(hours[changes] * float(S_PER_HOUR), usd[changes])


def _graph(tables: RealTables, prices: PriceCurve, laws: Mapping[str, RunLaw]) -> RegionGraph:
    names = sorted(tables.places)
    now = prices.at(0.0)
    rented = tables.basis is CostBasis.RENT
    regions = [
        Region(
            region_id=name,
            gpus=GPUS_IN_TURN[place % len(GPUS_IN_TURN)],
            energy_usd_per_kwh=0.0 if rented else float(now[place]) / A100_40.kw,
            rent_usd_per_gpu_hour=float(now[place]) if rented else 0.0,
            gpu_kw=A100_40.kw,
            interruptions_per_hour=ends_per_hour(laws[name], up=True) if laws else 0.0,
            gpu_model=A100_40.name,
        )
        for place, name in enumerate(names)
    ]
    links = [
        Link(
            source=here.region_id,
            destination=there.region_id,
            bytes_per_s=tables.bytes_per_s[here.region_id, there.region_id]
            * machines_between(here, there),
            egress_usd_per_gb=tables.egress_usd_per_gb[here.region_id, there.region_id],
        )
        for here, there in permutations(regions, 2)
    ]
    return RegionGraph(regions, links)


def machines_between(here: Region, there: Region) -> int:
    """Pairs of machines that forward traffic between two regions."""
    return max(1, min(here.gpus, there.gpus, MOST_MACHINES * GPUS_PER_MACHINE) // GPUS_PER_MACHINE)


def _interruptions(laws: Mapping[str, RunLaw], seed: tuple[int, int]) -> tuple[Disruption, ...]:
    """When each region is down: runs of exponential length, at the start as in the long run."""
    found = []
    for place, name in enumerate(sorted(laws)):
        rng = np.random.default_rng([_SEED, *seed, place])
        ends = ends_per_hour(laws[name], up=True)
        returns = ends_per_hour(laws[name], up=False)
        down_share = ends / (ends + returns)
        at_h = 0.0 if rng.random() < down_share else float(rng.exponential(1 / ends))
        while at_h < _HORIZON_H:
            until_h = at_h + float(rng.exponential(1 / returns))
            found.append(
                Disruption(at_s=at_h * S_PER_HOUR, until_s=until_h * S_PER_HOUR, region_id=name)
            )
            at_h = until_h + float(rng.exponential(1 / ends))
    return tuple(sorted(found, key=lambda one: (one.at_s, one.region_id)))
