"""Amounts, times and shares as all commands write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotline.application.board.messages import JobFlag, JobView
    from spotline.domain.jobs.lot import Lot

NOTHING = "-"
_LEAST_SHORT_ID = 8


def usd(micro_usd: int) -> str:
    """An amount of USD, to the cent."""
    return f"{micro_usd / 1e6:,.2f}"


def probability(ppm: int) -> str:
    """A probability in whole percent; neither certain nor impossible where it is not."""
    if 995_000 <= ppm < 1_000_000:
        return ">99 %"
    if 0 < ppm < 5_000:
        return "<1 %"
    return f"{ppm / 10_000:.0f} %"


def lasting(seconds: float) -> str:
    """How long, in its two largest units: `2 d 5 h`, `12 min`, `-40 s`."""
    from spotline.application.board.wording import duration_text

    whole = round(seconds)
    return f"-{duration_text(whole)}" if whole < 0 else duration_text(whole)


def moment(ns: int) -> str:
    """A time in UTC to the second, `-` for one that is not known."""
    from spotline.domain.units import utc_iso

    return utc_iso(ns) if ns else NOTHING


def short_moment(ns: int) -> str:
    """The same for tables whose heading names the year: month, day and time."""
    return moment(ns)[5:16].replace("T", " ") if ns else NOTHING


def clock_time(ns: int) -> str:
    """The time of day alone."""
    return moment(ns)[11:19] if ns else NOTHING


def held_text(lots: Iterable[Lot]) -> str:
    """How many instances of each kind: `3 spot + 1 on-demand`."""
    found = tuple(lots)
    spot, on_demand = sum(lot.spot for lot in found), sum(lot.on_demand for lot in found)
    parts = [f"{spot} spot"] if spot else []
    parts += [f"{on_demand} on-demand"] if on_demand else []
    return " + ".join(parts) or NOTHING


def placed_text(lots: Iterable[Lot]) -> str:
    """The same with where they are: `3 spot of aws/us-east-1/...`."""
    parts = [
        f"{count} {kind} of {lot.offering_id}"
        for lot in lots
        for count, kind in ((lot.spot, "spot"), (lot.on_demand, "on-demand"))
        if count
    ]
    return ", ".join(parts) or "nothing"


def phase_text(view: JobView) -> str:
    """What a job is doing, and for what it waits: `waiting for capacity`."""
    said = view.phase.value.replace("_", " ")
    if view.waiting_for is None:
        return said
    waits = f"waiting for {view.waiting_for.value.replace('_', ' ')}"
    return waits if said == "waiting" else f"{said}, {waits}"


def flags_text(flags: Iterable[JobFlag]) -> str:
    """What deserves a look, in capitals: colour alone would not reach everybody."""
    return ", ".join(flag.value.replace("_", " ").upper() for flag in flags)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Each id's beginning, as long as it takes to tell it from the others; commands take it."""
    ordered = sorted(set(ids))
    shown: dict[str, str] = {}
    for index, job_id in enumerate(ordered):
        beside = [*ordered[max(0, index - 1) : index], *ordered[index + 1 : index + 2]]
        alike = max((_alike(job_id, other) for other in beside), default=0)
        shown[job_id] = job_id[: max(_LEAST_SHORT_ID, alike + 1)]
    return shown


def _alike(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (mine, its) in enumerate(pairs) if mine != its),
        min(len(first), len(second)),
    )
