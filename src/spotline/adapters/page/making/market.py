"""Makes the page of the market, and that of an offering."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartBand, ChartMark, ChartSeries, TimeChart
from spotline.adapters.page.formats import seconds_of_ns
from spotline.application.page.market import Loss, RefusedLaunch
from spotline.application.page.offerings import (
    FanPoint,
    OfferingFilter,
    SlotSeen,
    calibration,
    fan_points,
    issued_slots,
    lives_by_age,
    losses_of,
    offering_rows,
    refusals_of,
    seen_slots,
)
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S

ROWS_A_PAGE = 100
_MOST_LOST = 20
_REFUSED_PARTS = 12
_MOST_SHOWN = 20
_MINUTE_NS = 60 * NS_PER_S


def market_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """All offerings that a filter takes, as they are in the open slot."""
    wanted = OfferingFilter(
        provider=asked.text("provider"),
        region=asked.text("region"),
        gpu=asked.text("gpu"),
        instance_type=asked.text("type"),
    )
    offerings = state.jobs.recent.offerings
    rows = offering_rows(state, wanted, asked.tenant)
    pages = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(asked.number("page", least=1) or 1, pages)
    return {
        "rows": rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE],
        "count": len(rows),
        "page": page,
        "pages": pages,
        "offerings": len(offerings),
        "wanted": {
            "provider": wanted.provider,
            "region": wanted.region,
            "gpu": wanted.gpu,
            "type": wanted.instance_type,
        },
        "choices": {
            "provider": sorted({each.provider for each in offerings}),
            "region": sorted({each.region for each in offerings}),
            "gpu": sorted({each.gpu_model for each in offerings if each.gpu_model}),
            "type": sorted({each.instance_type for each in offerings}),
        },
    }


def offering_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """An offering: its prices and counts, what is forecast of it, and how long instances live."""
    name = asked.params["offering_id"]
    rows = [
        row
        for row in offering_rows(state, OfferingFilter(), asked.tenant)
        if row.offering.offering_id == name
    ]
    if not rows:
        raise refused_input(
            InputProblem(
                field="offering_id", expected="an offering of this market", found=repr(name)
            )
        )
    seen = seen_slots(state, name)
    issued = issued_slots(state, name)
    shown = asked.number("issued")
    if shown is None:
        shown = issued[0] if issued else -1
    points = fan_points(state, name, shown)
    uncounted = all(each.available is None for each in seen)
    losses = losses_of(state, name, asked.tenant)
    refusals = refusals_of(state, name, asked.tenant)
    marks = _marks(seen, losses, refusals)
    return {
        "row": rows[0],
        "seen": len(seen),
        "believed": sum(each.believed for each in seen),
        "uncounted": uncounted,
        # What nobody counts has no picture of its own to mark.
        "prices": _prices(seen, marks if uncounted else ()),
        "counts": _counts(seen, marks),
        "issued": issued,
        "shown": shown,
        "points": points,
        "fan": _fan(points),
        "price_fan": _price_fan(points),
        "calibration": calibration(state, name),
        "lives": lives_by_age(state, name, asked.tenant),
        "untold_lives": state.market.untold_lives,
        "losses": losses[: -_MOST_SHOWN - 1 : -1],
        "refusals": refusals[: -_MOST_SHOWN - 1 : -1],
        "names": {
            job_id: status.job.name or job_id[:8] for job_id, status in state.jobs.statuses.items()
        },
    }


def _dollars(micro_usd: int) -> float:
    return micro_usd / MICRO_USD_PER_USD


def _prices(seen: Sequence[SlotSeen], marks: Sequence[ChartMark]) -> TimeChart:
    return TimeChart(
        name="prices",
        title="Price of an instance-hour",
        unit="usd_per_hour",
        at_s=[seconds_of_ns(each.opened_ns) for each in seen],
        series=[
            ChartSeries(
                name="spot",
                colour="spot",
                values=[_dollars(each.spot_price_micro_usd) for each in seen],
                steps=True,
            ),
            ChartSeries(
                name="on-demand",
                colour="on-demand",
                values=[_dollars(each.on_demand_price_micro_usd) for each in seen],
                steps=True,
            ),
        ],
        marks=marks,
    )


def _marks(
    seen: Sequence[SlotSeen], losses: Sequence[Loss], refusals: Sequence[RefusedLaunch]
) -> list[ChartMark]:
    """Where instances were lost and launches refused; of refusals one for each part of the time."""
    if not seen:
        return []
    first, last = seen[0].opened_ns // _MINUTE_NS, seen[-1].opened_ns // _MINUTE_NS
    part = max(1, (last - first) // _REFUSED_PARTS)
    lost = {loss.market_ns // _MINUTE_NS for loss in losses if loss.market_ns >= seen[0].opened_ns}
    refused: dict[int, int] = {}
    for refusal in refusals:
        minute = refusal.market_ns // _MINUTE_NS
        if minute >= first:
            refused.setdefault((minute - first) // part, minute)
    latest = sorted(
        (
            *((minute, "lost") for minute in sorted(lost)[-_MOST_LOST:]),
            *((minute, "refused") for minute in refused.values()),
        )
    )
    return [
        ChartMark(
            at_s=minute * 60.0,
            # Refusals come in crowds: the line alone says so, and the note below.
            name="lost" if what == "lost" else "",
            colour="bad" if what == "lost" else "strong",
        )
        for minute, what in latest
    ]


def _counts(seen: Sequence[SlotSeen], marks: Sequence[ChartMark]) -> TimeChart:
    return TimeChart(
        name="counts",
        title="Spot instances there; a gap where nobody knows",
        unit="instances",
        at_s=[seconds_of_ns(each.opened_ns) for each in seen],
        series=[
            ChartSeries(
                name="spot available",
                colour="spot",
                values=[each.available for each in seen],
                steps=True,
                filled=True,
            )
        ],
        marks=marks,
    )


def _fan(points: Sequence[FanPoint]) -> TimeChart:
    return TimeChart(
        name="fan",
        title="Spot instances forecast, and what came",
        unit="instances",
        at_s=[seconds_of_ns(point.at_ns) for point in points],
        series=[
            ChartSeries(name="1 in 10 below", colour="line-5", values=[p.step.low for p in points]),
            ChartSeries(
                name="half below",
                colour="line-1",
                values=[p.step.middle for p in points],
                dashed=True,
            ),
            ChartSeries(
                name="9 in 10 below", colour="line-5", values=[p.step.high for p in points]
            ),
            ChartSeries(name="came", colour="line-2", values=[p.came for p in points]),
        ],
        bands=[ChartBand(name="80 %", low=0, high=2, colour="line-5")],
    )


def _price_fan(points: Sequence[FanPoint]) -> TimeChart:
    return TimeChart(
        name="price-fan",
        title="Spot price expected, and what came",
        unit="usd_per_hour",
        at_s=[seconds_of_ns(point.at_ns) for point in points],
        series=[
            ChartSeries(
                name="expected",
                colour="line-1",
                values=[_dollars(point.step.price_micro_usd) for point in points],
                dashed=True,
            ),
            ChartSeries(
                name="came",
                colour="line-2",
                values=[
                    None
                    if point.price_came_micro_usd is None
                    else _dollars(point.price_came_micro_usd)
                    for point in points
                ],
            ),
        ],
    )
