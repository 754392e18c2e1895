"""Makes the first page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartSeries, Colour, TimeChart
from spotline.adapters.page.formats import word
from spotline.application.page.about import About
from spotline.application.page.now import HoldingsPoint, NowView, SlackStrip, now_view
from spotline.application.page.state import PageState
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S

# The same reason has the same colour in every slot; what is rare shares one.
_REASON_COLOURS: Mapping[DecisionReason, Colour] = {
    DecisionReason.POLICY: "line-1",
    DecisionReason.LAUNCH_REFUSED: "line-2",
    DecisionReason.SAFETY_NET: "line-3",
    DecisionReason.INTERRUPTED: "line-4",
    DecisionReason.AFTER_DEADLINE: "line-5",
    DecisionReason.NO_CAPACITY: "line-6",
    DecisionReason.BUDGET: "bad",
    DecisionReason.FORECAST_OVERDUE: "pale",
    DecisionReason.FORECAST_UNTRUSTED: "strong",
}
_WIDTH, _ROW, _CELL, _LEFT = 960, 18, 14, 170


@dataclass(frozen=True, slots=True, kw_only=True)
class StripCell:
    """A rectangle of a strip, in the picture's own units."""

    x: float
    width: float
    tight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRow:
    """A job's strip at its height in the picture."""

    y: int
    strip: SlackStrip
    cells: tuple[StripCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPicture:
    """The strips of all jobs; times stand at the ends of the axis below."""

    width: int
    height: int
    left: int
    cell: int
    rows: tuple[StripRow, ...]
    first_slot: int
    last_slot: int


def now_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """What needs a look, what is held, and how jobs are for time."""
    about: About = found["about"]
    view = now_view(state, found["rows"], about, asked.tenant)
    at_s = [point.start_ns / NS_PER_S for point in view.points]
    return {
        "view": view,
        "has_market": bool(state.jobs.recent.offerings),
        "charts": (_held(view.points, at_s), _spend(view.points, at_s), _reasons(view, at_s)),
        "strips": _picture(state, view),
    }


def _held(points: Sequence[HoldingsPoint], at_s: Sequence[float]) -> TimeChart:
    reserved = [float(point.held.reserved) for point in points]
    own = ChartSeries(name="reserved", colour="reserved", values=reserved, steps=True)
    return TimeChart(
        name="held",
        title="Instances held, at the end of each slot",
        unit="instances",
        at_s=at_s,
        stacked=True,
        series=(
            ChartSeries(
                name="spot",
                colour="spot",
                values=[float(point.held.spot) for point in points],
                steps=True,
            ),
            ChartSeries(
                name="on-demand",
                colour="on-demand",
                values=[float(point.held.on_demand) for point in points],
                steps=True,
            ),
            *((own,) if any(reserved) else ()),
        ),
    )


def _spend(points: Sequence[HoldingsPoint], at_s: Sequence[float]) -> TimeChart:
    return TimeChart(
        name="spend",
        title="Billed, USD an hour",
        unit="usd",
        at_s=at_s,
        series=(
            ChartSeries(
                name="billed",
                colour="done",
                values=[point.billed_micro_usd_per_hour / 1e6 for point in points],
                steps=True,
                filled=True,
            ),
        ),
    )


def _reasons(view: NowView, at_s: Sequence[float]) -> TimeChart:
    made = {reason for point in view.points for reason in point.reasons}
    known = {reason.value for reason in _REASON_COLOURS}
    series = [
        ChartSeries(
            name=word(reason),
            colour=colour,
            values=[float(point.reasons.get(reason.value, 0)) for point in view.points],
            steps=True,
        )
        for reason, colour in _REASON_COLOURS.items()
        if reason.value in made
    ]
    if made - known:
        rest = sorted(made - known)
        other = [float(sum(point.reasons.get(key, 0) for key in rest)) for point in view.points]
        names = ", ".join(map(word, rest))
        series.append(ChartSeries(name=names, colour="line-8", values=other, steps=True))
    return TimeChart(
        name="reasons",
        title="Decisions in each slot, by reason",
        unit="points",
        at_s=at_s,
        stacked=True,
        series=tuple(series),
    )


def _picture(state: PageState, view: NowView) -> StripPicture | None:
    if not view.strips:
        return None
    first = min(strip.cells[0].slot for strip in view.strips)
    slots = max(1, state.slot + 1 - first)
    wide = (_WIDTH - _LEFT) / slots
    rows = tuple(
        StripRow(
            y=place * _ROW,
            strip=strip,
            cells=tuple(
                StripCell(
                    x=round(_LEFT + (cell.slot - first) * wide, 1),
                    width=round(min(cell.slots, state.slot + 1 - cell.slot) * wide, 1),
                    tight=cell.tight,
                )
                for cell in strip.cells
            ),
        )
        for place, strip in enumerate(view.strips)
    )
    return StripPicture(
        width=_WIDTH,
        height=len(rows) * _ROW + 18,
        left=_LEFT,
        cell=_CELL,
        rows=rows,
        first_slot=first,
        last_slot=state.slot,
    )
