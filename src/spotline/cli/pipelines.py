"""`spotline pipelines`: hand pipelines over to a running placer, follow them, let them go."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    EXIT_BAD_INPUT,
    EXIT_REFUSED,
    AsJson,
    JobArgument,
    answered,
    fail,
    fail_file,
    only_one,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.pipelines_view import phase_line, print_pipeline, print_pipelines

if TYPE_CHECKING:
    from spotline.adapters.grpc.placer.client import PlacerClient
    from spotline.application.placer.messages import PlacementPhase, PlacementStatus, PlaceReceipt
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

_Tenant = Annotated[str, typer.Option(help="Only this tenant's pipelines.")]

_LARGEST_PAGE = 1000

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

    pipeline = _read(file, as_json=as_json)

    async def run() -> PlaceReceipt:
        async with PlacerClient(address) as client:
            return await client.place(pipeline)

    receipt = answered(run(), as_json=as_json, sent=[(file, pipeline)])
    if as_json:
        print_json(plain(receipt))
        return
    status = receipt.status
    again = "was submitted before; nothing changed; " if receipt.already_submitted else ""
    typer.echo(f"{status.pipeline.job_id}  {again}{phase_line(status)}")
    typer.echo(status.reason)
    typer.echo(f"follow it with: spotline pipelines show {status.pipeline.job_id}", err=True)


@pipelines_app.command("list")
def list_command(
    tenant: _Tenant = "",
    phase: Annotated[
        str | None, typer.Option(help="Only pipelines in this phase, such as running.")
    ] = None,
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where pipelines stand."""
    from spotline.adapters.grpc.placer.client import PlacerClient
    from spotline.application.placer.messages import PlacementQuery

    query = PlacementQuery(
        tenant=tenant, phase=_phase(phase, as_json=as_json), page_size=_LARGEST_PAGE
    )

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
        typer.echo("no pipelines; hand one over with: spotline pipelines submit job.yaml")


@pipelines_app.command()
def show(
    job: JobArgument,
    tenant: _Tenant = "",
    address: PlacerAddress = DEFAULT_PLACER_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show where one pipeline stands, what it cost and why it is there."""
    from spotline.adapters.grpc.placer.client import PlacerClient

    async def run() -> PlacementStatus | None:
        async with PlacerClient(address) as client:
            return await _found(client, job, tenant)

    status = _known(answered(run(), as_json=as_json), job, tenant, as_json=as_json)
    if as_json:
        print_json(plain(status))
    else:
        print_pipeline(status)


@pipelines_app.command()
def release(
    job: JobArgument,
    tenant: _Tenant = "",
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
            f"was {status.phase.value} already; nothing changed" if already else phase_line(status)
        )
        typer.echo(f"{status.pipeline.job_id}  {what}")


# --- input and failure ------------------------------------------------------------------------


def _read(file: Path, *, as_json: bool) -> Pipeline:
    from spotline.adapters.files.mistake import BadFile
    from spotline.adapters.files.pipeline_file import read_pipeline

    try:
        return read_pipeline(file)
    except BadFile as error:
        fail_file(error, as_json=as_json)


def _phase(text: str | None, *, as_json: bool) -> PlacementPhase | None:
    from spotline.application.placer.messages import PlacementPhase

    if text is None:
        return None
    try:
        return PlacementPhase(text)
    except ValueError:
        known = ", ".join(phase.value for phase in PlacementPhase)
        fail(EXIT_BAD_INPUT, f"--phase must be one of {known}, was {text!r}", as_json=as_json)


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
