"""Plans as `spotline plan` and `spotline update` print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from spotline.cli.failures import say
from spotline.cli.tables import Column, Kind, print_line, print_table
from spotline.cli.wording import NOTHING, moment, probability, usd

if TYPE_CHECKING:
    from spotline.application.allocator.messages import DeadlineOutlook, PlanAnswer, PlanStep
    from spotline.domain.jobs.job import Job
    from spotline.domain.jobs.outlook import JobOutlook, OutlookOffering, OutlookPolicy


_OFFERINGS = (
    Column("begins on", Kind.ID),
    Column("of the futures", Kind.NUMBER, 1),
    Column("mean USD", Kind.NUMBER),
    Column("on time", Kind.NUMBER),
    Column("moves", Kind.NUMBER, 2),
)
_POLICIES = (
    Column("policy", Kind.ID),
    Column("drawn", Kind.NUMBER, 1),
    Column("mean USD", Kind.NUMBER),
    Column("on time", Kind.NUMBER),
    Column("utility USD", Kind.NUMBER, 2),
)
_CURVE = (
    Column("deadline", Kind.ID),
    Column("on time", Kind.NUMBER),
    Column("p10 USD", Kind.NUMBER, 1),
    Column("median USD", Kind.NUMBER),
    Column("p90 USD", Kind.NUMBER, 1),
    Column("done (median)", Kind.ID, 2),
)
_OPTIONS = (
    Column("", Kind.ID),
    Column("policy", Kind.ID),
    Column("offering", Kind.ID),
    Column("mean USD", Kind.NUMBER),
    Column("p10 - p90", Kind.NUMBER, 1),
    Column("on time", Kind.NUMBER),
    Column("utility USD", Kind.NUMBER, 2),
)


def outlook_sentence(
    outlook: JobOutlook, *, deadline_ns: int = 0, on_demand_micro_usd: int = 0
) -> str:
    """What is expected of a job, in a sentence; without its deadline when half the futures are done."""
    by = f"by {moment(deadline_ns)}" if deadline_ns else "on time"
    low, high = usd(outlook.cost_p10_micro_usd), usd(outlook.cost_p90_micro_usd)
    said = (
        f"{by} with probability {probability(outlook.on_time_probability_ppm)}, for {low} to {high} "
        f"USD, most likely {usd(outlook.cost_p50_micro_usd)}"
    )
    return f"{said}; on demand {usd(on_demand_micro_usd)}" if on_demand_micro_usd else said


def print_plan(
    answer: PlanAnswer, *, deadline_ns: int, steps: bool = False, every: bool = False
) -> None:
    """What is expected of a job: a sentence, where it would begin, and what was asked for besides."""
    if not answer.feasible:
        say(answer.infeasible_reason)
        if answer.earliest_feasible_deadline_ns:
            print_line(f"ask for {moment(answer.earliest_feasible_deadline_ns)} or later", err=True)
    elif answer.outlook is not None:
        _print_outlook(answer, answer.outlook, deadline_ns, every=every)
    if answer.curve:
        print_line()
        print_table(_CURVE, [_curve_row(point) for point in answer.curve])
    if answer.options:
        print_line()
        _print_options(answer, steps=steps)


def _print_outlook(
    answer: PlanAnswer, outlook: JobOutlook, deadline_ns: int, *, every: bool
) -> None:
    print_line(
        outlook_sentence(
            outlook,
            deadline_ns=deadline_ns,
            on_demand_micro_usd=answer.on_demand_quote_micro_usd,
        ),
        style="bold",
    )
    if not answer.likely_enough:
        print_line("less likely to be on time than asked for", err=True, style="red")
    print_line(
        f"in {outlook.futures} sampled futures, from slot {outlook.slot} on; done "
        f"{_done(outlook.finish_p10_ns)} to {_done(outlook.finish_p90_ns)}, half of them by "
        f"{_done(outlook.finish_p50_ns)}"
    )
    print_line()
    print_table(_OFFERINGS, [_offering_row(row) for row in outlook.offerings])
    if every:
        print_line()
        print_table(_POLICIES, [_policy_row(row) for row in outlook.policies])


def _done(ns: int) -> str:
    return moment(ns) if ns else "never"


def _offering_row(row: OutlookOffering) -> tuple[str, ...]:
    return (
        row.offering_id,
        probability(row.share_ppm),
        usd(row.expected_cost_micro_usd),
        probability(row.on_time_probability_ppm),
        f"{row.moves_ppm / 1e6:.1f}",
    )


def _policy_row(row: OutlookPolicy) -> tuple[str, ...]:
    return (
        row.policy_id,
        probability(row.weight_ppm),
        usd(row.expected_cost_micro_usd),
        probability(row.on_time_probability_ppm),
        usd(row.expected_utility_micro_usd),
    )


def _curve_row(point: DeadlineOutlook) -> tuple[str, ...]:
    outlook = point.outlook
    if outlook is None:
        return (moment(point.deadline_ns), "cannot be met", NOTHING, NOTHING, NOTHING, NOTHING)
    return (
        moment(point.deadline_ns),
        probability(outlook.on_time_probability_ppm),
        usd(outlook.cost_p10_micro_usd),
        usd(outlook.cost_p50_micro_usd),
        usd(outlook.cost_p90_micro_usd),
        _done(outlook.finish_p50_ns),
    )


def _print_options(answer: PlanAnswer, *, steps: bool) -> None:
    """What the policies that were named would do, for a job that keeps them and never moves."""
    print_line("the policies named, each kept to its end, without moves:")
    rows = [
        (
            ">" if option.chosen else "",
            option.policy_id,
            option.offering_id,
            usd(option.expected_cost_micro_usd),
            f"{usd(option.cost_p10_micro_usd)} - {usd(option.cost_p90_micro_usd)}",
            probability(option.on_time_probability_ppm),
            usd(option.expected_utility_micro_usd),
        )
        for option in answer.options
    ]
    print_table(_OPTIONS, rows)
    best = answer.options[0]
    print_line(f"> {best.policy_id} on {best.offering_id}: {best.why}")
    if steps:
        columns = (
            Column("slot", Kind.NUMBER),
            Column("opens", Kind.ID),
            Column("spot", Kind.NUMBER),
            Column("on-demand", Kind.NUMBER),
        )
        print_table(
            columns,
            [
                (
                    str(step.slot),
                    moment(step.slot_start_ns),
                    str(step.lot.spot),
                    str(step.lot.on_demand),
                )
                for step in best.steps
            ],
        )


def print_joint_plan(jobs: tuple[Job, ...], answer: PlanAnswer) -> None:
    """A plan of several jobs: what becomes of each, and what is held slot by slot."""
    joint = answer.joint
    if joint is None:
        return
    cost = sum(schedule.cost_micro_usd for schedule in joint.schedules)
    print_line(
        f"all of {len(jobs)} on time with probability "
        f"{probability(answer.all_on_time_probability_ppm)}; planned cost {usd(cost)} USD, up to "
        f"slot {joint.first_slot + joint.slots - 1}",
        style="bold",
    )
    if not answer.likely_enough:
        print_line("less likely to be on time than asked for", err=True, style="red")
    names = [
        job.name or schedule.job_id[:12]
        for job, schedule in zip(jobs, joint.schedules, strict=True)
    ]
    columns = (
        Column("job", Kind.ID),
        Column("done in slot", Kind.NUMBER),
        Column("done", Kind.NUMBER, 1),
        Column("cost USD", Kind.NUMBER),
        Column("of it egress", Kind.NUMBER, 4),
        Column("value", Kind.NUMBER, 2),
        Column("end value", Kind.NUMBER, 3),
    )
    rows = [
        (
            name,
            str(schedule.finished_slot) if schedule.finished_slot >= 0 else "later",
            f"{schedule.progress_ppm / 10_000:.0f} %",
            usd(schedule.cost_micro_usd),
            usd(schedule.egress_micro_usd),
            usd(schedule.value_micro_usd),
            usd(schedule.end_value_micro_usd),
        )
        for name, schedule in zip(names, joint.schedules, strict=True)
    ]
    print_table(columns, rows)
    print_line()
    held = [{step.slot: step for step in schedule.steps} for schedule in joint.schedules]
    slots = range(joint.first_slot, joint.first_slot + joint.slots)
    print_table(
        (Column("slot", Kind.NUMBER), *(Column(name, Kind.ID) for name in names)),
        [(str(slot), *(_step(steps.get(slot)) for steps in held)) for slot in slots],
    )
    utility = usd(joint.utility_micro_usd)
    if joint.proven:
        typer.echo(f"utility {utility} USD; no plan of these slots has more")
    else:
        upper = usd(joint.upper_utility_micro_usd)
        typer.echo(f"utility {utility} USD; no plan of these slots has more than {upper} USD")
    typer.echo("nothing was bought; hand them over with: spotline submit", err=True)


def _step(step: PlanStep | None) -> str:
    if step is None:
        return "-"
    counts = ((step.lot.spot, "spot"), (step.lot.on_demand, "on-demand"))
    held = " + ".join(f"{count} {kind}" for count, kind in counts if count)
    return f"{held} on {step.lot.offering_id}"
