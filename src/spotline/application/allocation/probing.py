"""What a job expects to gain by asking elsewhere first: probes are weighed where moves are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.allocation.tasks import (
    may_move,
    move_margin_micro_usd,
    moved_task,
    task_view,
)
from spotline.domain.beliefs.probes import (
    PricedProbe,
    ProbeOdds,
    ProbeWorth,
    Prospects,
    expected_gain,
    probe_price,
)
from spotline.domain.market.offering import Quote
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.interface import Outlook, PolicyView
from spotline.domain.policies.params import offer_of, standing_of
from spotline.domain.solvers.value_table import best_value
from spotline.domain.units import PPM


def probe_worths(
    request: AllocateRequest,
    task: JobTask,
    home: PolicyView,
    quotes: Mapping[str, Quote],
    residual: ResidualCapacity,
) -> tuple[ProbeWorth, ...]:
    """What each probe that may be sent, and pays, is worth to a job before it goes anywhere.

    Values are those of this slot, chances those of the next one. A move a slot later forgoes an even
    share of what it brings, for one of the slots that the work still takes.
    """
    asked = [(place, place.probe) for place in task.alternatives if place.probe is not None]
    if not asked or home.outlook is None or not may_move(request, task, home):
        return ()
    stays = value_of(home, home.outlook) + move_margin_micro_usd(home)
    left = home.program.work_quanta - home.state.progress_quanta
    slots = max(1, home.program.slots_on_demand(left, 0))
    found = []
    for place, odds in asked:
        quote = quotes[place.offering_id]
        view = task_view(request, moved_task(task, place, home), quote, residual)
        if view.outlook is None:
            continue
        there = _with_spot(view, view.outlook, odds) - place.move_cost_micro_usd
        late = max(0.0, there - stays) / slots
        prospects = Prospects(
            stays=stays,
            goes=value_there(view, view.outlook, place) - place.move_cost_micro_usd,
            there=there - late,
            missed=missed_at(view) - place.move_cost_micro_usd - late,
        )
        worth = ProbeWorth(
            offering_id=place.offering_id,
            job_id=task.job.job_id,
            instances=task.job.max_instances,
            gain_micro_usd=round(expected_gain(odds, prospects)),
        )
        price = probe_price(quote.spot_price_micro_usd, worth.instances)
        if PricedProbe(worth=worth, price_micro_usd=price).pays:
            found.append(worth)
    return tuple(found)


def value_there(view: PolicyView, outlook: Outlook, place: Alternative) -> float:
    """What moving is worth where spot may be absent with a chance: a job goes on without, then."""
    value = value_of(view, outlook)
    if place.spot_risk_ppm:
        value += (missed_at(view) - value) * place.spot_risk_ppm / PPM
    return value


def missed_at(view: PolicyView) -> float:
    """What a job is worth at a place, with a table, where it finds no spot."""
    if view.outlook is None:
        raise ValueError("a place is valued by its table, it has none")
    down = replace(view.outlook, run_state=0)
    return value_of(replace(view, spot_available=0, outlook=down), down)


def value_of(view: PolicyView, outlook: Outlook) -> float:
    """What the best that a job can do on a view is worth by its table, micro-USD."""
    left = view.program.work_quanta - view.state.progress_quanta
    return best_value(outlook.table, standing_of(view), offer_of(view), left)


def _with_spot(view: PolicyView, outlook: Outlook, odds: ProbeOdds) -> float:
    up = replace(outlook, run_state=odds.run_state)
    spot = max(view.spot_available, view.program.max_instances)
    return value_of(replace(view, spot_available=spot, outlook=up), up)
