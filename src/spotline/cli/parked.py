"""`spotline parked`: entries of the log that a service could not take, and what to do with them."""

# Imports of what the commands use are inside them: gRPC costs more than `--help` should.

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_REFUSED,
    Address,
    Ambiguous,
    AsJson,
    answered,
    check_name,
    fail,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.tables import Column, Kind, print_facts, print_line, print_table

if TYPE_CHECKING:
    from spotline.adapters.grpc.operations.client import OperationsClient
    from spotline.application.operations.messages import ParkedEntry, ParkedQuery

_LARGEST_PAGE = 1000

_Service = Annotated[
    str, typer.Argument(metavar="SERVICE", help="The service that parked it, as listed.")
]
_Event = Annotated[
    str, typer.Argument(metavar="EVENT", help="The id of the event, or how it begins, as listed.")
]
_OnlyService = Annotated[str, typer.Option("--service", metavar="NAME", help="Only this one's.")]
_OnlyJob = Annotated[str, typer.Option("--job", metavar="JOB", help="Only about this job.")]

parked_app = typer.Typer(
    name="parked",
    help="Entries that a service could not take, on a running allocator.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(parked_app, name="parked")


@parked_app.command("list")
def list_parked(
    service: _OnlyService = "",
    job: _OnlyJob = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """List the entries that are parked and that nobody has dealt with, oldest first."""

    async def run() -> list[ParkedEntry]:
        from spotline.adapters.grpc.operations.client import OperationsClient
        from spotline.application.operations.messages import ParkedQuery

        async with OperationsClient(address) as client:
            return await _all(client, ParkedQuery(service=service, job_id=job))

    entries = answered(run(), as_json=as_json)
    if as_json:
        print_json([_as_json(entry) for entry in entries])
        return
    if not entries:
        print_line("nothing is parked")
        return
    print_table(
        (
            Column("service"),
            Column("event", Kind.ID),
            Column("seq", Kind.NUMBER, rank=4),
            Column("kind", rank=2),
            Column("job", Kind.ID, rank=3),
            Column("why", Kind.SENTENCE, rank=1),
        ),
        [
            (
                entry.parked.service,
                entry.parked.event_id,
                str(entry.parked.seq),
                entry.parked.kind,
                entry.parked.job_id,
                entry.parked.error,
            )
            for entry in entries
        ],
    )


@parked_app.command()
def show(
    service: _Service,
    event: _Event,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show a parked entry: why it is parked, and what it holds."""
    entry = answered(_one(address, service, event), as_json=as_json)
    if entry is None:
        _refuse(service, event, as_json=as_json)
    if as_json:
        print_json(_as_json(entry))
        return
    parked = entry.parked
    facts = [
        ("service", parked.service),
        ("event", parked.event_id),
        ("kind", parked.kind),
        ("entry", f"seq {parked.seq}, place {parked.place}"),
        ("job", parked.job_id),
        ("tenant", parked.tenant),
        ("slot", str(parked.slot) if parked.slot >= 0 else ""),
        ("why", f"{parked.error} ({parked.error_type})"),
        ("content", entry.content_json or "no longer in the log, or unreadable"),
        ("next", f"spotline parked retry {parked.service} {parked.event_id}"),
        ("or", f"spotline parked drop {parked.service} {parked.event_id}"),
    ]
    print_facts([(name, said) for name, said in facts if said])


@parked_app.command()
def retry(
    service: _Service,
    event: _Event,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Publish a parked entry again, for the service that parked it; a job may buy again then.

    Nobody else gets it twice. Where it still cannot be taken, it is parked anew.
    """
    from spotline.adapters.grpc.operations.client import OperationsClient

    async def run() -> str | None:
        found = await _one(address, service, event)
        if found is None:
            return None
        async with OperationsClient(address) as client:
            return await client.retry_parked(
                found.parked.service, found.parked.event_id, request_id=uuid.uuid4().hex
            )

    retried_as = answered(run(), as_json=as_json)
    if retried_as is None:
        _refuse(service, event, as_json=as_json)
    if as_json:
        print_json({"service": service, "retried_as": retried_as})
    else:
        print_line(f"published again for {service} as event {retried_as}")


@parked_app.command()
def drop(
    service: _Service,
    event: _Event,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why; is recorded.")] = "",
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Give a parked entry up: the service goes on without it, a job may buy again."""
    from spotline.adapters.grpc.operations.client import OperationsClient

    async def run() -> str | None:
        found = await _one(address, service, event)
        if found is None:
            return None
        async with OperationsClient(address) as client:
            await client.drop_parked(
                found.parked.service,
                found.parked.event_id,
                request_id=uuid.uuid4().hex,
                detail=why,
            )
        return found.parked.event_id

    dropped = answered(run(), as_json=as_json)
    if dropped is None:
        _refuse(service, event, as_json=as_json)
    if as_json:
        print_json({"service": service, "dropped": dropped})
    else:
        print_line(f"{service} goes on without event {dropped}")


async def _all(client: OperationsClient, query: ParkedQuery) -> list[ParkedEntry]:
    query = replace(query, page_size=_LARGEST_PAGE)
    page = await client.parked(query)
    entries = [*page.entries]
    while page.next_page_token:
        page = await client.parked(replace(query, page_token=page.next_page_token))
        entries += page.entries
    return entries


async def _one(address: str, service: str, event: str) -> ParkedEntry | None:
    """The parked entry that is meant, with its content; None where there is none."""
    from spotline.adapters.grpc.operations.client import OperationsClient
    from spotline.application.operations.messages import ParkedQuery

    check_name("SERVICE", service)
    check_name("EVENT", event)
    async with OperationsClient(address) as client:
        entries = await _all(client, ParkedQuery(service=service))
        found = [entry for entry in entries if event and entry.parked.event_id.startswith(event)]
        if len(found) > 1:
            ids = ", ".join(entry.parked.event_id for entry in found[:5])
            raise Ambiguous(f"EVENT: expected more of the id, found {event!r}, which begins {ids}")
        if not found:
            return None
        wanted = found[0].parked
        shown = await _all(
            client, ParkedQuery(service=service, job_id=wanted.job_id, with_content=True)
        )
    return next((entry for entry in shown if entry.parked.event_id == wanted.event_id), None)


def _refuse(service: str, event: str, *, as_json: bool) -> NoReturn:
    fail(
        EXIT_REFUSED,
        f"no entry of {service or 'SERVICE'} whose event begins {event!r} is parked; "
        "`spotline parked list` shows what is",
        as_json=as_json,
    )


def _as_json(entry: ParkedEntry) -> dict[str, Any]:
    content = json.loads(entry.content_json) if entry.content_json else None
    return {**plain(entry.parked), "content": content}
