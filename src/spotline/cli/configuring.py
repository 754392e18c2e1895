"""The option `--config`: values of other options from one file (docs/configuration.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.failures import explained
from spotline.contracts.errors import ConfigError, ContractError, SpotlineError

if TYPE_CHECKING:
    from spotline.adapters.files.spotline_yaml.reading import SpotlineConfig

VARIABLE = "SPOTLINE_CONFIG"
_KEY = "spotline.config"


def _taken(context: typer.Context, path: Path | None) -> Path | None:
    """Read the file before other options are: they begin with what it says."""
    if path is None or context.resilient_parsing:
        return path
    from spotline.adapters.files.spotline_yaml.reading import read_config

    with explained(as_json=_asks_json(context)):
        config = read_config(path, os.environ)
    context.meta[_KEY] = config
    known = {param.name for param in context.command.params}
    options = {name: value for name, value in config.options().items() if name in known}
    context.default_map = {**(context.default_map or {}), **options}
    return path


def _asks_json(context: typer.Context) -> bool:
    return bool(context.params.get("as_json"))


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=VARIABLE,
        is_eager=True,
        callback=_taken,
        help="Settings, accounts and limits in one file (docs/configuration.md); options win.",
    ),
]


def config_of(context: typer.Context) -> SpotlineConfig | None:
    """What the file of `--config` says, None where none was named."""
    config: SpotlineConfig | None = context.meta.get(_KEY)
    return config


@contextmanager
def in_words_of(context: typer.Context) -> Iterator[None]:
    """Name the file and the key in what is said of an option whose value is the file's."""
    try:
        yield
    except (ConfigError, ContractError) as error:
        said = "\n".join(_said(context, line) for line in str(error).splitlines())
        if said == str(error):
            raise
        raise _InFile(said) from error


class _InFile(SpotlineError):
    """What is wrong with a value of the file."""


def _said(context: typer.Context, line: str) -> str:
    """A line of what is said, by the key of the file where it is of an option that the file sets."""
    config = config_of(context)
    option, colon, problem = line.partition(": ")
    if config is None or not colon or not option.startswith("--"):
        return line
    for name, place in _places(config).items():
        if option in _options_of(context, name) and _is_of_file(context, name):
            return f"{place}: {problem}"
    return line


def _places(config: SpotlineConfig) -> dict[str, str]:
    """By parameter, where in the file its value stands."""
    from spotline.adapters.files.spotline_yaml.parts import keys

    return {
        sets.option: f"{config.path}:{config.lines.of(key)}: {key}"
        for key, sets in keys()
        if key in config.values
    }


def _options_of(context: typer.Context, name: str) -> list[str]:
    params: list[Any] = context.command.params
    return [option for param in params if param.name == name for option in param.opts]


def _is_of_file(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"
