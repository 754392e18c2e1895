"""Makes the page of the market, and that of an offering."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import Band, Mark, Series, TimeChart
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
_MOST_MARKS = 30
_MOST_SHOWN = 20


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
    losses = losses_of(state, name, asked.tenant)
    refusals = refusals_of(state, name, asked.tenant)
    return {
        "row": rows[0],
        "seen": len(seen),
        "believed": sum(each.believed for each in seen),
        "unknown": sum(each.available is None for each in seen),
        "prices": _prices(seen),
        "counts": _counts(seen, losses, refusals),
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


def _prices(seen: Sequence[SlotSeen]) -> TimeChart:
    return TimeChart(
        name="prices",
        title="Price of an instance-hour",
        unit="usd_per_hour",
        at_s=[seconds_of_ns(each.opened_ns) for each in seen],
        series=[
            Series(
                name="spot",
                colour="spot",
                values=[_dollars(each.spot_price_micro_usd) for each in seen],
                steps=True,
            ),
            Series(
                name="on-demand",
                colour="on-demand",
                values=[_dollars(each.on_demand_price_micro_usd) for each in seen],
                steps=True,
            ),
        ],
    )


def _counts(
    seen: Sequence[SlotSeen], losses: Sequence[Loss], refusals: Sequence[RefusedLaunch]
) -> TimeChart:
    first_ns = seen[0].opened_ns if seen else 0
    marks = [
        *((loss.market_ns, f"{loss.instances} lost") for loss in losses),
        *((refusal.market_ns, "refused") for refusal in refusals),
    ]
    latest = sorted(mark for mark in marks if mark[0] >= first_ns)[-_MOST_MARKS:]
    said: set[tuple[int, str]] = set()
    kept = []
    for at_ns, name in latest:
        # Marks of the same minute would lie on each other.
        if (at_ns // NS_PER_S // 60, name) not in said:
            said.add((at_ns // NS_PER_S // 60, name))
            kept.append(
                Mark(
                    at_s=seconds_of_ns(at_ns),
                    name="lost" if name.endswith("lost") else "",
                    colour="bad" if name.endswith("lost") else "strong",
                )
            )
    return TimeChart(
        name="counts",
        title="Spot instances there; a gap where nobody knows",
        unit="instances",
        at_s=[seconds_of_ns(each.opened_ns) for each in seen],
        series=[
            Series(
                name="spot available",
                colour="spot",
                values=[each.available for each in seen],
                steps=True,
                filled=True,
            )
        ],
        marks=kept,
    )


def _fan(points: Sequence[FanPoint]) -> TimeChart:
    return TimeChart(
        name="fan",
        title="Spot instances forecast, and what came",
        unit="instances",
        at_s=[seconds_of_ns(point.at_ns) for point in points],
        series=[
            Series(name="1 in 10 below", colour="line-5", values=[p.step.low for p in points]),
            Series(
                name="half below",
                colour="line-1",
                values=[p.step.middle for p in points],
                dashed=True,
            ),
            Series(name="9 in 10 below", colour="line-5", values=[p.step.high for p in points]),
            Series(name="came", colour="line-2", values=[p.came for p in points]),
        ],
        bands=[Band(name="80 %", low=0, high=2, colour="line-5")],
    )


def _price_fan(points: Sequence[FanPoint]) -> TimeChart:
    return TimeChart(
        name="price-fan",
        title="Spot price expected, and what came",
        unit="usd_per_hour",
        at_s=[seconds_of_ns(point.at_ns) for point in points],
        series=[
            Series(
                name="expected",
                colour="line-1",
                values=[_dollars(point.step.price_micro_usd) for point in points],
                dashed=True,
            ),
            Series(
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
