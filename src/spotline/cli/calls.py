"""Calls to a running service, and what a command says where one fails."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from spotline.cli.jobs_view import print_json

if TYPE_CHECKING:
    from spotline.adapters.grpc.kit.errors import RpcFailed

EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2

# As many characters as an id has.
WHOLE_ID = 32

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job id, or how it begins.")]

ResultT = TypeVar("ResultT")


class Ambiguous(Exception):
    """What was written could mean several jobs."""


def only_one(prefix: str, job_ids: Sequence[str]) -> str | None:
    """The only one of some ids that begins so, None without one; raises `Ambiguous`."""
    matching = [job_id for job_id in job_ids if job_id.startswith(prefix)]
    if len(matching) > 1:
        shown = ", ".join(matching[:5])
        raise Ambiguous(f"{prefix} begins {len(matching)} job ids ({shown}, ...); write more of it")
    return matching[0] if matching else None


def answered(work: Coroutine[Any, Any, ResultT], *, as_json: bool) -> ResultT:
    """What a call answers; where it fails, the command ends with the reason and an exit code."""
    from spotline.adapters.grpc.kit.errors import RpcFailed

    try:
        return asyncio.run(work)
    except RpcFailed as error:
        _fail_rpc(error, as_json=as_json)
    except Ambiguous as error:
        fail(EXIT_BAD_INPUT, str(error), as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail_rpc(error: RpcFailed, *, as_json: bool) -> NoReturn:
    message = str(error)
    if error.unreachable:
        message += "\nstart one with `spotline up`, or name another with --address"
    wrong = error.unreachable or error.bad_input
    fail(
        EXIT_BAD_INPUT if wrong else EXIT_REFUSED,
        message,
        as_json=as_json,
        code=error.code,
        field=error.field,
        earliest_feasible_deadline=error.earliest_feasible_deadline,
    )


def fail(exit_code: int, message: str, *, as_json: bool, **details: Any) -> NoReturn:
    """End the command with what went wrong; of the details those that say anything."""
    if as_json:
        print_json({"error": message, **{key: value for key, value in details.items() if value}})
    else:
        typer.secho(message, err=True, fg="red")
    raise typer.Exit(exit_code)
