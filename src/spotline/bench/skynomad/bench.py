"""The whole benchmark: its sets, its sweeps, and their figures as one document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from spotline.bench.skynomad.data import read_egress, read_h100, read_v100
from spotline.bench.skynomad.measure import WindowRun, figures_of, run_set
from spotline.bench.skynomad.sets import (
    H100_DEADLINE_TICKS,
    H100_ZONES,
    OVERLAPPING_STARTS,
    V100_DEADLINE_TICKS,
    V100_PUBLISHED,
    V100_ZONES,
    CannotForm,
    Egress,
    JobShape,
    WindowSet,
    from_first_half,
    from_other_zones,
    some_windows,
)
from spotline.bench.skynomad.world import AlignedZones

DEADLINES: Final = (1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
ZONE_COUNTS: Final = range(1, 9)
CHECKPOINTS_GB: Final = (0, 50, 500, 1000, 2000, 4000)
_SWEEP_STARTS: Final = 6

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkynomadOptions:
    """What to run: directories, whether sweeps and the time of transfers are wanted."""

    data: Path
    traces: Path | None
    sweeps: bool = True
    transfers: bool = False


def bench_skynomad(options: SkynomadOptions, say: Say) -> dict[str, Any]:
    """Run the benchmark; return its JSON document.

    Raises
    ------
    ContractError
        A file is absent or breaks its format.
    """
    egress = read_egress(options.data)
    h100 = read_h100(options.data)
    v100 = read_v100(options.data, options.traces) if options.traces else None
    document: dict[str, Any] = {"sets": {}, "learned_from": {}, "left_out": [], "sweeps": {}}
    shape = JobShape(deadline_ticks=H100_DEADLINE_TICKS, transfers=options.transfers)
    forms: list[Callable[[], WindowSet]] = [
        lambda: from_other_zones("h100", h100, H100_ZONES, shape, egress),
        lambda: from_first_half(
            "h100-second-half", h100, H100_ZONES, shape, egress, starts=OVERLAPPING_STARTS
        ),
        lambda: from_first_half(
            "h100-all-zones", h100, h100.zones, shape, egress, starts=OVERLAPPING_STARTS
        ),
    ]
    if v100 is None:
        document["left_out"].append("v100: no --traces given")
    else:
        longer = replace(shape, deadline_ticks=V100_DEADLINE_TICKS)
        forms += [
            lambda: from_other_zones("v100", v100, V100_ZONES, longer, egress),
            lambda: from_first_half("v100-second-half", v100, V100_ZONES, longer, egress),
        ]
    for form in forms:
        windows = _formed(form, document, say)
        if windows is not None:
            runs = run_set(windows)
            document["sets"][windows.name] = _figures(windows, runs, say)
            document["learned_from"][windows.name] = windows.learned_from
            if windows.name == "v100":
                _add_published(windows, runs, document, say)
    if options.sweeps:
        document["sweeps"] = {
            name: _sweep(points, document, say)
            for name, points in _sweeps(h100, shape, egress).items()
        }
    return document


def _add_published(
    v100: WindowSet, runs: Mapping[str, list[WindowRun]], document: dict[str, Any], say: Say
) -> None:
    """Add the windows that the paper shows, from the runs of all."""
    name = "v100-published"
    windows = _formed(lambda: some_windows(name, v100, V100_PUBLISHED), document, say)
    if windows is not None:
        some = {policy: [of[n] for n in V100_PUBLISHED] for policy, of in runs.items()}
        document["sets"][name] = _figures(windows, some, say)
        document["learned_from"][name] = windows.learned_from


def _sweeps(
    h100: AlignedZones, shape: JobShape, egress: Egress
) -> dict[str, dict[str, Callable[[], WindowSet]]]:
    """Points of each sweep by the value that is swept."""
    rest = [zone for zone in h100.zones if zone not in H100_ZONES]
    ordered = [*(zone for zone in H100_ZONES if zone in h100.zones), *rest]

    def job(name: str, shape: JobShape) -> Callable[[], WindowSet]:
        return lambda: from_other_zones(name, h100, H100_ZONES, shape, egress)

    def zones(count: int) -> Callable[[], WindowSet]:
        name = f"zones {count}"
        if count > len(ordered):
            raise CannotForm(f"{name}: {len(ordered)} zones are in the data")
        some = ordered[:count]
        return lambda: from_first_half(name, h100, some, shape, egress, starts=_SWEEP_STARTS)

    return {
        "deadline": {
            f"{ratio:g}": job(f"deadline {ratio:g}", replace(shape, ratio=ratio))
            for ratio in DEADLINES
        },
        "zones": {str(count): zones(count) for count in ZONE_COUNTS if count <= len(ordered)},
        "checkpoint_gb": {
            str(size): job(f"checkpoint {size} GB", replace(shape, checkpoint_gb=size))
            for size in CHECKPOINTS_GB
        },
    }


def _sweep(
    points: dict[str, Callable[[], WindowSet]], document: dict[str, Any], say: Say
) -> dict[str, Any]:
    swept = {}
    for value, form in points.items():
        windows = _formed(form, document, say)
        if windows is not None:
            swept[value] = _figures(windows, run_set(windows), say)
            document["learned_from"][windows.name] = windows.learned_from
    return swept


def _formed(form: Callable[[], WindowSet], document: dict[str, Any], say: Say) -> WindowSet | None:
    try:
        return form()
    except CannotForm as error:
        document["left_out"].append(str(error))
        say(f"left out: {error}")
        return None


def _figures(windows: WindowSet, runs: Mapping[str, list[WindowRun]], say: Say) -> dict[str, Any]:
    figures = figures_of(runs, windows.independent)
    ours = figures["spotline"]
    say(
        f"{windows.name}: {len(windows.starts)} windows, "
        f"spotline {ours['over_optimal_percent']:+.2f} % over the optimum"
    )
    return figures
