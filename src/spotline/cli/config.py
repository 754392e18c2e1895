"""`spotline config`: check, show and begin the one file that says how an installation runs."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import EXIT_BAD_INPUT, AsJson, fail
from spotline.cli.configuring import VARIABLE
from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.cli.tables import Column, Kind, print_facts, print_table

if TYPE_CHECKING:
    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig
    from spotline.bootstrap.configuration import CheckedConfig, Effective

config_app = typer.Typer(
    name="config",
    help="One file for an installation (docs/configuration.md).",
    no_args_is_help=True,
)

ConfigArgument = Annotated[
    Path,
    typer.Argument(metavar="[FILE]", envvar=VARIABLE, help="Default: spotline.yaml."),
]
_DEFAULT = Path("spotline.yaml")
_DEFAULT_CLOUD = "simulated"


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(config_app)


@config_app.command()
def check(file: ConfigArgument = _DEFAULT, as_json: AsJson = False) -> None:
    """Say what is wrong with a file and with those that it names, or what it amounts to."""
    with explained(as_json=as_json):
        found = _read(file)
        facts = _facts(found)
        if as_json:
            print_json(facts)
            return
        print_facts([(name, _words(value)) for name, value in facts.items()])


@config_app.command()
def show(file: ConfigArgument = _DEFAULT, as_json: AsJson = False) -> None:
    """List what holds where `spotline up` is run by a file, and where each value comes from.

    Variables of this environment win over the file. Of a secret only its place is shown.
    """
    with explained(as_json=as_json):
        found = _read(file)
        rows = [*_effective(found)]
        if as_json:
            print_json([{"key": row.key, "value": row.value, "source": row.source} for row in rows])
            return
        columns = (Column("key", Kind.ID), Column("value", Kind.ID), Column("from", Kind.ID))
        print_table(columns, [(row.key, row.value, row.source) for row in rows], whole=True)


@config_app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="What to write.")] = _DEFAULT,
    cloud: Annotated[str, typer.Option(help="simulated, local or aws.")] = _DEFAULT_CLOUD,
) -> None:
    """Write a file to begin with, its choices beside it as comments; nothing is overwritten."""
    from spotline.adapters.files.spotline_yaml.starter import CLOUDS, starter_text

    if cloud not in CLOUDS:
        _refuse(f"--cloud: expected one of {', '.join(CLOUDS)}, found {cloud!r}")
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(starter_text(cloud))
    except FileExistsError:
        _refuse(f"{file}: expected a name that is not taken, found a file: name another")
    except OSError as error:
        _refuse(f"{file}: expected a place to write to, found: {error.strerror or error}")
    typer.echo(f"wrote {file}")
    typer.echo(f"then: spotline config check {file}", err=True)


def _refuse(message: str) -> None:
    fail(EXIT_BAD_INPUT, message, as_json=False)


def _read(file: Path) -> CheckedConfig:
    from spotline.adapters.files.spotline_yaml.reading import read_config
    from spotline.bootstrap.configuration import checked

    return checked(read_config(file, os.environ), os.environ)


def _facts(found: CheckedConfig) -> dict[str, Any]:
    config, settings = found.config, found.cloud.settings
    stated = found.cloud.modes(found.mode)
    facts: dict[str, Any] = {
        "file": str(config.path),
        "cloud": found.cloud.name,
        "mode": found.mode.value,
        "accounts": {name: mode.value for name, mode in stated.named.items()},
        "offerings": [each.offering_id for each in getattr(settings, "offerings", ())],
        "limits": "of the file" if config.spending is not None else "default",
        "reservations": len(config.reservations),
        "overrides": len(config.overrides),
        "notify": [target.name for target in config.notify],
    }
    return {name: value for name, value in facts.items() if value not in ({}, [], 0)}


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} begins in {mode}" for name, mode in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _effective(found: CheckedConfig) -> Iterator[Effective]:
    from spotline.bootstrap.configuration import Effective, effective_of_clouds

    config = found.config
    yield from _of_options(config)
    for name, stated in (
        ("limits", config.spending is not None),
        ("reservations", bool(config.reservations)),
        ("overrides", bool(config.overrides)),
        ("notify", bool(config.notify)),
    ):
        at = f"{config.path}:{config.lines.of(name)}" if stated else "default"
        yield Effective(key=name, value="stated" if stated else "-", source=at)
    yield from effective_of_clouds(config, found.cloud, os.environ)


def _of_options(config: SpotlineConfig) -> Iterator[Effective]:
    """What the options of `up` begin with, by the keys of the file."""
    from spotline.adapters.files.spotline_yaml.parts import as_text, keys
    from spotline.bootstrap.configuration import Effective

    options = options_of_up()
    for key, sets in keys():
        option = options[sets.option]
        variable = str(getattr(option, "envvar", None) or "")
        if variable and os.environ.get(variable):
            value, source = os.environ[variable], variable
        elif key in config.values:
            value, source = as_text(config.values[key]), f"{config.path}:{config.lines.of(key)}"
        else:
            value, source = "" if option.default is None else as_text(option.default), "default"
        yield Effective(key=key, value=_shown(key, value) or "-", source=source)


def _shown(key: str, value: str) -> str:
    from spotline.adapters.nats.connection import redacted

    return redacted(value) if key == "nats_url" and value else value


def options_of_up() -> dict[str, Any]:
    """The options of `spotline up` by the names of its parameters."""
    from spotline.cli.main import app

    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    return {param.name: param for param in commands["up"].params}
