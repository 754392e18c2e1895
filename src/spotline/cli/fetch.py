"""`spotline fetch`: the model that a job has made."""

# What the command uses is imported inside: it costs more than `--help` should.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_REFUSED,
    Address,
    AsJson,
    JobArgument,
    answered,
    fail,
    whole_job_id,
)
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.application.allocator.messages import JobStatus


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(fetch)


def fetch(
    job: JobArgument,
    to: Annotated[
        Path | None, typer.Option(help="Folder to make; by default the job's id.", metavar="FOLDER")
    ] = None,
    checkpoint: Annotated[
        bool,
        typer.Option("--checkpoint", help="The newest checkpoint, where there is no result yet."),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Fetch the result of a job, and check every byte against what was committed.

    It is read from the job's checkpoint location, which must be reachable from here. Exits 1 where
    there is none.
    """
    from dataclasses import fields

    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.client.fetching import NothingToFetch, fetch_result

    async def run() -> JobStatus:
        async with JobClient(address) as client:
            return await client.get(await whole_job_id(client, job))

    status = answered(run(), as_json=as_json)
    folder = to or Path(status.job.job_id)
    try:
        fetched = fetch_result(status.job, folder, unfinished=checkpoint)
    except (NothingToFetch, OSError) as error:
        fail(EXIT_REFUSED, str(error), as_json=as_json, state=status.state.value)
    if as_json:
        found = {part.name: getattr(fetched, part.name) for part in fields(fetched)}
        print_json(plain({**found, "folder": str(fetched.folder)}))
        return
    for problem in fetched.passed_over:
        print_line(f"passed over: {problem}", err=True, style="yellow")
    print_line(
        f"{folder}  {fetched.kind} checkpoint of step {fetched.step}, "
        f"{fetched.size_bytes:,} bytes, sha256 {fetched.sha256}"
    )
