"""`spotline notify`: whether those who are to be told can be told (docs/notifications.md)."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import EXIT_REFUSED, AsJson
from spotline.cli.configuring import VARIABLE
from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.cli.tables import Column, Kind, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
    from spotline.adapters.notify.posting import Answer
    from spotline.application.notify.target import NotifyTarget

notify_app = typer.Typer(
    name="notify",
    help="Who is told of what needs somebody (docs/notifications.md).",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(notify_app)


@notify_app.callback()
def root() -> None:
    """Take no options of its own: there are commands below it."""


@notify_app.command(name="test")
def try_receivers(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="One receiver of the file; default: each.")
    ] = "",
    config: Annotated[
        Path,
        typer.Option("--config", metavar="FILE", envvar=VARIABLE, help="The file that names them."),
    ] = Path("spotline.yaml"),
    as_json: AsJson = False,
) -> None:
    """Send a message that is marked as a test, and say what came back; exit 1 where one failed."""
    from spotline.adapters.files.spotline_yaml.reading import read_config

    with explained(as_json=as_json):
        targets = _chosen(read_config(config, os.environ), name)
        answers = asyncio.run(_tried(targets))
    rows = list(zip(targets, answers, strict=True))
    if as_json:
        print_json(
            [
                {"name": target.name, "taken": answer.taken, "answer": str(answer)}
                for target, answer in rows
            ]
        )
    else:
        columns = (Column("receiver", Kind.ID), Column("answer", Kind.ID))
        print_table(
            columns,
            [
                (target.name, f"{'taken' if answer.taken else 'NOT TAKEN'}: {answer}")
                for target, answer in rows
            ],
            whole=True,
        )
    if not all(answer.taken for answer in answers):
        raise typer.Exit(EXIT_REFUSED)


def notified(config: SpotlineConfig | None) -> tuple[NotifyTarget, ...]:
    """Who is told, by the file of `--config`."""
    return () if config is None else config.notify


def _chosen(config: SpotlineConfig, name: str) -> Sequence[NotifyTarget]:
    from spotline.adapters.files.mistake import Mistake
    from spotline.contracts.errors import ConfigError

    if not config.notify:
        raise config.wrong([Mistake(field="notify", expected="a receiver", found="none")])
    chosen = [target for target in config.notify if name in ("", target.name)]
    if not chosen:
        known = ", ".join(target.name for target in config.notify)
        raise ConfigError(f"NAME: expected a receiver of {config.path}: {known}, found {name!r}")
    return chosen


async def _tried(targets: Sequence[NotifyTarget]) -> list[Answer]:
    from spotline.adapters.notify.delivering import tried

    return list(await asyncio.gather(*map(tried, targets)))
