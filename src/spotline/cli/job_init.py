"""`spotline job init`: a job file to begin with."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, fail
from spotline.cli.failures import explained

job_app = typer.Typer(name="job", help="Job files.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(job_app)


@job_app.callback()
def job() -> None:
    """Keep `init` a command of its own: with one alone, its name would be left out."""


@job_app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="What to write.")] = Path(
        "job.yaml"
    ),
    command: Annotated[
        str, typer.Option(help="What is started; by default a program found beside the file.")
    ] = "",
    workdir: Annotated[
        str, typer.Option(help="Folder of the program, from that of the file.")
    ] = ".",
    setup: Annotated[str, typer.Option(help="A line that is run once on every instance.")] = "",
    model: Annotated[str, typer.Option(help="Model by name, such as llama-3.1-8b.")] = "",
    tokens: Annotated[str, typer.Option(help="Tokens to train on, such as 300M.")] = "",
    work: Annotated[
        str,
        typer.Option(help="Instead of model and tokens: the work, such as '64 instance_hours'."),
    ] = "",
    deadline: Annotated[
        str, typer.Option(help="Such as 36h after the submission, or a time with its UTC offset.")
    ] = "36h",
    location: Annotated[
        str, typer.Option("--checkpoints", help="Folder or URL where checkpoints are kept.")
    ] = "",
    tenant: Annotated[str, typer.Option(help="Whose job it is; by default you.")] = "",
    name: Annotated[str, typer.Option(help="For people.")] = "",
) -> None:
    """Write a job file to begin with; what it leaves blank is said, and nothing is overwritten."""
    from spotline.adapters.files.starter import Starter, found_in, starter_text

    with explained():
        found_command, found_setup = found_in(file.parent / workdir)
        text, blanks = starter_text(
            Starter(
                tenant=tenant or _user(),
                name=name,
                command=command or found_command,
                workdir=workdir,
                setup=setup or found_setup,
                model=model,
                tokens=tokens,
                work=work,
                deadline=deadline,
                location=location,
            )
        )
        _check(text, str(file), blanks)
    try:
        # Never over what is there.
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        _fail(f"{file}: expected a name that is not taken, found a file: name another")
    except OSError as error:
        _fail(f"{file}: expected a place to write to, found: {error.strerror or error}")
    typer.echo(f"wrote {file}")
    if blanks:
        typer.echo(f"fill in: {', '.join(blanks)}", err=True)
    typer.echo(f"then: spotline plan {file}", err=True)


def _check(text: str, where: str, blanks: tuple[str, ...]) -> None:
    """Refuse what an option says if no job file may say it; blanks are for the owner to fill."""
    from spotline.adapters.files.job_file import parse_stated_job
    from spotline.adapters.files.mistake import BadFile

    try:
        parse_stated_job(text, where=where, folder=Path())
    except BadFile as error:
        wrong = [
            mistake
            for mistake in error.mistakes
            if not any(f"{blank}.".startswith(f"{mistake.field}.") for blank in blanks)
        ]
        if wrong:
            raise BadFile(where, wrong) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # Nobody has told the system; it is only a suggestion.
        return "me"


def _fail(message: str) -> None:
    fail(EXIT_BAD_INPUT, message, as_json=False)
