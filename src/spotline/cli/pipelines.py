"""`spotline pipelines`: hand pipelines over to a running placer, follow them, let them go."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    EXIT_REFUSED,
    AsJson,
    JobArgument,
    Tenant,
    answered,
    fail,
    fail_file,
    only_one,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.phases import PipelinePhaseWord
from spotline.cli.pipelines_view import (
    change_line,
    path_text,
    phase_line,
    print_pipeline,
    print_pipelines,
)
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.adapters.grpc.placer.client import PlacerClient
    from spotline.application.placer.messages import PlacementStatus, PlaceReceipt
    from spotline.domain.placement.submission import Pipeline

PlacerAddress = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="SPOTLINE_PLACER_ADDRESS",
        help="The placer's gRPC address.",
        metavar="HOST:PORT",
    ),
]
DEFAULT_PLACER_ADDRESS = "127.0.0.1:7072"

_Phase = Annotated[PipelinePhaseWord | None, typer.Option(help="Only pipelines in this phase.")]

_LARGEST_PAGE = 1000
_LOOK_EVERY_S = 1.0

pipelines_app = typer.Typer(
    name="pipelines",
    help="Pipelines across regions, on a running placer.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(pipelines_app, name="pipelines")


@pipelines_app.command()
def submit(
    file: Annotated[
        Path,
        typer.Argument(metavar="JOB.YAML", help="The pipeline; docs/pipeline-file.md shows one."),
    ],
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Hand a pipeline over. Submitting the same request again changes nothing.

    Exits 1 if its deadline cannot be met, with the earliest finish there is.
    """
    from spotline.adapters.grpc.placer.client import PlacerClient

    pipeline = _read(file, address, as_json=as_json)

    async def run() -> PlaceReceipt:
        async with PlacerClient(address) as client:
            return await client.place(pipeline)

    receipt = answered(run(), as_json=as_json, sent=[(file, pipeline)])
    if as_json:
        print_json(plain(receipt))
        return
    status = receipt.status
    again = "was submitted before; nothing changed; " if receipt.already_submitted else ""
    print_line(f"{status.pipeline.job_id}  {again}{phase_line(status)}")
    print_line(status.reason)
    typer.echo(f"follow it with: spotline pipelines watch {status.pipeline.job_id}", err=True)


@pipelines_app.command()
def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A pipeline's id, or how it begins.")
    ] = None,
    tenant: Tenant = "",
    phase: _Phase = None,
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one pipeline stands and what it cost and why, or where all of them stand."""
    if job is None:
        _list(tenant, phase, address, as_json=as_json)
    else:
        _show(job, tenant, address, as_json=as_json)


@pipelines_app.command()
def watch(
    job: JobArgument,
    tenant: Tenant = "",
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Follow a pipeline, a line a change, until it is over.

    Exits 0 if it completed, 1 if it ended in any other way.
    """
    from spotline.adapters.grpc.placer.client import PlacerClient

    async def run() -> PlacementStatus | None:
        before: PlacementStatus | None = None
        async with PlacerClient(address) as client:
            while True:
                found = await _found(client, job, tenant)
                if found is None:
                    return None
                if before is None or _seen(found) != _seen(before):
                    if as_json:
                        print_json(plain(found), indent=None)
                    else:
                        print_line(change_line(found, time.time_ns()))
                before = found
                if found.phase.over:
                    return found
                await asyncio.sleep(_LOOK_EVERY_S)

    last = _known(answered(run(), as_json=as_json), job, tenant, as_json=as_json)
    if last.phase.value != PipelinePhaseWord.COMPLETED.value:
        raise typer.Exit(EXIT_REFUSED)


@pipelines_app.command()
def cancel(
    job: JobArgument,
    tenant: Tenant = "",
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Let a pipeline go; its instances go with the next revision. One that is over stays as it ended."""
    from spotline.adapters.grpc.placer.client import PlacerClient

    async def run() -> tuple[PlacementStatus | None, bool]:
        async with PlacerClient(address) as client:
            status = await _found(client, job, tenant)
            if status is None or status.phase.over:
                return status, True
            pipeline = status.pipeline
            return await client.release(pipeline.job_id, pipeline.tenant), False

    found, already = answered(run(), as_json=as_json)
    status = _known(found, job, tenant, as_json=as_json)
    if as_json:
        print_json({"status": plain(status), "already_over": already})
    else:
        what = (
            f"was over already ({status.phase.value}); nothing changed"
            if already
            else phase_line(status)
        )
        print_line(f"{status.pipeline.job_id}  {what}")


# --- what these commands were called before 0.3.0 ---------------------------------------------

pipelines_app.command("release", hidden=True)(cancel)


@pipelines_app.command("list", hidden=True)
def list_command(
    tenant: Tenant = "",
    phase: _Phase = None,
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where all pipelines stand: `status`."""
    _list(tenant, phase, address, as_json=as_json)


@pipelines_app.command(hidden=True)
def show(
    job: JobArgument,
    tenant: Tenant = "",
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one pipeline stands: `status JOB`."""
    _show(job, tenant, address, as_json=as_json)


def _list(tenant: str, phase: PipelinePhaseWord | None, address: str, *, as_json: bool) -> None:
    from spotline.adapters.grpc.placer.client import PlacerClient
    from spotline.application.placer.messages import PlacementPhase, PlacementQuery

    wanted = None if phase is None else PlacementPhase(phase.value)
    query = PlacementQuery(tenant=tenant, phase=wanted, page_size=_LARGEST_PAGE)

    async def run() -> tuple[PlacementStatus, ...]:
        async with PlacerClient(address) as client:
            return await client.list_all(query)

    found = answered(run(), as_json=as_json)
    if as_json:
        print_json([plain(status) for status in found])
    elif found:
        print_pipelines(found)
    elif tenant or phase:
        typer.echo("no such pipelines")
    else:
        typer.echo("no pipelines; hand one over with: spotline pipelines submit FILE")


def _show(job: str, tenant: str, address: str, *, as_json: bool) -> None:
    from spotline.adapters.grpc.placer.client import PlacerClient

    async def run() -> PlacementStatus | None:
        async with PlacerClient(address) as client:
            return await _found(client, job, tenant)

    status = _known(answered(run(), as_json=as_json), job, tenant, as_json=as_json)
    if as_json:
        print_json(plain(status))
    else:
        print_pipeline(status)


def _seen(status: PlacementStatus) -> tuple[object, ...]:
    """What of a pipeline makes a line when it changes: not its cost, which always does."""
    tenths = 10 * status.iterations_done // max(1, status.pipeline.iterations)
    return status.phase, path_text(status), status.moves, status.finish_ns, tenths


# --- input and failure ------------------------------------------------------------------------


def _read(file: Path, address: str, *, as_json: bool) -> Pipeline:
    """A pipeline file, as the token's tenant's where it does not say whose it is."""
    from spotline.adapters.files.mistake import BadFile
    from spotline.adapters.files.pipeline_file import read_stated_pipeline
    from spotline.cli.job_files import tenant_of_token

    try:
        stated = read_stated_pipeline(file)
        tenant = tenant_of_token(address, as_json=as_json) if stated.needs_tenant else ""
        return stated.of_tenant(tenant)
    except BadFile as error:
        fail_file(error, as_json=as_json)


async def _found(client: PlacerClient, job: str, tenant: str) -> PlacementStatus | None:
    """The only pipeline whose id begins so; None without one."""
    from spotline.application.placer.messages import PlacementQuery

    query = PlacementQuery(tenant=tenant, page_size=_LARGEST_PAGE)
    by_id = {status.pipeline.job_id: status for status in await client.list_all(query)}
    job_id = only_one(job, list(by_id))
    return by_id[job_id] if job_id is not None else None


def _known(
    status: PlacementStatus | None, job: str, tenant: str, *, as_json: bool
) -> PlacementStatus:
    if status is None:
        whose = f" of tenant {tenant}" if tenant else ""
        fail(EXIT_REFUSED, f"there is no pipeline {job}{whose}", as_json=as_json, field="job_id")
    return status
