"""The commands that show what a job's program wrote, and what has happened to a job."""

# Imports of what the commands use are inside them: gRPC and tables cost more than `--help` should.

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import DEFAULT_ADDRESS, Address, AsJson, JobArgument, answered, whole_job_id
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.tables import escaped
from spotline.cli.wording import clock_time, moment
from spotline.domain.modes import Mode

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.happenings import JobHappening
    from spotline.application.allocator.output import OutputChunk

Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Stay, and show what comes until the job is over.")
]

_MOST_LAST = 1_000_000
# What a terminal would obey: control sequences, and control characters but tab and newline.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A bar that is drawn again and again shows its last state.
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)", re.MULTILINE)
_SEPARATORS = str.maketrans({"\u2028": "\n", "\u2029": "\n"})


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(logs)
    app.command()(events)


def logs(
    job: JobArgument,
    follow: Follow = False,
    last: Annotated[
        int, typer.Option(min=0, max=_MOST_LAST, help="Only the last pieces; 0: all that is kept.")
    ] = 0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what a job's program wrote, on all instances and in all its starts.

    A line says which start and which process wrote it once there are several. What would move the
    cursor or colour the terminal is left out.
    """
    from spotline.adapters.grpc.allocator.client import JobClient

    writers = Writers()

    async def run() -> int:
        pieces = 0
        async with JobClient(address) as client:
            job_id = await whole_job_id(client, job)
            said = await _mode_said(client, job_id, as_json=as_json)
            async for chunk in client.output(job_id, follow=follow, last=last):
                pieces += 1
                if as_json:
                    print_json({**plain(chunk), **said}, indent=None)
                else:
                    typer.echo(writers.shown(chunk), nl=False)
        return pieces

    if not answered(run(), as_json=as_json) and not as_json:
        typer.echo("the program has written nothing yet", err=True)


def events(
    job: JobArgument,
    follow: Follow = False,
    after_seq: Annotated[
        int, typer.Option(min=0, help="Only what came after this place in the log.")
    ] = 0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what has happened to a job, oldest first, in market time."""
    from spotline.adapters.grpc.allocator.client import JobClient

    async def run() -> int:
        found = 0
        async with JobClient(address) as client:
            job_id = await whole_job_id(client, job)
            said = await _mode_said(client, job_id, as_json=as_json)
            async for happening in client.happenings(job_id, follow=follow, after_seq=after_seq):
                if as_json:
                    print_json({**plain(happening), **said}, indent=None)
                else:
                    typer.echo(happening_line(happening))
                found += 1
        return found

    if not answered(run(), as_json=as_json) and not as_json:
        typer.echo("nothing has happened since", err=True)


async def _mode_said(client: JobClient, job_id: str, *, as_json: bool) -> dict[str, str]:
    """What each line of JSON says of the job's mode, which it keeps; nothing of text."""
    if not as_json:
        return {}
    mode = (await client.get(job_id)).mode
    return {"mode": (Mode.LIVE if mode is None else mode).value}


def happening_line(happening: JobHappening) -> str:
    """One row: market time, wall time, kind, what."""
    wall = f" ({clock_time(happening.wall_ns)} wall)" if happening.wall_ns else ""
    kind = escaped(happening.kind)
    return f"{moment(happening.ts_event_ns):<20}{wall}  {kind:<24}  {escaped(happening.text)}"


class Writers:
    """Says who wrote a line, from when on there are several: `1/0 | line`.

    The setup is generation 0, shown as `setup`.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, int, int]] = set()

    def shown(self, chunk: OutputChunk) -> str:
        """A piece as it is printed; it ends with a newline where others may follow."""
        instance_id = "" if chunk.generation else chunk.instance_id
        self._seen.add((instance_id, chunk.generation, chunk.rank))
        text = printable(chunk.text)
        if not text:
            return ""
        ended = text if text.endswith("\n") else f"{text}\n"
        if len(self._seen) == 1:
            return ended
        who = f"setup {instance_id}" if instance_id else f"{chunk.generation}/{chunk.rank}"
        return "".join(f"{who} | {line}\n" for line in ended[:-1].split("\n"))


def printable(text: str) -> str:
    """A text without what a terminal would obey; tabs and newlines stay."""
    bare = _SEQUENCE.sub("", text.translate(_SEPARATORS)).replace("\r\n", "\n")
    # What is left of others' power over the terminal, such as turning the direction of letters.
    return escaped(_CONTROL.sub("", _OVERWRITTEN.sub("", bare)), several_lines=True)
