"""The first page: what needs a person, what is held, and how all jobs are for time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.board.messages import FleetView, JobFlag, JobPhase
from spotline.application.board.view import fleet_of
from spotline.application.page.about import About
from spotline.application.page.fleet import Holdings, SlackAt, SlotSums
from spotline.application.page.jobs import SeenJob, job_row, visible_jobs
from spotline.application.page.state import PageState
from spotline.application.page.trouble import HOUR_NS, TroubleFound, spend_uses, troubles

MOST_POINTS = 400
MOST_STRIPS = 40
STRIP_CELLS = 96
_DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStanding:
    """What the frame of every page says: how much to look at, and what a day has cost.

    Money is micro-USD of the last 24 h of market time; the cap is None where there is none.
    """

    alerts: int
    spent_today_micro_usd: int
    cap_today_micro_usd: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCount:
    """How many jobs are in a phase."""

    phase: JobPhase
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingsPoint:
    """A slot's numbers: what is held at its end, what it cost an hour, and decisions by reason."""

    slot: int
    start_ns: int
    held: Holdings
    billed_micro_usd: int
    billed_micro_usd_per_hour: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackCell:
    """A piece of a strip: `slots` slots from `slot` on, as tight as the tightest of them."""

    slot: int
    slots: int
    slack_s: int
    tight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackStrip:
    """A job's slack over the last slots, oldest first; `tight` says how it is now."""

    job_id: str
    name: str
    slack_s: int
    tight: str
    cells: tuple[SlackCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NowView:
    """All that the first page says. `strips` are of the tightest jobs, `more_strips` how many more."""

    troubles: tuple[TroubleFound, ...]
    fleet: FleetView
    held: Holdings
    phases: tuple[PhaseCount, ...]
    points: tuple[HoldingsPoint, ...]
    strips: tuple[SlackStrip, ...]
    more_strips: int
    jobs: int
    spent_hour_micro_usd: int
    spent_day_micro_usd: int


def rows_of(state: PageState, about: About, tenant: str) -> list[SeenJob]:
    """All jobs that a tenant (empty: anybody) may see."""
    # What is expected now says nothing of a past slot: it is known of the head alone.
    known = about.outlooks
    return [job_row(state, job_id, known.get(job_id)) for job_id in visible_jobs(state, tenant)]


def standing_of(
    state: PageState, rows: Sequence[SeenJob], about: About, tenant: str = ""
) -> FleetStanding:
    """What the frame says."""
    found = troubles(state, rows, about, tenant)
    cap = next(
        (
            use.limit_micro_usd
            for use in spend_uses(state, about)
            if use.span == "day" and (use.tenant == tenant if tenant else use.what == "total")
        ),
        None,
    )
    return FleetStanding(
        alerts=sum(trouble.bad for trouble in found),
        spent_today_micro_usd=spent_in(state, _DAY_S, tenant),
        cap_today_micro_usd=cap,
    )


def spent_in(state: PageState, span_s: int, tenant: str) -> int:
    """What was spent in so many seconds that end with the open slot, micro-USD."""
    spent = state.jobs.spending.spent_in(span_s)
    return sum(cost for (whose, _), cost in spent.items() if tenant in ("", whose))


def now_view(state: PageState, rows: Sequence[SeenJob], about: About, tenant: str = "") -> NowView:
    """Make the first page for a tenant (empty: for all), of whom `rows` are all jobs."""
    strips = slack_strips(state, rows)
    open_rows = [row for row in rows if not row.view.phase.over]
    return NowView(
        troubles=troubles(state, rows, about, tenant),
        fleet=_fleet(state, rows, tenant),
        held=state.fleet.slots[-1].held.get(tenant, Holdings())
        if state.fleet.slots
        else Holdings(),
        phases=phase_counts(rows),
        points=tuple(_points(state, tenant)),
        strips=tuple(strips[:MOST_STRIPS]),
        more_strips=max(0, len(strips) - MOST_STRIPS),
        jobs=len(open_rows),
        spent_hour_micro_usd=spent_in(state, HOUR_NS // 10**9, tenant),
        spent_day_micro_usd=spent_in(state, _DAY_S, tenant),
    )


def phase_counts(rows: Sequence[SeenJob]) -> tuple[PhaseCount, ...]:
    """How many jobs are in each phase that any is in."""
    counts = {phase: 0 for phase in JobPhase}
    for row in rows:
        counts[row.view.phase] += 1
    return tuple(PhaseCount(phase=phase, jobs=jobs) for phase, jobs in counts.items() if jobs)


def _fleet(state: PageState, rows: Sequence[SeenJob], tenant: str) -> FleetView:
    """What these jobs hold and cost an hour, at the prices of the open slot."""
    if not tenant:
        return fleet_of(state.jobs.board, state.jobs.recent, [row.view for row in rows])
    opened = state.jobs.recent.opened
    prices = {q.quote.offering_id: q.quote for q in (() if opened is None else opened.quotes)}
    spot = on_demand = per_hour = 0
    for row in rows:
        for lot in row.view.held:
            spot, on_demand = spot + lot.spot, on_demand + lot.on_demand
            quote = prices.get(lot.offering_id)
            if quote is not None:
                per_hour += lot.spot * quote.spot_price_micro_usd
                per_hour += lot.on_demand * quote.on_demand_price_micro_usd
    return FleetView(
        spot=spot,
        on_demand=on_demand,
        micro_usd_per_hour=per_hour,
        billed_micro_usd=sum(row.view.money.billed_micro_usd for row in rows),
        open_jobs=sum(not row.view.phase.over for row in rows),
        at_risk=sum(JobFlag.AT_RISK in row.view.flags for row in rows),
        stalled=sum(JobFlag.STALLED in row.view.flags for row in rows),
    )


def _points(state: PageState, tenant: str) -> list[HoldingsPoint]:
    """The slots, thinned to `MOST_POINTS`: of each piece its last, with the piece's sums."""
    sums = [one for one in state.fleet.slots if one.slot <= state.slot]
    each = max(1, -(-len(sums) // MOST_POINTS))
    return [_point(state, sums[at : at + each], tenant) for at in range(0, len(sums), each)]


def _point(state: PageState, piece: Sequence[SlotSums], tenant: str) -> HoldingsPoint:
    billed = sum(sums.billed_micro_usd.get(tenant, 0) for sums in piece)
    reasons: dict[str, int] = {}
    for sums in piece:
        for reason, count in sums.reasons.get(tenant, {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    last = piece[-1]
    return HoldingsPoint(
        slot=last.slot,
        start_ns=state.start_ns(last.slot),
        held=last.held.get(tenant, Holdings()),
        billed_micro_usd=billed,
        billed_micro_usd_per_hour=billed * 3_600 // (state.slot_s * len(piece)),
        reasons=reasons,
    )


def tightness(slack_s: int, slot_s: int) -> str:
    """How tight a slack is: `late`, `tight` (under 6 slots), `some` (under 36), `ample`."""
    if slack_s < 0:
        return "late"
    if slack_s < 6 * slot_s:
        return "tight"
    return "some" if slack_s < 36 * slot_s else "ample"


def slack_strips(state: PageState, rows: Sequence[SeenJob]) -> list[SlackStrip]:
    """The slack of each open job over the last slots, all on one scale, the tightest job first."""
    kept = {
        row.job_id: state.fleet.slacks[row.job_id]
        for row in rows
        if not row.view.phase.over and state.fleet.slacks.get(row.job_id)
    }
    if not kept:
        return []
    first = min(slacks[0].slot for slacks in kept.values())
    each = max(1, -(-(state.slot + 1 - first) // STRIP_CELLS))
    names = {row.job_id: row.name for row in rows}
    strips = [
        SlackStrip(
            job_id=job_id,
            name=names[job_id],
            slack_s=slacks[-1].slack_s,
            tight=tightness(slacks[-1].slack_s, state.slot_s),
            cells=_cells(list(slacks), first, each, state.slot_s),
        )
        for job_id, slacks in kept.items()
    ]
    return sorted(strips, key=lambda strip: (strip.slack_s, strip.job_id))


def _cells(slacks: Sequence[SlackAt], first: int, each: int, slot_s: int) -> tuple[SlackCell, ...]:
    least: dict[int, int] = {}
    for at in slacks:
        place = (at.slot - first) // each
        least[place] = min(at.slack_s, least.get(place, at.slack_s))
    return tuple(
        SlackCell(
            slot=first + place * each, slots=each, slack_s=slack_s, tight=tightness(slack_s, slot_s)
        )
        for place, slack_s in sorted(least.items())
    )
