"""`spotline orphans`: instances that belong to no job, and how a person ends them."""

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
    check_name,
    fail,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.application.operations.messages import Orphans

_Instances = Annotated[
    list[str] | None, typer.Argument(metavar="INSTANCE...", help="Which, by id, as listed.")
]
_All = Annotated[bool, typer.Option("--all", help="All that are listed.")]

orphans_app = typer.Typer(
    name="orphans",
    help="Instances that belong to no job, on a running allocator.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(orphans_app, name="orphans")


@orphans_app.command("list")
def list_orphans(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """List the instances that belong to no job, oldest first, and what is done about them."""

    async def run() -> Orphans:
        from spotline.adapters.grpc.operations.client import OperationsClient

        async with OperationsClient(address) as client:
            return await client.orphans()

    orphans = answered(run(), as_json=as_json).orphans
    if as_json:
        print_json([plain(orphan) for orphan in orphans])
        return
    if not orphans:
        print_line("every instance belongs to a job")
        return
    print_table(
        (
            Column("instance", Kind.ID),
            Column("offering", rank=3),
            Column("job", Kind.ID, rank=2),
            Column("slot", Kind.NUMBER, rank=4),
            Column("what is done", Kind.SENTENCE, rank=1),
        ),
        [
            (
                orphan.instance_id,
                orphan.offering_id,
                orphan.job_id,
                str(orphan.slot),
                orphan.detail,
            )
            for orphan in orphans
        ],
    )


@orphans_app.command()
def reap(
    instances: _Instances = None,
    every: _All = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Have such instances ended: those of this installation, in allowed accounts, without hold tag.

    What may not be ended stays on the list, with the reason.
    """
    if bool(instances) == every:
        fail(
            EXIT_BAD_INPUT,
            "INSTANCE: expected ids, or --all, found neither or both",
            as_json=as_json,
        )

    async def run() -> tuple[str, ...]:
        from spotline.adapters.grpc.operations.client import OperationsClient

        for instance in instances or ():
            check_name("INSTANCE", instance)
        async with OperationsClient(address) as client:
            return await client.reap_orphans(tuple(instances or ()), request_id=uuid.uuid4().hex)

    asked = answered(run(), as_json=as_json)
    if as_json:
        print_json({"instance_ids": list(asked)})
    elif asked:
        print_line(f"asked to end: {', '.join(asked)}")
    else:
        print_line("every instance belongs to a job")
