"""Plans as `spotline plan` and `spotline update` print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from spotline.cli.jobs_view import console, usd

if TYPE_CHECKING:
    from spotline.application.allocator.messages import JointPlan, PlanAnswer, PlanStep
    from spotline.domain.jobs.job import Job


def print_plan(answer: PlanAnswer, *, steps: bool) -> None:
    """What was considered for a job, the chosen option marked."""
    from rich.table import Table

    from spotline.domain.units import utc_iso

    if not answer.feasible:
        typer.secho(answer.infeasible_reason, err=True, fg="red")
        if answer.earliest_feasible_deadline_ns:
            earliest = utc_iso(answer.earliest_feasible_deadline_ns)
            typer.echo(f"ask for {earliest} or later", err=True)
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("policy", no_wrap=True)
    table.add_column("offering", no_wrap=True)
    for name in ("USD", "p10 - p90", "on time", "utility"):
        table.add_column(name, justify="right", no_wrap=True)
    for option in answer.options:
        table.add_row(
            ">" if option.chosen else "",
            option.policy_id,
            option.offering_id,
            usd(option.expected_cost_micro_usd),
            f"{option.cost_p10_micro_usd / 1e6:,.0f} - {option.cost_p90_micro_usd / 1e6:,.0f}",
            f"{option.on_time_probability_ppm / 10_000:.0f} %",
            f"{option.expected_utility_micro_usd / 1e6:,.0f}",
            style="bold green" if option.chosen else None,
        )
    console().print(table)
    for option in answer.options:
        if option.chosen:
            typer.echo(f"> {option.policy_id} on {option.offering_id}: {option.why}")
    if steps:
        chosen = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("slot", "opens", "spot", "on-demand"):
            chosen.add_column(name, justify="right")
        for step in answer.options[0].steps:
            chosen.add_row(
                str(step.slot),
                utc_iso(step.slot_start_ns),
                str(step.lot.spot),
                str(step.lot.on_demand),
            )
        console().print(chosen)


def print_joint_plan(jobs: tuple[Job, ...], joint: JointPlan) -> None:
    """A plan of several jobs: what becomes of each, and what is held slot by slot."""
    from rich.table import Table

    names = [
        job.name or schedule.job_id[:12]
        for job, schedule in zip(jobs, joint.schedules, strict=True)
    ]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("job")
    for name in ("done in slot", "done", "cost USD", "of it egress", "value", "end value"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, schedule in zip(names, joint.schedules, strict=True):
        table.add_row(
            name,
            str(schedule.finished_slot) if schedule.finished_slot >= 0 else "later",
            f"{schedule.progress_ppm / 10_000:.0f} %",
            usd(schedule.cost_micro_usd),
            usd(schedule.egress_micro_usd),
            usd(schedule.value_micro_usd),
            usd(schedule.end_value_micro_usd),
        )
    console().print(table)
    by_slot = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    by_slot.add_column("slot", justify="right")
    for name in names:
        by_slot.add_column(name, overflow="fold")
    held = [{step.slot: step for step in schedule.steps} for schedule in joint.schedules]
    for slot in range(joint.first_slot, joint.first_slot + joint.slots):
        by_slot.add_row(str(slot), *(_step(steps.get(slot)) for steps in held))
    console().print(by_slot)
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
