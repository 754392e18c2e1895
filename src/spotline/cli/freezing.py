"""The commands that stop buying for a while, and let it go on."""

# Imports of what the commands use are inside them: gRPC costs more than `--help` should.

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    Address,
    AsJson,
    answered,
    fail,
    whole_job_id,
)
from spotline.cli.completing import known_jobs
from spotline.cli.jobs_view import plain, print_json

if TYPE_CHECKING:
    from spotline.application.operations.messages import Paused, Resumed
    from spotline.domain.limits.freezes import Freeze, FreezeScope

OfJob = Annotated[
    str | None,
    typer.Option(
        "--job", metavar="JOB", help="A job id, or how it begins.", autocompletion=known_jobs
    ),
]
OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="A tenant.")]
OfOffering = Annotated[
    str | None, typer.Option("--offering", metavar="ID", help="An offering of the market.")
]
OfAccount = Annotated[
    str | None,
    typer.Option("--account", metavar="PROVIDER/ACCOUNT", help="An account of a provider."),
]
OfAll = Annotated[bool, typer.Option("--all", help="Everybody, everywhere.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="What others are told.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(pause)
    app.command()(resume)


def pause(
    job: OfJob = None,
    tenant: OfTenant = None,
    offering: OfOffering = None,
    account: OfAccount = None,
    everything: OfAll = False,
    why: Why = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Buy nothing more for a job, a tenant, an offering, an account, or everybody.

    What is held stays held: `spotline cancel` and `spotline down --release` end it.
    """
    from spotline.adapters.grpc.operations.client import OperationsClient
    from spotline.application.operations.messages import Pause

    stated = {"job": job, "tenant": tenant, "offering": offering, "account": account}
    scope, key = _chosen("pause", stated, everything=everything, as_json=as_json)

    async def run() -> Paused:
        async with OperationsClient(address) as client:
            return await client.pause(
                Pause(
                    request_id=uuid.uuid4().hex,
                    scope=scope,
                    key=await _whole(address, key) if job is not None else key,
                    detail=why,
                )
            )

    paused = answered(run(), as_json=as_json)
    if as_json:
        print_json(plain(paused))
        return
    typer.echo(f"nothing more is bought for {freeze_text(paused.freeze)}")
    typer.echo(f"it goes on with `{paused.freeze.continue_with}`")


def resume(
    job: OfJob = None,
    tenant: OfTenant = None,
    offering: OfOffering = None,
    account: OfAccount = None,
    everything: OfAll = False,
    freeze: Annotated[
        str | None,
        typer.Option(
            "--freeze", metavar="ID", help="Any stop of buying, by its id from a listing."
        ),
    ] = None,
    why: Why = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Go on buying where `spotline pause`, or Spotline itself, has stopped it."""
    from spotline.adapters.grpc.operations.client import OperationsClient
    from spotline.application.operations.messages import Resume

    stated = {"job": job, "tenant": tenant, "offering": offering, "account": account}
    scope, key = None, ""
    if freeze is None:
        scope, key = _chosen("resume", stated, everything=everything, as_json=as_json)
    elif everything or any(value is not None for value in stated.values()):
        fail(EXIT_BAD_INPUT, "resume: expected --freeze alone", as_json=as_json)

    async def run() -> Resumed:
        async with OperationsClient(address) as client:
            return await client.resume(
                Resume(
                    request_id=uuid.uuid4().hex,
                    freeze_id=freeze or "",
                    scope=scope,
                    key=await _whole(address, key) if job is not None else key,
                    detail=why,
                )
            )

    resumed = answered(run(), as_json=as_json)
    if as_json:
        print_json(plain(resumed))
        return
    for ended in resumed.ended:
        typer.echo(f"buying goes on for {freeze_text(ended)}")


def _chosen(
    command: str, stated: dict[str, str | None], *, everything: bool, as_json: bool
) -> tuple[FreezeScope, str]:
    """The one scope that was stated, and its key."""
    from spotline.domain.limits.freezes import FreezeScope

    found = [(FreezeScope(name), key) for name, key in stated.items() if key is not None]
    if everything:
        found.append((FreezeScope.SYSTEM, ""))
    if len(found) != 1:
        options = ", ".join((*(f"--{name}" for name in stated), "--all"))
        many = "none" if not found else f"{len(found)} of them"
        fail(EXIT_BAD_INPUT, f"{command}: expected one of {options}, found {many}", as_json=as_json)
    return found[0]


async def _whole(address: str, prefix: str) -> str:
    from spotline.adapters.grpc.allocator.client import JobClient

    async with JobClient(address) as client:
        return await whole_job_id(client, prefix)


def freeze_text(freeze: Freeze) -> str:
    """For what a stop is, and why, for people."""
    who = f"{freeze.scope.value} {freeze.key}" if freeze.key else "anybody"
    kind = "" if freeze.capacity_type is None else f", {freeze.capacity_type.value} only"
    return f"{who}{kind}: {freeze.reason.value.replace('_', ' ')}, {freeze.detail}"
