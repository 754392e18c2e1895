"""The commands that hand jobs to a running allocator and follow them."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from spotline.adapters.grpc.errors import RpcFailed
    from spotline.application.requests import (
        JobStatus,
        JobUpdate,
        JointPlan,
        PlanAnswer,
        PlanStep,
        QuotaLimit,
    )
    from spotline.domain.jobs.job import Job

EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2

# In micro-USD it must fit a message's 64 bits.
_MOST_USD = 1e12

ResultT = TypeVar("ResultT")

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="SPOTLINE_ALLOCATOR_ADDRESS",
        help="The allocator's gRPC address.",
        metavar="HOST:PORT",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job id, or how it begins.")]
JobFileArgument = Annotated[
    Path, typer.Argument(metavar="JOB.YAML", help="The job file; docs/job-file.md shows one.")
]

_DEFAULT_ADDRESS = "127.0.0.1:7070"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(submit)
    app.command()(status)
    app.command()(watch)
    app.command()(cancel)
    app.command()(plan)


# --- commands ---------------------------------------------------------------------------------


def submit(
    file: JobFileArgument, address: Address = _DEFAULT_ADDRESS, as_json: AsJson = False
) -> None:
    """Hand a job over. Submitting the same request again changes nothing."""
    from spotline.adapters.grpc.client import JobClient

    job = _read(file, as_json=as_json)

    async def run() -> tuple[str, bool]:
        async with JobClient(address) as client:
            receipt = await client.submit(job)
            return receipt.job_id, receipt.already_submitted

    job_id, already = _run(run(), as_json=as_json)
    if as_json:
        _print_json({"job_id": job_id, "already_submitted": already})
        return
    state = "was submitted before; nothing changed" if already else "submitted"
    typer.echo(f"{job_id}  {state}")
    typer.echo(f"follow it with: spotline watch {job_id}", err=True)


def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job id, or how it begins.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Only this tenant's jobs.")] = "",
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state, such as running.")
    ] = None,
    address: Address = _DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one job stands, or all of them."""
    from spotline.adapters.grpc.client import JobClient
    from spotline.application.requests import JobQuery, JobState

    wanted = None
    if state is not None:
        try:
            wanted = JobState(state)
        except ValueError:
            known = ", ".join(one.value for one in JobState)
            _fail(EXIT_BAD_INPUT, f"--state must be one of {known}, was {state!r}", as_json=as_json)

    async def run() -> tuple[JobStatus, ...]:
        async with JobClient(address) as client:
            if job is not None:
                return (await client.get(await _job_id(client, job)),)
            return await client.list_all(JobQuery(tenant=tenant, state=wanted, page_size=1000))

    found = _run(run(), as_json=as_json)
    if as_json:
        plain = [_plain(one) for one in found]
        _print_json(plain[0] if job is not None else plain)
    elif job is not None:
        _print_status(found[0])
    elif found:
        _console().print(_status_table(found))
    else:
        typer.echo("no jobs; hand one over with: spotline submit job.yaml")


def watch(job: JobArgument, address: Address = _DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show where a job stands and every change, until it is over.

    Exits 0 if it completed, 1 if it ended in any other way.
    """
    from spotline.adapters.grpc.client import JobClient
    from spotline.application.requests import JobState

    async def run() -> JobState:
        state = JobState.PENDING
        async with JobClient(address) as client:
            async for update in client.watch(await _job_id(client, job)):
                state = update.status.state
                if as_json:
                    _print_json(_plain(update), indent=None)
                else:
                    typer.echo(_update_line(update))
        return state

    state = _run(run(), as_json=as_json)
    if state not in (JobState.COMPLETED, JobState.COMPLETED_LATE):
        raise typer.Exit(EXIT_REFUSED)


def cancel(job: JobArgument, address: Address = _DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Withdraw a job; what it holds is released when the next slot opens."""
    from spotline.adapters.grpc.client import JobClient

    async def run() -> tuple[str, bool]:
        async with JobClient(address) as client:
            job_id = await _job_id(client, job)
            return job_id, await client.cancel(job_id)

    job_id, already = _run(run(), as_json=as_json)
    if as_json:
        _print_json({"job_id": job_id, "already_closed": already})
    else:
        typer.echo(f"{job_id}  {'was over already; nothing changed' if already else 'cancelled'}")


def plan(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="JOB.YAML...", help="Job files; several are planned together."),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Consider this policy; repeat it for several. Default: a small set."),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show the chosen option by slot.")] = False,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            help="Plan together, holding at most N instances of a quota pool at a time.",
            metavar="POOL=N",
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Plan together, spending at most this, USD per hour; 0: any.")
    ] = 0.0,
    egress: Annotated[
        float, typer.Option(help="Copying a checkpoint between regions, USD per GB.")
    ] = 0.0,
    address: Address = _DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what could be done with a job, with cost and probability. Nothing is bought.

    Several jobs, or limits on what is held and spent, are planned together over the slots that are
    forecast. Exits 1 if a deadline cannot be met.
    """
    from spotline.adapters.grpc.client import JobClient
    from spotline.application.requests import PlanRequest
    from spotline.domain.units import micro_usd_from_usd

    jobs = tuple(_read(file, as_json=as_json) for file in files)
    for name, usd in (("--budget", budget), ("--egress", egress)):
        if not 0 <= usd < _MOST_USD:
            _fail(EXIT_BAD_INPUT, f"{name} must be >= 0, was {usd:g}", as_json=as_json)
    if len(jobs) > 1 or quota or budget:
        request = PlanRequest(
            jobs=jobs,
            policy_ids=tuple(policy or ()),
            quotas=tuple(_quota(one, as_json=as_json) for one in quota or ()),
            budget_micro_usd_per_hour=micro_usd_from_usd(budget),
            egress_micro_usd_per_gb=micro_usd_from_usd(egress),
        )
    else:
        request = PlanRequest(job=jobs[0], policy_ids=tuple(policy or ()))

    async def run() -> PlanAnswer:
        async with JobClient(address) as client:
            return await client.plan(request)

    answer = _run(run(), as_json=as_json)
    if as_json:
        _print_json(_plain(answer))
    elif answer.joint is not None:
        _print_joint_plan(jobs, answer.joint)
    else:
        _print_plan(answer, steps=steps)
    if not answer.feasible:
        raise typer.Exit(EXIT_REFUSED)


# --- input and failure ------------------------------------------------------------------------


def _read(file: Path, *, as_json: bool) -> Job:
    from spotline.cli.jobfile import JobFileError, read_job_file

    try:
        return read_job_file(file)
    except JobFileError as error:
        problems = [_plain(problem) for problem in error.problems]
        _fail(EXIT_BAD_INPUT, str(error), as_json=as_json, problems=problems)


def _quota(text: str, *, as_json: bool) -> QuotaLimit:
    from spotline.application.requests import QuotaLimit

    pool, _, count = text.rpartition("=")
    if not pool or not count.isdecimal():
        _fail(EXIT_BAD_INPUT, f"--quota must be POOL=N, was {text!r}", as_json=as_json)
    return QuotaLimit(quota_pool=pool, instances=int(count))


async def _job_id(client: Any, prefix: str) -> str:
    """The only job whose id begins with `prefix`; a whole id needs no look-up."""
    if len(prefix) >= 32:
        return prefix
    found = [one.job.job_id for one in await client.list_all()]
    matching = [job_id for job_id in found if job_id.startswith(prefix)]
    if len(matching) > 1:
        shown = ", ".join(matching[:5])
        raise _Ambiguous(
            f"{prefix} begins {len(matching)} job ids ({shown}, ...); write more of it"
        )
    # Unknown: let the allocator say so.
    return matching[0] if matching else prefix


class _Ambiguous(Exception):
    pass


def _run(work: Coroutine[Any, Any, ResultT], *, as_json: bool) -> ResultT:
    from spotline.adapters.grpc.errors import RpcFailed

    try:
        return asyncio.run(work)
    except RpcFailed as error:
        _fail_rpc(error, as_json=as_json)
    except _Ambiguous as error:
        _fail(EXIT_BAD_INPUT, str(error), as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail_rpc(error: RpcFailed, *, as_json: bool) -> NoReturn:
    message = str(error)
    if error.unreachable:
        message += "\nstart one with `spotline up`, or name another with --address"
    wrong = error.unreachable or error.bad_input
    _fail(
        EXIT_BAD_INPUT if wrong else EXIT_REFUSED,
        message,
        as_json=as_json,
        code=error.code,
        field=error.field,
        earliest_feasible_deadline=error.earliest_feasible_deadline,
    )


def _fail(exit_code: int, message: str, *, as_json: bool, **details: Any) -> NoReturn:
    if as_json:
        _print_json({"error": message, **{key: value for key, value in details.items() if value}})
    else:
        typer.secho(message, err=True, fg="red")
    raise typer.Exit(exit_code)


# --- output -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A domain value as JSON has it: dataclasses as objects, enums as their values."""
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


def _print_json(value: Any, *, indent: int | None = 2) -> None:
    import json

    typer.echo(json.dumps(value, indent=indent))


def _console() -> Console:
    from rich.console import Console

    return Console()


def _usd(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.2f}"


def _lots(status: JobStatus) -> str:
    parts = []
    for lot in status.lots:
        if lot.spot:
            parts.append(f"{lot.spot} spot")
        if lot.on_demand:
            parts.append(f"{lot.on_demand} on-demand")
    return " + ".join(parts) or "-"


def _status_table(found: tuple[JobStatus, ...]) -> Table:
    from rich.table import Table

    from spotline.domain.units import utc_iso

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("job", "tenant", "name", "state", "policy"):
        table.add_column(name, overflow="fold")
    for name in ("done", "cost USD"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    table.add_column("deadline")
    for one in found:
        table.add_row(
            one.job.job_id[:12],
            one.job.tenant,
            one.job.name,
            one.state.value,
            one.policy_id or "-",
            f"{one.progress_ppm / 10_000:.0f} %",
            _usd(one.cost_micro_usd),
            _lots(one),
            f"{utc_iso(one.job.deadline.at_ns)} {one.job.deadline.kind.value}",
        )
    return table


def _print_status(one: JobStatus) -> None:
    from rich.table import Table

    from spotline.domain.units import utc_iso

    table = Table(box=None, show_header=False, pad_edge=False)
    rows = (
        ("job", one.job.job_id),
        ("name", one.job.name or "-"),
        ("tenant", one.job.tenant),
        ("state", one.state.value),
        ("work", f"{one.job.work.amount:g} {one.job.work.unit}"),
        ("done", f"{one.progress_ppm / 10_000:.1f} %"),
        ("deadline", f"{utc_iso(one.job.deadline.at_ns)} ({one.job.deadline.kind.value})"),
        ("value", f"{_usd(one.job.value_micro_usd)} USD"),
        ("cost so far", f"{_usd(one.cost_micro_usd)} USD"),
        ("policy", one.policy_id or "-"),
        ("offering", one.offering_id or "-"),
        ("holds", _lots(one)),
        ("why", one.last_explanation or "-"),
    )
    for name, value in rows:
        table.add_row(name, value)
    _console().print(table)


def _update_line(update: JobUpdate) -> str:
    one = update.status
    what = update.change or "now"
    why = f"  {one.last_explanation}" if update.change == "decision" else ""
    return (
        f"slot {one.last_slot:>4}  {what:<13} {one.state.value:<15} "
        f"{one.progress_ppm / 10_000:5.1f} %  {_usd(one.cost_micro_usd):>10} USD  {_lots(one)}{why}"
    )


def _print_plan(answer: PlanAnswer, *, steps: bool) -> None:
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
            _usd(option.expected_cost_micro_usd),
            f"{option.cost_p10_micro_usd / 1e6:,.0f} - {option.cost_p90_micro_usd / 1e6:,.0f}",
            f"{option.on_time_probability_ppm / 10_000:.0f} %",
            f"{option.expected_utility_micro_usd / 1e6:,.0f}",
            style="bold green" if option.chosen else None,
        )
    _console().print(table)
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
        _console().print(chosen)
    typer.echo("nothing was bought; hand it over with: spotline submit", err=True)


def _print_joint_plan(jobs: tuple[Job, ...], joint: JointPlan) -> None:
    from rich.table import Table

    names = [
        job.name or schedule.job_id[:12]
        for job, schedule in zip(jobs, joint.schedules, strict=True)
    ]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("job")
    for name in ("done in slot", "done", "cost USD", "of it egress", "value", "end value"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in zip(names, joint.schedules, strict=True):
        table.add_row(
            name,
            str(one.finished_slot) if one.finished_slot >= 0 else "later",
            f"{one.progress_ppm / 10_000:.0f} %",
            _usd(one.cost_micro_usd),
            _usd(one.egress_micro_usd),
            _usd(one.value_micro_usd),
            _usd(one.end_value_micro_usd),
        )
    _console().print(table)
    by_slot = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    by_slot.add_column("slot", justify="right")
    for name in names:
        by_slot.add_column(name, overflow="fold")
    held = [{step.slot: step for step in one.steps} for one in joint.schedules]
    for slot in range(joint.first_slot, joint.first_slot + joint.slots):
        by_slot.add_row(str(slot), *(_step(steps.get(slot)) for steps in held))
    _console().print(by_slot)
    utility = _usd(joint.utility_micro_usd)
    if joint.proven:
        typer.echo(f"utility {utility} USD; no plan of these slots has more")
    else:
        upper = _usd(joint.upper_utility_micro_usd)
        typer.echo(f"utility {utility} USD; no plan of these slots has more than {upper} USD")
    typer.echo("nothing was bought; hand them over with: spotline submit", err=True)


def _step(step: PlanStep | None) -> str:
    if step is None:
        return "-"
    counts = ((step.lot.spot, "spot"), (step.lot.on_demand, "on-demand"))
    held = " + ".join(f"{count} {kind}" for count, kind in counts if count)
    return f"{held} on {step.lot.offering_id}"
