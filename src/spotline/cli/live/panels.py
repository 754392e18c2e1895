"""What the live view's panels say: lines of text from values, nothing drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spotline.cli.live.charts import DONE, PLANNED, ProgressPoint, bars, progress_chart
from spotline.cli.status_view import board_facts, expected, spent_micro_usd, status_phase
from spotline.cli.tables import escaped, fact_lines, shortened
from spotline.cli.wording import flags_text, lasting, probability, usd

if TYPE_CHECKING:
    from spotline.application.allocator.messages import JobStatus
    from spotline.cli.status_view import JobBoard
    from spotline.domain.market.slot_quote import SlotQuote

_LABEL = 14


def header_text(board: JobBoard, width: int, broken: str = "") -> str:
    """Market, what is held and what it costs; first that nothing answers, where nothing does."""
    lines = fact_lines(board_facts(board), width)
    if broken:
        lines.insert(0, shortened(f"NO ANSWER, shown is what was last: {escaped(broken)}", width))
    return "\n".join(lines)


def job_panel(
    status: JobStatus, points: Sequence[ProgressPoint], *, width: int, height: int
) -> str:
    """The chart of a job: its headline, the way to its deadline, what it spent of what was quoted."""
    view, job = status.view, status.job
    flags = "" if view is None else flags_text(view.flags)
    said = status_phase(status) if view is None or not view.headline else view.headline
    if flags and flags not in said:
        said = f"{flags}: {said}"
    headline = fact_lines([(f"{job.job_id[:8]}", said)], width)
    cost = _cost_lines(status, points, width)
    rows = max(4, height - len(headline) - len(cost) - 2)
    chart = progress_chart(
        points,
        start_ns=job.start_ns or status.submitted_ns,
        deadline_ns=job.deadline.at_ns,
        width=width,
        height=rows,
    )
    legend = f"work done ({DONE}) over market time; straight to the deadline ({PLANNED})"
    return "\n".join([*headline, shortened(legend, width), *chart, *cost])


def _cost_lines(status: JobStatus, points: Sequence[ProgressPoint], width: int) -> list[str]:
    view = status.view
    spent = f"{usd(spent_micro_usd(status))} USD"
    outlook = None if view is None else view.quoted
    if outlook is not None:
        low, high = usd(outlook.cost_p10_micro_usd), usd(outlook.cost_p90_micro_usd)
        spent += f" of {usd(outlook.expected_cost_micro_usd)} quoted ({low} to {high})"
    drawn = bars([point.spent_micro_usd for point in points], width - _LABEL)
    lines = fact_lines([("spent", spent), ("cost over time", drawn)], None)
    now = None if view is None else expected(view)
    if view is not None and now is not None:
        on_time = probability(now.on_time_probability_ppm)
        slack = f", slack {lasting(view.slack_s)}" if view.latest_on_demand_start_ns else ""
        lines += fact_lines([("on time", f"{on_time}{slack}")], None)
    return lines


def market_panel(offering_id: str, quotes: Sequence[SlotQuote], *, width: int) -> str:
    """Price and availability of an offering over the latest slots, the newest at the right."""
    if not offering_id:
        return "no offering: the job has none yet"
    if not quotes:
        return f"{escaped(offering_id)}\nno quotes yet"
    room = max(8, width - 2)
    latest = quotes[-1].quote
    facts = [
        (
            "spot",
            f"{usd(latest.spot_price_micro_usd)} USD per instance hour "
            f"({100 * latest.spot_price_micro_usd / max(1, latest.on_demand_price_micro_usd):.0f} % "
            f"of on-demand, {usd(latest.on_demand_price_micro_usd)})",
        ),
        ("there are", f"{_count(latest.spot_available)} spot"),
    ]
    prices = [quoted.quote.spot_price_micro_usd for quoted in quotes]
    counts = [quoted.quote.spot_available.instances for quoted in quotes]
    return "\n".join(
        [
            escaped(offering_id),
            *fact_lines(facts, width),
            f"spot price, latest {min(room, len(prices))} slots, up to {usd(max(prices))} USD",
            bars(prices, room),
            f"spot instances, up to {max(counts)}",
            bars(counts, room),
        ]
    )


def _count(count: object) -> str:
    from spotline.domain.market.offering import Count, Provenance

    if not isinstance(count, Count) or count.provenance is Provenance.UNKNOWN:
        return "unknown how many"
    return str(count.instances)
