"""Where jobs stand, as `status` and `watch` print it: all from `JobView`, nothing worked out here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotline.cli.modes_view import paper_mark
from spotline.cli.tables import Column, Kind, print_facts, print_table
from spotline.cli.wording import (
    NOTHING,
    clock_time,
    flags_text,
    held_text,
    lasting,
    moment,
    phase_text,
    placed_text,
    probability,
    short_ids,
    short_moment,
    usd,
)

if TYPE_CHECKING:
    from spotline.application.allocator.messages import JobStatus, JobUpdate
    from spotline.application.board.messages import FleetView, JobMoney, JobView
    from spotline.application.market_view import ClockReading, MarketStatus
    from spotline.domain.jobs.outlook import JobOutlook

# `done by` and `on time` are what is expected now; `spent` is of what was quoted.
JOB_COLUMNS = (
    Column("job", Kind.ID),
    Column("name", Kind.SENTENCE, 3),
    Column("phase"),
    Column("look"),
    Column("done", Kind.NUMBER, 1),
    Column("holds", rank=4),
    Column("done by", rank=5),
    Column("deadline", rank=3),
    Column("slack", Kind.NUMBER, 6),
    Column("on time", Kind.NUMBER, 2),
    Column("spent USD", Kind.NUMBER, 2),
    Column("tenant", rank=7),
)
_ALWAYS = ("job", "phase", "holds")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBoard:
    """All jobs that were asked for, with the market they are in and what they hold together."""

    statuses: tuple[JobStatus, ...]
    market: MarketStatus
    fleet: FleetView | None = None


# --- all jobs ---------------------------------------------------------------------------------


def print_board(board: JobBoard) -> None:
    """The header, then a line for each job."""
    print_facts(board_facts(board))
    if not board.statuses:
        return
    print()
    statuses = by_urgency(board.statuses)
    columns, rows = job_table(statuses)
    flagged = [is_flagged(status) for status in statuses]
    print_table(columns, rows, styles=["bold red" if look else "" for look in flagged])


def is_flagged(status: JobStatus) -> bool:
    """Whether a job deserves a look."""
    return status.view is not None and bool(status.view.flags)


def by_urgency(statuses: Sequence[JobStatus]) -> list[JobStatus]:
    """What deserves a look first, what is over last; of equals the one submitted first."""
    return sorted(
        statuses,
        key=lambda status: (
            status.state.over,
            not is_flagged(status),
            status.submitted_ns,
            status.job.job_id,
        ),
    )


def job_table(statuses: Sequence[JobStatus]) -> tuple[list[Column], list[list[str]]]:
    """Columns and rows, a row for each job; without the columns of which no job has anything."""
    rows = _job_rows(statuses)
    kept = [
        index
        for index, column in enumerate(JOB_COLUMNS)
        if any(row[index] not in ("", NOTHING) for row in rows) or column.name in _ALWAYS
    ]
    return [JOB_COLUMNS[index] for index in kept], [[row[index] for index in kept] for row in rows]


def board_json(board: JobBoard) -> dict[str, Any]:
    """The same as HTTP answers a list of jobs, with the market's state beside it."""
    from spotline.adapters.web.encoding import answer, encoded

    market = encoded(board.market)
    del market["clock"], market["quotes"]
    return answer(board.market.clock, market=market, fleet=board.fleet, jobs=board.statuses)


def board_facts(board: JobBoard) -> list[tuple[str, str]]:
    """What time it is, whether the market goes on, and what is held at what cost."""
    facts = [("market", market_text(board.market))]
    clock, fleet = board.market.clock, board.fleet
    if clock is not None and clock.wall_ns:
        facts.append(("wall", f"{moment(clock.wall_ns)} when that slot opened"))
    if fleet is not None:
        held = f"{fleet.spot} spot + {fleet.on_demand} on-demand"
        facts.append(("held", f"{held}, {usd(fleet.micro_usd_per_hour)} USD per hour"))
        facts.append(("billed", f"{usd(fleet.billed_micro_usd)} USD"))
        if fleet.fairness_cost_micro_usd:
            cost = usd(fleet.fairness_cost_micro_usd)
            facts.append(("fairness", f"between tenants, has cost all jobs together {cost} USD"))
        looks = [
            f"{count} {word}"
            for count, word in ((fleet.at_risk, "AT RISK"), (fleet.stalled, "STALLED"))
            if count
        ]
        facts.append(("jobs", ", ".join([f"{fleet.open_jobs} open", *looks])))
    return facts


def market_text(market: MarketStatus) -> str:
    """Market time and whether it goes on, in one line."""
    state = market.state.value.replace("_", " ")
    clock = market.clock
    if clock is None:
        return state
    slot = f", slot {clock.slot} of {lasting(clock.slot_s)}" if clock.slot >= 0 else ""
    ends = "" if not market.ends_ns else f", ends {moment(market.ends_ns)}"
    if market.state.value == "ended":
        ends = f" at {moment(market.ends_ns)}: no slot follows, nothing more is decided"
    return f"{moment(clock.market_ns)}{slot}, {state}{ends}{paper_mark(clock)}"


def _job_rows(statuses: Sequence[JobStatus]) -> list[tuple[str, ...]]:
    ids = short_ids([status.job.job_id for status in statuses])
    return [(ids[status.job.job_id], *_job_row(status)) for status in statuses]


def _job_row(status: JobStatus) -> tuple[str, ...]:
    job, view = status.job, status.view
    outlook = None if view is None else expected(view)
    slack = NOTHING
    if view is not None and view.latest_on_demand_start_ns and is_going_on(view):
        slack = lasting(view.slack_s)
    return (
        job.name,
        status_phase(status),
        "" if view is None else flags_text(view.flags),
        f"{status.progress_ppm / 10_000:.0f} %",
        held_text(status.lots if view is None else view.held),
        NOTHING if outlook is None else short_moment(outlook.finish_p50_ns),
        f"{short_moment(job.deadline.at_ns)} {job.deadline.kind.value}",
        slack,
        NOTHING if outlook is None else probability(outlook.on_time_probability_ppm),
        _spent_of_quoted(status),
        job.tenant,
    )


def is_going_on(view: JobView) -> bool:
    """Whether anything is still decided for a job: it is not over, and its market goes on."""
    return not view.phase.over and view.phase.value != "market_ended"


def expected(view: JobView) -> JobOutlook | None:
    """What is expected of a job now; nothing of one for which nothing more is decided."""
    return view.outlook if is_going_on(view) else None


def status_phase(status: JobStatus) -> str:
    """The phase of a job; servers before 0.3.0 say a state alone."""
    return status.state.value.replace("_", " ") if status.view is None else phase_text(status.view)


def spent_micro_usd(status: JobStatus) -> int:
    """What a job has cost by the decisions."""
    return status.cost_micro_usd if status.view is None else status.view.money.spent_micro_usd


def _spent_of_quoted(status: JobStatus) -> str:
    view = status.view
    quoted = None if view is None else view.quoted
    spent = usd(spent_micro_usd(status))
    return spent if quoted is None else f"{spent} of {usd(quoted.expected_cost_micro_usd)}"


# --- one job ----------------------------------------------------------------------------------


def view_facts(status: JobStatus) -> list[tuple[str, str]]:
    """Everything of a job's view, what matters first."""
    view = status.view
    if view is None:
        return [
            ("phase", status_phase(status)),
            ("spent", f"{usd(status.cost_micro_usd)} USD"),
            ("holds", placed_text(status.lots)),
            ("why", status.last_explanation or NOTHING),
        ]
    since = f", since {moment(view.since_ns)}" if view.since_ns else ""
    facts = [("phase", f"{phase_text(view)}{since}")]
    if view.flags:
        facts.append(("look", flags_text(view.flags)))
    facts += [("holds", placed_text(view.held))]
    if view.wanted != view.held:
        facts.append(("is to hold", placed_text(view.wanted)))
    facts += [("why", view.why or NOTHING), *_expected_facts(view), *_money_facts(view)]
    facts.append(("happened", _counts_text(view)))
    if view.last_report_ns or view.last_report_wall_ns:
        wall = f" ({moment(view.last_report_wall_ns)} wall)" if view.last_report_wall_ns else ""
        facts.append(("last report", f"{moment(view.last_report_ns)}{wall}"))
    return facts


def _expected_facts(view: JobView) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if view.latest_on_demand_start_ns and is_going_on(view):
        latest = moment(view.latest_on_demand_start_ns)
        facts.append(
            ("slack", f"{lasting(view.slack_s)}; on-demand alone is on time until {latest}")
        )
    for name, outlook in (("expected", expected(view)), ("quoted", view.quoted)):
        if outlook is not None:
            facts.append((name, _outlook_text(outlook)))
    return facts


def _outlook_text(outlook: JobOutlook) -> str:
    p10, p50, p90 = (
        moment(ns) if ns else "never"
        for ns in (outlook.finish_p10_ns, outlook.finish_p50_ns, outlook.finish_p90_ns)
    )
    cost = (
        f"{usd(outlook.cost_p50_micro_usd)} USD "
        f"({usd(outlook.cost_p10_micro_usd)} to {usd(outlook.cost_p90_micro_usd)} in 8 of 10 futures)"
    )
    on_time = probability(outlook.on_time_probability_ppm)
    return f"on time {on_time}; costs {cost}; done by {p50} ({p10} to {p90})"


def _money_facts(view: JobView) -> list[tuple[str, str]]:
    money: JobMoney = view.money
    facts = [("spent", f"{usd(money.spent_micro_usd)} USD by the decisions")]
    if money.billed_micro_usd or money.egress_micro_usd:
        egress = f", of it {usd(money.egress_micro_usd)} USD for copies of its checkpoint"
        facts.append(
            (
                "billed",
                f"{usd(money.billed_micro_usd)} USD by the ledger"
                + (egress if money.egress_micro_usd else ""),
            )
        )
    instead = [
        f"{usd(micro_usd)} USD {rule}"
        for micro_usd, rule in (
            (money.on_demand_micro_usd, "on on-demand alone"),
            (money.msu_micro_usd, "by the MSU rule"),
        )
        if micro_usd
    ]
    if instead:
        facts.append(("otherwise", f"until now it would have cost {', '.join(instead)}"))
    if money.budget_micro_usd:
        facts.append(("budget", f"{usd(money.budget_micro_usd)} USD"))
    return facts


def _counts_text(view: JobView) -> str:
    counts = view.counts
    named = (
        (counts.interruptions, "interruptions", f" ({counts.noticed} with a notice)"),
        (counts.refusals, "refusals", ""),
        (counts.moves, "moves", ""),
        (counts.checkpoints, "checkpoints", ""),
        (counts.failed_checkpoints, "failed checkpoints", ""),
        (counts.starts, "starts", ""),
        (counts.retries, "retries", ""),
    )
    return ", ".join(f"{n} {name}{more}" for n, name, more in named if n) or "nothing yet"


# --- changes ----------------------------------------------------------------------------------


def update_line(update: JobUpdate) -> str:
    """One change of a watched job: market time, wall time, what, where it stands then."""
    status, clock = update.status, update.clock
    view = status.view
    flags = "" if view is None else flags_text(view.flags)
    parts = [
        clock_text(clock),
        f"{(update.change or 'now').replace('_', ' '):<16}",
        f"{status_phase(status):<34}",
        f"{status.progress_ppm / 10_000:5.1f} %",
        f"{usd(spent_micro_usd(status)):>9} USD",
        held_text(status.lots if view is None else view.held),
    ]
    why = status.last_explanation if update.change == "decision" else ""
    if view is not None and (why or not update.change):
        why = view.headline if not update.change else view.why or why
    return "  ".join(part for part in (*parts, flags, why) if part)


def clock_text(clock: ClockReading | None) -> str:
    """Market time, and the wall time at which the log stored that."""
    if clock is None:
        return NOTHING
    wall = f" ({clock_time(clock.wall_ns)} wall)" if clock.wall_ns else ""
    return f"{moment(clock.market_ns)}{wall}{paper_mark(clock)}"
