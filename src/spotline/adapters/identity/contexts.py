"""Named sets of addresses in a user's configuration: `contexts.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import yaml
from platformdirs import user_config_path
from pydantic import AfterValidator, Field

from spotline.adapters.files.fields import Name, Part, Text, expected, read_part
from spotline.adapters.files.mistake import shown
from spotline.adapters.files.yaml_file import read_yaml
from spotline.adapters.identity.private_files import locked, write_private
from spotline.contracts.errors import ConfigError
from spotline.contracts.limits import name_problem

CONTEXT = "SPOTLINE_CONTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """Where the services of one installation are, and what they ask for.

    Parameters
    ----------
    allocator, configurator, placer, analytics
        `HOST:PORT`; empty: not stated, the command's own default.
    http
        URL of the read model.
    ca, token_file
        Files: certificates that sign theirs, and the token to show.
    server_name
        The name in their certificates, where it is not the host.
    """

    name: str
    allocator: str = ""
    configurator: str = ""
    placer: str = ""
    analytics: str = ""
    http: str = ""
    ca: str = ""
    token_file: str = ""
    server_name: str = ""

    def has(self, address: str) -> bool:
        """Whether an address is one of its own."""
        return bool(address) and address in (
            *(self.allocator, self.configurator, self.placer, self.analytics),
            _host_and_port(self.http),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts of a user, and the one in use; empty: none."""

    current: str
    by_name: Mapping[str, ServiceContext]


def contexts_file() -> Path:
    """Where the user's contexts are."""
    return user_config_path("spotline") / "contexts.yaml"


def read_contexts(path: Path | None = None) -> Contexts:
    """The contexts of the user; none where there is no file.

    Raises
    ------
    ContractError
        The file is not as expected: names each field.
    """
    path = path or contexts_file()
    if not path.exists():
        return Contexts(current="", by_name={})
    part = read_part(_ContextsPart, read_yaml(path), where=str(path))
    by_name = {
        name: ServiceContext(name=name, **stated.model_dump())
        for name, stated in part.contexts.items()
    }
    if part.current and part.current not in by_name:
        raise ConfigError(
            f"{path}: current: expected one of {', '.join(by_name) or 'none'}, "
            f"found {part.current!r}; choose one: spotline context use NAME"
        )
    return Contexts(current=part.current, by_name=by_name)


def write_contexts(contexts: Contexts, path: Path | None = None) -> None:
    """Write the contexts of the user.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    path = path or contexts_file()
    said: dict[str, Any] = {"current": contexts.current, "contexts": {}}
    for name, context in contexts.by_name.items():
        stated = {key: value for key, value in asdict(context).items() if value and key != "name"}
        said["contexts"][name] = stated
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent):
            write_private(path, yaml.safe_dump(said, sort_keys=False).encode())
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError(f"{path}: expected a file to write to, found: {found}") from error


def chosen_context(environ: Mapping[str, str] | None = None) -> ServiceContext | None:
    """The context in use: that of `SPOTLINE_CONTEXT`, else the current one; None without one.

    Raises
    ------
    ConfigError
        There is none of that name.
    ContractError
        The file is not as expected.
    """
    environ = os.environ if environ is None else environ
    contexts = read_contexts()
    name = environ.get(CONTEXT, "") or contexts.current
    if not name:
        return None
    if name not in contexts.by_name:
        known = ", ".join(contexts.by_name) or "none"
        raise ConfigError(f"{CONTEXT}: expected the name of a context ({known}), found {name!r}")
    return contexts.by_name[name]


def _host_and_port(url: str) -> str:
    return url.partition("://")[2].partition("/")[0] if "://" in url else url


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdecimal() or not 0 < int(port) < 1 << 16):
        raise expected("HOST:PORT, such as alloc.example.com:7070")
    return value


def _url(value: str) -> str:
    if value and not value.startswith(("https://", "http://")):
        raise expected("a URL that begins with https:// or http://")
    return value


_Address = Annotated[Text, AfterValidator(_address)]


class _ContextPart(Part):
    allocator: _Address = ""
    configurator: _Address = ""
    placer: _Address = ""
    analytics: _Address = ""
    http: Annotated[Text, AfterValidator(_url)] = ""
    ca: Text = ""
    token_file: Text = ""
    server_name: Text = ""


class _ContextsPart(Part):
    current: Text = ""
    contexts: dict[Name, _ContextPart] = Field(default_factory=dict)


FIELDS = tuple(field.name for field in fields(ServiceContext) if field.name != "name")
"""What a context can state."""


def context_of(name: str, stated: Mapping[str, str]) -> ServiceContext:
    """Make a context of what somebody stated, such as options of a command.

    Raises
    ------
    ConfigError
        The name is none.
    ContractError
        A field is not as expected.
    """
    if not name or name_problem(name):
        raise ConfigError(f"NAME: expected a name of one line, found {shown(name)}")
    made = read_part(_ContextPart, dict(stated), where=f"context {name}")
    return ServiceContext(name=name, **made.model_dump())
