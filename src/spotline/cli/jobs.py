"""The commands that hand jobs to a running allocator and follow them."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
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
    Tenant,
    answered,
    fail,
    failure_of,
    whole_job_id,
)
from spotline.cli.completing import known_jobs
from spotline.cli.failures import say
from spotline.cli.job_files import (
    ReadyJob,
    market_ns,
    packed_jobs,
    stated_jobs,
    store_packages,
)
from spotline.cli.jobs_view import (
    plain,
    print_configuration,
    print_json,
    print_status,
    quote_line,
)
from spotline.cli.likelihood import OnTime, least_on_time_ppm, submitted_if_likely
from spotline.cli.listing import listed_jobs
from spotline.cli.phases import JobPhaseWord
from spotline.cli.plan_view import outlook_sentence
from spotline.cli.status_view import JobBoard, board_json, print_board
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.application.allocator.messages import (
        JobStatus,
        SubmissionReceipt,
    )
    from spotline.application.operations.messages import SystemStatus


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
    on_time: OnTime = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Hand them over however likely they are to be late.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Hand jobs over. Submitting the same request again changes nothing.

    A job that is less likely to be on time than asked for (see `spotline plan`) is refused: exit 1.
    What a file that names a model leaves out is filled in, and shown with who says so. All files
    are read and packed before the first is submitted: a mistake in one submits none. A job that
    the allocator refuses keeps no other from being submitted.
    """
    stated = stated_jobs(files, as_json=as_json, address=address)
    now_ns = market_ns(stated, address, as_json=as_json)
    with packed_jobs(stated, now_ns, package_mb=package_mb, as_json=as_json) as ready:
        store_packages(ready, as_json=as_json)
        submitting = _submitted(ready, address, on_time=on_time, anyway=anyway)
        answers = answered(submitting, as_json=as_json)
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
    ready: Sequence[ReadyJob], address: str, *, on_time: float | None, anyway: bool
) -> list[tuple[SubmissionReceipt, int] | Failure]:
    """What became of each job: its receipt and the most it may cost (0: not by a quote)."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.adapters.grpc.kit.errors import RpcFailed

    answers: list[tuple[SubmissionReceipt, int] | Failure] = []
    async with JobClient(address) as client:
        for job in ready:
            try:
                least_ppm = 0 if anyway else least_on_time_ppm(job.job, on_time)
                receipt = await submitted_if_likely(
                    client, job.job, least_ppm, certainly=on_time is not None
                )
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
    if receipt.outlook is not None:
        said["outlook"] = plain(receipt.outlook)
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
    if receipt.outlook is not None:
        print_line(outlook_sentence(receipt.outlook), err=True)
    if receipt.configuration is not None:
        print_configuration(receipt.configuration)
    typer.echo(f"follow it with: spotline watch {receipt.job_id}", err=True)


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="A job id, or how it begins.", autocompletion=known_jobs
        ),
    ] = None,
    tenant: Tenant = "",
    phase: Annotated[JobPhaseWord | None, typer.Option(help="Only jobs in this phase.")] = None,
    state: Annotated[str | None, typer.Option(hidden=True)] = None,
    system: Annotated[
        bool,
        typer.Option(
            "--system", help="Whether Spotline itself is well; exit code 1 where it is not."
        ),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one job stands, or all of them under what time it is and what they hold."""
    from spotline.adapters.grpc.allocator.client import JobClient

    if system:
        if job is not None or tenant or phase is not None or state is not None:
            said = "--system: expected alone, found with JOB, --tenant or --phase"
            fail(EXIT_BAD_INPUT, said, as_json=as_json, field="--system")
        _show_system(address, as_json=as_json)
        return
    wanted = phase if state is None else _phase_of(state, as_json=as_json)

    async def run_one(prefix: str) -> JobStatus:
        async with JobClient(address) as client:
            return await client.get(await whole_job_id(client, prefix))

    async def run_all() -> JobBoard:
        async with JobClient(address) as client:
            return await listed_jobs(client, tenant)

    if job is not None:
        found = answered(run_one(job), as_json=as_json)
        if as_json:
            print_json(plain(found))
        else:
            print_status(found)
        return
    board = answered(run_all(), as_json=as_json)
    if wanted is not None:
        statuses = tuple(status for status in board.statuses if _is_in(status, wanted))
        board = replace(board, statuses=statuses)
    if as_json:
        print_json(board_json(board))
        return
    print_board(board)
    if not board.statuses:
        narrowed = tenant or wanted is not None
        none = "no such jobs" if narrowed else "no jobs; hand one over with: spotline submit FILE"
        typer.echo(none)


def _show_system(address: str, *, as_json: bool) -> None:
    """Show how every service is; ends with exit code 1 where anything is not well."""
    from spotline.adapters.grpc.operations.client import OperationsClient
    from spotline.cli.system_view import print_system

    async def asked() -> SystemStatus:
        async with OperationsClient(address) as client:
            return await client.status()

    told = answered(asked(), as_json=as_json)
    if as_json:
        print_json(plain(told))
    else:
        print_system(told)
    if not told.healthy:
        raise typer.Exit(EXIT_REFUSED)


def _phase_of(state: str, *, as_json: bool) -> JobPhaseWord:
    """The phase that an older spelling of the option means."""
    older = {"pending": "waiting", "completed_late": "late", "missed_deadline": "missed"}
    word = older.get(state, "missed" if state == "expired" else state)
    known = {known_phase.value: known_phase for known_phase in JobPhaseWord}
    if word not in known:
        said = f"--phase: expected one of {', '.join(known)}, found {state!r}"
        fail(EXIT_BAD_INPUT, said, as_json=as_json, field="--phase")
    return known[word]


def _is_in(status: JobStatus, phase: JobPhaseWord) -> bool:
    if status.view is not None:
        return status.view.phase.value == phase.value
    return status.state.value == phase.value


def watch(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="A job id, or how it begins.", autocompletion=known_jobs
        ),
    ] = None,
    tenant: Tenant = "",
    as_lines: Annotated[
        bool, typer.Option("--plain", help="Lines instead of a live view, in a terminal too.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Follow a job until it is over, or all jobs: a live view in a terminal, else a line a change.

    With a job it exits 0 if it completed, 1 if it ended in any other way.
    """
    from spotline.cli.watching import is_done, watch_all, watch_job

    if not (as_lines or as_json) and in_terminal():
        from spotline.cli.live.run import watch_live

        answered(watch_live(address, job, tenant), as_json=False)
        return
    if job is None:
        answered(watch_all(address, tenant, as_json=as_json), as_json=as_json)
    elif not is_done(answered(watch_job(address, job, as_json=as_json), as_json=as_json)):
        raise typer.Exit(EXIT_REFUSED)


def in_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def cancel(job: JobArgument, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Withdraw a job, and say what became of it and of what it held."""
    from spotline.cli.cancelling import cancelled_job

    found = answered(cancelled_job(address, job), as_json=as_json)
    if as_json:
        print_json(found.as_json())
    else:
        print_line(f"{found.job_id}  {found.said}")
