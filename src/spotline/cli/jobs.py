"""The commands that hand jobs to a running allocator and follow them."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    EXIT_REFUSED,
    Address,
    AsJson,
    Failure,
    JobArgument,
    answered,
    fail,
    failure_of,
    whole_job_id,
)
from spotline.cli.failures import say
from spotline.cli.job_files import (
    ReadyJob,
    market_ns,
    packed_jobs,
    stated_jobs,
    store_packages,
)
from spotline.cli.jobs_view import (
    console,
    plain,
    print_configuration,
    print_json,
    print_status,
    quote_line,
    status_table,
    update_line,
)

if TYPE_CHECKING:
    from spotline.application.allocator.messages import (
        JobStatus,
        SubmissionReceipt,
    )


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(submit)
    app.command()(status)
    app.command()(watch)
    app.command()(cancel)


# --- commands ---------------------------------------------------------------------------------


def submit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.YAML...", help="Job files (docs/job-file.md); - is standard input."
        ),
    ],
    package_mb: Annotated[
        float,
        typer.Option(
            min=0.001,
            envvar="SPOTLINE_PACKAGE_MB",
            help="The most that a packed working directory may have, 10^6 bytes.",
        ),
    ] = 100.0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Hand jobs over. Submitting the same request again changes nothing.

    What a file that names a model leaves out is filled in, and shown with who says so. All files
    are read and packed before the first is submitted: a mistake in one submits none. A job that
    the allocator refuses keeps no other from being submitted.
    """
    stated = stated_jobs(files, as_json=as_json)
    now_ns = market_ns(stated, address, as_json=as_json)
    with packed_jobs(stated, now_ns, package_mb=package_mb, as_json=as_json) as ready:
        store_packages(ready, as_json=as_json)
        answers = answered(_submitted(ready, address), as_json=as_json)
    said = [_answer_json(job.file, answer) for job, answer in zip(ready, answers, strict=False)]
    if as_json:
        alone = len(files) == 1
        print_json({k: v for k, v in said[0].items() if k != "file"} if alone else said)
    else:
        for job, answer in zip(ready, answers, strict=False):
            _print_answer(job.file, answer, alone=len(files) == 1)
    failed = [answer.exit_code for answer in answers if isinstance(answer, Failure)]
    if failed:
        raise typer.Exit(max(failed))


async def _submitted(
    ready: Sequence[ReadyJob], address: str
) -> list[tuple[SubmissionReceipt, int] | Failure]:
    """What became of each job: its receipt and the most it may cost (0: not by a quote)."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.adapters.grpc.kit.errors import RpcFailed

    answers: list[tuple[SubmissionReceipt, int] | Failure] = []
    async with JobClient(address) as client:
        for job in ready:
            try:
                receipt = await client.submit(job.job)
                most = 0
                if receipt.on_demand_quote_micro_usd:
                    most = (await client.get(receipt.job_id)).job.budget_micro_usd
                answers.append((receipt, most))
            except RpcFailed as error:
                answers.append(failure_of(error, [(job.file, job.job)]))
                if error.unreachable:
                    break
    return answers


def _answer_json(file: Path, answer: tuple[SubmissionReceipt, int] | Failure) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"file": str(file), **answer.as_json()}
    receipt, most = answer
    said: dict[str, Any] = {
        "file": str(file),
        "job_id": receipt.job_id,
        "already_submitted": receipt.already_submitted,
    }
    if receipt.on_demand_quote_micro_usd:
        said["on_demand_quote_micro_usd"] = receipt.on_demand_quote_micro_usd
        said["most_cost_micro_usd"] = most
    if receipt.configuration is not None:
        said["configuration"] = plain(receipt.configuration)
    return said


def _print_answer(
    file: Path, answer: tuple[SubmissionReceipt, int] | Failure, *, alone: bool
) -> None:
    if isinstance(answer, Failure):
        say(answer.message)
        return
    receipt, most = answer
    again = receipt.already_submitted
    state = "was submitted before; nothing changed" if again else "submitted"
    typer.echo(f"{receipt.job_id}  {state}" + ("" if alone else f"  {file}"))
    if receipt.on_demand_quote_micro_usd:
        typer.echo(quote_line(receipt.on_demand_quote_micro_usd, most, by_quote=True))
    if receipt.configuration is not None:
        print_configuration(receipt.configuration)
    typer.echo(f"follow it with: spotline watch {receipt.job_id}", err=True)


def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job id, or how it begins.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Only this tenant's jobs.")] = "",
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state, such as running.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one job stands, or all of them."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import JobQuery, JobState

    wanted = None
    if state is not None:
        try:
            wanted = JobState(state)
        except ValueError:
            known = ", ".join(known_state.value for known_state in JobState)
            fail(EXIT_BAD_INPUT, f"--state must be one of {known}, was {state!r}", as_json=as_json)

    async def run() -> tuple[JobStatus, ...]:
        async with JobClient(address) as client:
            if job is not None:
                return (await client.get(await whole_job_id(client, job)),)
            return await client.list_all(JobQuery(tenant=tenant, state=wanted, page_size=1000))

    found = answered(run(), as_json=as_json)
    if as_json:
        every = [plain(status) for status in found]
        print_json(every[0] if job is not None else every)
    elif job is not None:
        print_status(found[0])
    elif found:
        console().print(status_table(found))
    else:
        typer.echo("no jobs; hand one over with: spotline submit job.yaml")


def watch(job: JobArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show where a job stands and every change, until it is over.

    Exits 0 if it completed, 1 if it ended in any other way.
    """
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import JobState

    async def run() -> JobState:
        state = JobState.PENDING
        async with JobClient(address) as client:
            async for update in client.watch(await whole_job_id(client, job)):
                state = update.status.state
                if as_json:
                    print_json(plain(update), indent=None)
                else:
                    typer.echo(update_line(update))
        return state

    state = answered(run(), as_json=as_json)
    if state not in (JobState.COMPLETED, JobState.COMPLETED_LATE):
        raise typer.Exit(EXIT_REFUSED)


def cancel(job: JobArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Withdraw a job; what it holds is released at once."""
    from spotline.adapters.grpc.allocator.client import JobClient

    async def run() -> tuple[str, bool]:
        async with JobClient(address) as client:
            job_id = await whole_job_id(client, job)
            return job_id, await client.cancel(job_id)

    job_id, already = answered(run(), as_json=as_json)
    if as_json:
        print_json({"job_id": job_id, "already_closed": already})
    else:
        typer.echo(f"{job_id}  {'was over already; nothing changed' if already else 'cancelled'}")
