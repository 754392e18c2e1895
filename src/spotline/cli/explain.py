"""`spotline explain`: why a decision was what it was."""

# What the command needs is imported inside: folding a log takes more than `--help` should.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import (
    DEFAULT_ADDRESS,
    EXIT_BAD_INPUT,
    EXIT_REFUSED,
    Address,
    Ambiguous,
    AsJson,
    JobArgument,
    answered,
    fail,
    only_one,
    whole_job_id,
)
from spotline.cli.explain_view import is_reproduced, print_explanation
from spotline.cli.failures import explained
from spotline.cli.jobs_view import plain, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotline.application.explaining.messages import DecisionExplanation


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(explain)


def explain(
    job: JobArgument,
    slot: Annotated[
        int | None, typer.Option(min=0, help="The slot it was made in; the latest by default.")
    ] = None,
    revision: Annotated[
        int | None,
        typer.Option(min=0, help="Which of the slot's decisions, from 0; the last by default."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="LOG",
            help="Of a recorded log, cut or whole, and not of the running system; JOB may be a "
            "job's name there.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every alternative.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Say why a job was given what it was: the alternatives, what cut them, and what came of it.

    It is worked out again from the log. Exits 1 where the log's decision is not reproduced.
    """
    if log is None:
        explanation = answered(_asked(job, slot, revision, address), as_json=as_json)
    else:
        try:
            with explained():
                explanation = _recorded(job, slot, revision, log)
        except _NotThere as error:
            fail(EXIT_BAD_INPUT, str(error), as_json=as_json)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    if as_json:
        print_json(plain(explanation))
    else:
        print_explanation(explanation, everything=everything)
    if not is_reproduced(explanation):
        raise typer.Exit(EXIT_REFUSED)


class _NotThere(Exception):
    """The log holds no such job or decision."""


async def _asked(
    job: str, slot: int | None, revision: int | None, address: str
) -> DecisionExplanation:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.explaining.messages import DecisionQuery

    async with JobClient(address) as client:
        job_id = await whole_job_id(client, job)
        return await client.explain(DecisionQuery(job_id=job_id, slot=slot, revision=revision))


def _recorded(job: str, slot: int | None, revision: int | None, log: Path) -> DecisionExplanation:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.application.explaining.messages import DecisionQuery
    from spotline.application.explaining.ports import UnknownDecision
    from spotline.replay.explain import LogExplainer, RecordedEntries
    from spotline.replay.handlers import selector_options

    reader = EventLogReader(log)
    entries = RecordedEntries(reader)
    explainer = LogExplainer(selector_options(reader.manifest.settings))
    explainer.follow(entries)
    job_id = _job_of(job, explainer.index.names, log)
    try:
        return explainer.explain(
            entries, DecisionQuery(job_id=job_id, slot=slot, revision=revision)
        )
    except UnknownDecision as error:
        raise _NotThere(f"{log}: {error}") from error


def _job_of(job: str, names: Mapping[str, str], log: Path) -> str:
    """The only job of a log whose name this is, or whose id begins so."""
    named = [job_id for job_id, name in names.items() if name == job]
    if len(named) == 1:
        return named[0]
    try:
        found = only_one(job, sorted(names))
    except Ambiguous as error:
        raise _NotThere(str(error)) from error
    if found is None:
        few = ", ".join(
            f"{name or '-'} ({job_id[:8]})" for job_id, name in sorted(names.items())[:8]
        )
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        raise _NotThere(f"JOB: expected a job of {log} ({few}{more}), found {job!r}")
    return found
