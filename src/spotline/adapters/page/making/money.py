"""Makes the pages of money: what was spent, the limits it is held to, and every charge."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartSeries, TimeChart
from spotline.adapters.page.formats import seconds_of_ns
from spotline.application.operations.messages import LimitsInForce, SpendUse
from spotline.application.operations.spending import limits_in_force
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.money import BilledCharge
from spotline.application.page.months import month_spend
from spotline.application.page.spend import (
    BY,
    ChargeFilter,
    Cumulated,
    SpendForecast,
    chosen,
    cumulated,
    failed_spend,
    idle_reservations,
    spend_by,
    spend_forecasts,
    steps_of,
)
from spotline.application.page.state import PageState
from spotline.application.page.waterfall import bars, levels_of, scale_of, waterfall
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.application.selector.options import SelectorOptions
from spotline.domain.units import MICRO_USD_PER_USD

ROWS_A_PAGE = 100
_MOST_SHOWN = 20
_KINDS = ("spot", "on_demand", "reserved", "egress")


def money_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """What was spent in a period: by what is asked for, and why it is not what on-demand costs."""
    wanted = _wanted(asked)
    by = asked.text("by") or "tenant"
    if by not in BY:
        raise refused_input(InputProblem(field="by", expected=_either(tuple(BY)), found=repr(by)))
    charges, steps = chosen(state.money, wanted), steps_of(state, wanted)
    closed = state.money.closed
    told = waterfall(charges, steps, state.money.quoted_micro_usd, closed)
    idle = []
    if not asked.tenant:
        last = state.slot - 1 if wanted.last_slot is None else min(wanted.last_slot, state.slot - 1)
        idle = idle_reservations(charges, state.jobs.recent, wanted.first_slot or 0, last)
    failed = failed_spend(charges, steps, closed)
    rows = spend_by(charges, by)
    # A running system knows the limits of now alone; those of a recorded log hold all through it.
    about: About = found.get("about", NOTHING_KNOWN)
    limits = about.limits if asked.at is None else None
    if limits is None and about.selector is not None:
        limits = _limits(state, about.selector)
    return {
        "by": by,
        "ways": tuple(BY),
        "wanted": wanted,
        "names": _names(state),
        "rows": rows[:ROWS_A_PAGE],
        "things": len(rows),
        "total": sum(row.cost_micro_usd for row in rows),
        "charges": len(charges),
        "there_and_then": sum(charge.on_demand_micro_usd for charge in charges),
        "unexplained": [charge for charge in charges if not charge.explained],
        "waterfall": told,
        "bars": bars(told),
        "bars_from": scale_of(levels_of(told))[0],
        "failed": failed[:_MOST_SHOWN],
        "failed_micro_usd": sum(row.cost_micro_usd for row in failed),
        "failed_jobs": len(failed),
        "idle": idle,
        "idle_micro_usd": sum(row.idle_micro_usd for row in idle),
        "chart": _chart(state, cumulated(charges, steps)),
        "month": month_spend(state, _of_tenant(state, wanted.tenant)),
        "limits": limits,
        "most_uses": _MOST_SHOWN,
        "uses": _uses(limits or _limits(state, SelectorOptions()), asked.tenant),
        "settled": sum(wanted.tenant in ("", each.tenant) for each in state.otherwise.settled),
        "forgotten": state.money.forgotten if not asked.tenant else 0,
        "forgotten_micro_usd": state.money.forgotten_micro_usd,
    }


def charges_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """The charges that are asked for, newest first, each with the decision behind it."""
    wanted = _wanted(asked)
    charges = chosen(state.money, wanted)
    charges.reverse()
    pages = max(1, -(-len(charges) // ROWS_A_PAGE))
    page = asked.number("page", least=1) or 1
    first = (min(page, pages) - 1) * ROWS_A_PAGE
    return {
        "wanted": wanted,
        "kinds": _KINDS,
        "names": _names(state),
        "rows": charges[first : first + ROWS_A_PAGE],
        "count": len(charges),
        "total": sum(charge.cost_micro_usd for charge in charges),
        "page": min(page, pages),
        "pages": pages,
        "slot_ns": state.start_ns,
        "query": {k: v for k, v in asked.query.items() if k not in ("page", "at")},
    }


_COLUMNS = (
    *("log_entry", "slot", "slot_start_ns", "job_id", "tenant", "offering_id", "kind"),
    *("instances", "held_s", "price_micro_usd_per_instance_hour", "cost_micro_usd"),
    *("on_demand_micro_usd", "estimated", "command_entry", "decision_slot", "decision_revision"),
)


def charges_csv(state: PageState, asked: PageAsked, found: Model) -> Model:
    """The same charges as a table for spreadsheets, oldest first; money in whole micro-USD."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(_COLUMNS)
    for charge in chosen(state.money, _wanted(asked)):
        table.writerow(_cells(charge, state.start_ns(charge.slot)))
    return {"text": out.getvalue()}


def _cells(charge: BilledCharge, start_ns: int) -> Sequence[str | int]:
    decided = charge.command_slot if charge.decided else ""
    return (
        *(charge.seq, charge.slot, start_ns, _cell(charge.job_id), _cell(charge.tenant)),
        *(_cell(charge.offering_id), charge.kind, charge.instances, charge.held_s),
        *(charge.price_micro_usd, charge.cost_micro_usd, charge.on_demand_micro_usd),
        *(int(charge.estimated), charge.command_seq if charge.command_seq >= 0 else ""),
        *(decided, charge.command_revision if charge.decided else ""),
    )


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _wanted(asked: PageAsked) -> ChargeFilter:
    slot = asked.number("slot")
    kind = asked.text("kind")
    if kind and kind not in _KINDS:
        raise refused_input(InputProblem(field="kind", expected=_either(_KINDS), found=repr(kind)))
    first, last = asked.number("from"), asked.number("to")
    return ChargeFilter(
        tenant=asked.tenant or asked.text("tenant"),
        job_id=asked.text("job"),
        offering_id=asked.text("offering"),
        kind=kind,
        first_slot=slot if slot is not None else first,
        last_slot=slot if slot is not None else last,
        unexplained=asked.text("unexplained") == "yes",
    )


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _names(state: PageState) -> Mapping[str, str]:
    """What jobs are called, by id; those without a name by the beginning of it."""
    return {job_id: status.job.name or job_id[:8] for job_id, status in state.jobs.statuses.items()}


def _chart(state: PageState, points: Sequence[Cumulated]) -> TimeChart:
    return TimeChart(
        name="spend",
        title="Charged, and what the work done by then was quoted on on-demand alone",
        unit="usd",
        at_s=[seconds_of_ns(state.start_ns(point.slot + 1)) for point in points],
        series=[
            ChartSeries(
                name="charged",
                colour="spot",
                values=[point.spent_micro_usd / MICRO_USD_PER_USD for point in points],
                steps=True,
                filled=True,
            ),
            ChartSeries(
                name="on-demand alone",
                colour="on-demand",
                values=[point.on_demand_micro_usd / MICRO_USD_PER_USD for point in points],
                steps=True,
                dashed=True,
            ),
        ],
    )


def _of_tenant(state: PageState, tenant: str) -> Iterator[BilledCharge]:
    return (each for each in state.money.charges() if tenant in ("", each.tenant))


def _limits(state: PageState, options: SelectorOptions) -> LimitsInForce:
    """What options of a selector make of what the log says was spent."""
    held = state.jobs.held_in_pools()
    return limits_in_force(state.jobs.spending, options, state.clock(), held)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UseOfLimits:
    name: str
    spans: Sequence[SpendForecast]


def _uses(limits: LimitsInForce, tenant: str) -> list[_UseOfLimits]:
    """What is used of each limit, in the order they are told; of a tenant its own alone."""
    told: dict[tuple[str, str], list[SpendForecast]] = {}
    for forecast in spend_forecasts(limits.uses):
        use = forecast.use
        if not tenant or use.tenant == tenant:
            told.setdefault((use.what, use.tenant), []).append(forecast)
    return [_UseOfLimits(name=_use_name(spans[0].use), spans=spans) for spans in told.values()]


def _use_name(use: SpendUse) -> str:
    return f"tenant {use.tenant}" if use.tenant else use.what
