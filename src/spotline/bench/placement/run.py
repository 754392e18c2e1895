"""All of `spotline bench placement`."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spotline import __version__
from spotline.adapters.energy.entsoe import DAY_AHEAD_FILE
from spotline.adapters.market.importers.gcp_gpu_weekly import GCP_GPU_FILE
from spotline.adapters.network.skyplane import EGRESS_FILE, THROUGHPUT_FILE
from spotline.bench.placement.bounds import least_mean_jct_s, most_lead_percent, over_tables
from spotline.bench.placement.deadlines import deadlines
from spotline.bench.placement.interrupted import interrupted
from spotline.bench.placement.jobs import A100_40, paper_jobs, profile_table
from spotline.bench.placement.pass_time import (
    FULL_JOBS,
    FULL_REGIONS,
    JOB_COUNTS,
    REGION_COUNTS,
    pass_time,
)
from spotline.bench.placement.pictures import picture
from spotline.bench.placement.setting import Setting
from spotline.bench.placement.settings_paper import PAPER_TABLE, PLACES, paper_setting
from spotline.bench.placement.settings_real import (
    TRACES,
    RealTables,
    read_tables,
    real_setting,
    starts_ns,
)
from spotline.bench.placement.sweeps import (
    BASELINES,
    FIXED,
    METHOD_IDS,
    OUR_READING,
    OURS,
    PAPER,
    SPANNING_PAIRS,
    Measured,
    RunTally,
    ablated,
    ablations,
    chosen,
    drawn_tables,
    exact_gap,
    failures,
    fill_ins,
    mean_of,
    spread,
    sweeps,
)
from spotline.bench.placement.targets import LEAST_JCT_LOWER_PERCENT, judged
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.methods.registry import METHODS
from spotline.domain.units import NS_PER_S

Figures = dict[str, Any]
Tell = Callable[[str], None]

_COMPARED_FAILURES = ("cr_ldf", PAPER, OURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementExtent:
    """How much is run."""

    tables: int
    sweep_tables: int
    reading_tables: int
    queues: int
    starts: int
    deadline_tables: int
    failures: int
    job_counts: tuple[int, ...]
    region_counts: tuple[int, ...]
    quick: bool = False


FULL = PlacementExtent(
    tables=100,
    sweep_tables=20,
    reading_tables=6,
    queues=40,
    starts=12,
    deadline_tables=20,
    failures=18,
    job_counts=JOB_COUNTS,
    region_counts=REGION_COUNTS,
)
QUICK = PlacementExtent(
    tables=4,
    sweep_tables=1,
    reading_tables=1,
    queues=2,
    starts=1,
    deadline_tables=1,
    failures=2,
    job_counts=(500, FULL_JOBS),
    region_counts=(35, FULL_REGIONS),
    quick=True,
)

_FILES = {
    CostBasis.ENERGY: (THROUGHPUT_FILE, EGRESS_FILE, DAY_AHEAD_FILE),
    CostBasis.RENT: (THROUGHPUT_FILE, EGRESS_FILE, GCP_GPU_FILE, TRACES),
}


def run_placement(
    data: Path,
    *,
    basis: CostBasis = CostBasis.ENERGY,
    extent: PlacementExtent = FULL,
    command: str = "spotline bench placement",
    tell: Tell = lambda line: None,
) -> Figures:
    """Measure all of it.

    Parameters
    ----------
    data
        Directory of the recorded data. Where files of the real settings are absent those settings
        are left out, and `meta` says so.
    basis
        What `settings.real` charges for a GPU-hour; the other basis is measured beside it.
    tell
        Given one line per part that is done.

    Raises
    ------
    ContractError
        A file is there but not what it should be.
    ValueError, RuntimeError
        A method placed what does not fit, or left a job for ever.
    """
    start_s = time.perf_counter()
    tally = RunTally()
    lap = _laps(tell)
    setting = paper_setting()
    measured = tally.measure(setting, chosen(METHOD_IDS))
    pictures = _paper_pictures(tally, setting)
    lap("paper's setting")
    real = _RealFigures()
    for charged in (basis, *(other for other in CostBasis if other is not basis)):
        if not all((data / name).exists() for name in _FILES[charged]):
            real.absent.append(charged.value)
            continue
        real.measure(tally, read_tables(data, charged), extent, main=charged is basis)
        lap(f"real setting, {charged.value}")
    figures: Figures = {
        "settings": {"paper": measured, **real.settings},
        "real_starts": real.starts,
        **({"interruptions": real.interruptions} if real.interruptions else {}),
        "ablations": ablations(tally, setting),
        **_drawn(tally, setting, measured, extent),
    }
    lap(f"{extent.tables} drawn tables")
    figures["sweeps"] = sweeps(tally, extent.sweep_tables, thin=extent.quick)
    lap("sweeps")
    figures["readings"] = fill_ins(tally, extent.reading_tables, thin=extent.quick)
    lap("other readings of the paper")
    figures["exact_gap_percent"] = exact_gap(tally, extent.queues)
    lap("gap to exact")
    figures["failures"] = {
        "paper": failures(tally, setting, _COMPARED_FAILURES, most=extent.failures),
        **({"real": real.failures} if real.failures else {}),
    }
    figures["deadlines"] = deadlines(tally, extent.deadline_tables)
    lap("failures and deadlines")
    figures["pass_time"] = pass_time(
        {name: METHODS[name] for name in (PAPER, OURS)},
        jobs=extent.job_counts,
        regions=extent.region_counts,
    )
    lap("time of a pass")
    figures["checks"] = _checks(tally)
    figures["targets"] = judged(figures)
    figures["pictures"] = pictures + real.pictures
    figures["meta"] = {
        "command": command,
        "basis": basis.value,
        **_meta(extent, real.absent),
        "wall_s": time.perf_counter() - start_s,
        "environment": {
            "spotline": __version__,
            "python": platform.python_version(),
            "platform": platform.system(),
            "packages": {name: version(name) for name in ("numpy", "ortools")},
        },
    }
    return figures


@dataclass(slots=True, kw_only=True)
class _RealFigures:
    """What is measured on recorded prices and networks, by setting; `absent` had no data."""

    settings: Figures = field(default_factory=lambda: {"real": {}})
    starts: Figures = field(default_factory=dict)
    pictures: list[Figures] = field(default_factory=list)
    failures: Figures = field(default_factory=dict)
    interruptions: Figures = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)

    def measure(
        self, tally: RunTally, tables: RealTables, extent: PlacementExtent, *, main: bool
    ) -> None:
        """Measure one basis of cost; `main` is the one that the command asked for."""
        name = "real" if main else f"real_{tables.basis.value}"
        runs = _real(tally, tables, extent)
        self.settings[name] = mean_of([measured for _, measured in runs])
        self.starts[name] = {
            start: {key: _kept(row) for key, row in measured.items()} for start, measured in runs
        }
        first = real_setting(tables, starts_ns(tables, extent.starts)[0])
        self.pictures += _real_pictures(tally, tables, first)
        if main:
            self.failures = failures(tally, first, _COMPARED_FAILURES, most=extent.failures)
        if tables.basis is CostBasis.RENT:
            self.interruptions = interrupted(tally, tables, extent.starts)


def _drawn(
    tally: RunTally, setting: Setting, measured: Measured, extent: PlacementExtent
) -> Figures:
    """Bounds on what is possible, and all methods on drawn tables."""
    methods, without, leads = drawn_tables(tally, extent.tables)
    return {
        "bounds": {
            "paper": {
                "mean_jct_s": least_mean_jct_s(setting),
                "most_lead_percent": most_lead_percent(setting, measured, BASELINES),
            },
            "tables": over_tables(leads, BASELINES, LEAST_JCT_LOWER_PERCENT),
        },
        "tables": {
            "count": extent.tables,
            "methods": spread(methods, (PAPER, OURS, FIXED), BASELINES),
            "spanning": {
                name: spread(methods, (name,), (other,))[name][other]
                for name, other in SPANNING_PAIRS
            },
            "ablations": {
                name: row[PAPER] for name, row in spread(without, ablated(), (PAPER,)).items()
            },
        },
    }


def _meta(extent: PlacementExtent, absent: Sequence[str]) -> Figures:
    """What was run, and what it rests on."""
    return {
        "quick": extent.quick,
        "extent": asdict(extent),
        "settings_without_data": absent,
        "paper_table": [asdict(site) for site in PAPER_TABLE],
        "our_reading": asdict(OUR_READING),
        "profiles": {
            "A6000": profile_table(paper_jobs()),
            "A100-40GB": profile_table(paper_jobs(gpu=A100_40)),
        },
    }


def _checks(tally: RunTally) -> Figures:
    """How often it was looked; a run that holds too much raises, so none did."""
    return {
        "runs": tally.runs,
        "events": tally.events,
        "passes": tally.passes,
        "over_committed": 0,
    }


def _laps(tell: Tell) -> Tell:
    last_s = time.perf_counter()

    def lap(what: str) -> None:
        nonlocal last_s
        now_s = time.perf_counter()
        tell(f"{what}: {now_s - last_s:.1f} s")
        last_s = now_s

    return lap


def _real(
    tally: RunTally, tables: RealTables, extent: PlacementExtent
) -> list[tuple[str, Measured]]:
    return [
        (
            f"{datetime.fromtimestamp(start_ns // NS_PER_S, tz=UTC):%Y-%m-%d}",
            tally.measure(real_setting(tables, start_ns), chosen(METHOD_IDS)),
        )
        for start_ns in starts_ns(tables, extent.starts)
    ]


def _kept(row: Mapping[str, float | int]) -> dict[str, float | int]:
    return {key: row[key] for key in ("mean_jct_s", "total_cost_usd", "egress_usd")}


def _paper_pictures(tally: RunTally, setting: Setting) -> list[Figures]:
    return [
        picture(setting, tally.run(setting, contender), PLACES)
        for contender in chosen((PAPER, OURS)).values()
    ]


def _real_pictures(tally: RunTally, tables: RealTables, setting: Setting) -> list[Figures]:
    places = {name: (place.longitude, place.latitude) for name, place in tables.places.items()}
    return [
        picture(setting, tally.run(setting, contender), places)
        for contender in chosen((PAPER, OURS)).values()
    ]
