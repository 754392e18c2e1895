"""Calls to a running service, and what a command says where one fails."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from spotline.cli.completing import known_jobs
from spotline.cli.failures import say, say_json
from spotline.contracts.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from pathlib import Path

    from spotline.adapters.files.mistake import BadFile
    from spotline.adapters.files.refusal import Sent
    from spotline.adapters.grpc.kit.errors import RpcFailed

EXIT_REFUSED = 1
EXIT_BAD_INPUT = 2

# As many characters as an id has.
WHOLE_ID = 32

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="A job id, or how it begins.", autocompletion=known_jobs),
]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="Only this tenant's.")]

Address = Annotated[
    str,
    typer.Option(
        "--address",
        envvar="SPOTLINE_ALLOCATOR_ADDRESS",
        help="The allocator's gRPC address.",
        metavar="HOST:PORT",
    ),
]
DEFAULT_ADDRESS = "127.0.0.1:7070"

ResultT = TypeVar("ResultT")


class Ambiguous(Exception):
    """What was written could mean several things, or none."""


def check_name(where: str, name: str) -> None:
    """Refuse what no id or name can be, before anybody is asked; raises `Ambiguous`."""
    if not name.isprintable():
        raise Ambiguous(f"{where}: expected printable text, found {name!r}")


def only_one(prefix: str, job_ids: Sequence[str]) -> str | None:
    """The only one of some ids that begins so, None without one; raises `Ambiguous`."""
    if not prefix:
        # It begins every id, and would mean the only one there is.
        raise Ambiguous("JOB: expected an id, or how it begins, found an empty text")
    matching = [job_id for job_id in job_ids if job_id.startswith(prefix)]
    if len(matching) > 1:
        shown = ", ".join(matching[:5])
        raise Ambiguous(
            f"JOB: expected more of the id, found {prefix!r}, which begins {len(matching)} "
            f"({shown}{', ...' if len(matching) > 5 else ''})"
        )
    return matching[0] if matching else None


def answered(
    work: Coroutine[Any, Any, ResultT], *, as_json: bool, sent: Sequence[tuple[Path, Sent]] = ()
) -> ResultT:
    """What a call answers; where it fails, the command ends with the reason and an exit code.

    Parameters
    ----------
    sent
        The files of the request, in its order, and what each says: a refusal is said in their
        words.
    """
    from spotline.adapters.grpc.kit.errors import RpcFailed

    try:
        return asyncio.run(work)
    except RpcFailed as error:
        failure = failure_of(error, sent)
        fail(failure.exit_code, failure.message, as_json=as_json, **failure.details)
    except (Ambiguous, ConfigError, ContractError) as error:
        fail(EXIT_BAD_INPUT, str(error), as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def in_files(
    sent: Sequence[tuple[Path, Sent]], field: str, message: str, earliest_deadline: str
) -> BadFile | None:
    """A server's refusal as a mistake in one of the files that were sent, None where it is none."""
    from spotline.adapters.files.refusal import RefusedField, in_the_files_words

    refusal = RefusedField(field=field, message=message, earliest_deadline=earliest_deadline)
    return in_the_files_words(refusal, [(str(path), content) for path, content in sent])


def _all_in_files(sent: Sequence[tuple[Path, Sent]], error: RpcFailed) -> tuple[str, list[Any]]:
    """What is wrong in words of the files, and the problems one by one.

    Fields that no file has are told as the server names them.
    """
    earliest = error.earliest_feasible_deadline
    if len(error.violations) < 2:
        bad = in_files(sent, error.field, str(error), earliest)
        return (
            (str(error), [])
            if bad is None
            else (str(bad), [mistake.as_json() for mistake in bad.mistakes])
        )
    lines: list[str] = []
    problems: list[Any] = []
    for violation in error.violations:
        bad = in_files(sent, violation.field, violation.description, earliest)
        if bad is None:
            said = f"{violation.field}: {violation.description}".removeprefix(": ")
            lines.append(said)
            problems.append({"field": violation.field, "description": violation.description})
        else:
            lines.append(str(bad))
            problems += [mistake.as_json() for mistake in bad.mistakes]
    return "\n".join(lines), problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a command says of a call that failed; `details` go into JSON."""

    exit_code: int
    message: str
    details: Mapping[str, Any]
    unreachable: bool = False

    def as_json(self) -> dict[str, Any]:
        """The error and those of its details that say anything."""
        stated = {key: value for key, value in self.details.items() if value}
        return {"error": self.message, **stated}


def failure_of(error: RpcFailed, sent: Sequence[tuple[Path, Sent]]) -> Failure:
    """A failed call in the words of the files that were sent."""
    message, problems = _all_in_files(sent, error)
    if error.unreachable:
        message += "; start one with `spotline up`, or name another with --address"
    wrong = error.unreachable or error.bad_input
    return Failure(
        exit_code=EXIT_BAD_INPUT if wrong else EXIT_REFUSED,
        message=message,
        details={
            "code": error.code,
            "reason": error.reason,
            "field": error.field,
            "problems": problems,
            "earliest_feasible_deadline": error.earliest_feasible_deadline,
        },
        unreachable=error.unreachable,
    )


def fail_file(error: BadFile, *, as_json: bool) -> NoReturn:
    """End the command with what is wrong with a file of the user's."""
    problems = [mistake.as_json() for mistake in error.mistakes]
    fail(EXIT_BAD_INPUT, str(error), as_json=as_json, problems=problems)


def fail(exit_code: int, message: str, *, as_json: bool, **details: Any) -> NoReturn:
    """End the command with what went wrong; of the details those that say anything."""
    if as_json:
        say_json(message, **details)
    else:
        say(message)
    raise typer.Exit(exit_code)


async def whole_job_id(client: Any, prefix: str) -> str:
    """The only job whose id begins with `prefix`; a whole id needs no look-up."""
    if len(prefix) >= WHOLE_ID:
        return prefix
    # Unknown: let the allocator say so.
    return only_one(prefix, [found.job.job_id for found in await client.list_all()]) or prefix
