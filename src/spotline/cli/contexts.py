"""`spotline context`: addresses of an installation under one name, and what commands take from it."""

# Imports of what the commands use are inside them: they cost more than `--help` should.

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.calls import AsJson
from spotline.cli.failures import explained
from spotline.cli.jobs_view import print_json
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.adapters.identity.contexts import Contexts, ServiceContext

context_app = typer.Typer(
    name="context", help="Addresses and tokens of an installation, by a name.", no_args_is_help=True
)

# What a command's address is, by the variable that may state it, too.
_SERVICES = {
    "SPOTLINE_ALLOCATOR_ADDRESS": "allocator",
    "SPOTLINE_CONFIGURATOR_ADDRESS": "configurator",
    "SPOTLINE_PLACER_ADDRESS": "placer",
    "SPOTLINE_ANALYTICS_ADDRESS": "analytics",
}
# They listen there themselves.
_SERVERS = frozenset({"up", "demo", "train-demo"})

_At = typer.Option(metavar="HOST:PORT")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(context_app)


@context_app.command("add")
def add_context(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    allocator: Annotated[str, _At] = "",
    configurator: Annotated[str, _At] = "",
    placer: Annotated[str, _At] = "",
    analytics: Annotated[str, _At] = "",
    http: Annotated[str, typer.Option(metavar="URL", help="Of the read model.")] = "",
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates that sign theirs; else the system's."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the token to show.")
    ] = None,
    server_name: Annotated[
        str, typer.Option(metavar="NAME", help="In their certificates, where it is not the host.")
    ] = "",
) -> None:
    """Keep addresses under a name, or replace them; the first one is in use at once.

    Commands show the token to the addresses of the context, and to no others.
    """
    with explained():
        from spotline.adapters.identity.contexts import context_of, read_contexts, write_contexts
        from spotline.adapters.identity.endpoints import read_token_file

        if token_file is not None:
            read_token_file(token_file, "--token-file")
        stated = {
            "allocator": allocator,
            "configurator": configurator,
            "placer": placer,
            "analytics": analytics,
            "http": http,
            "ca": str(ca.absolute()) if ca is not None else "",
            "token_file": str(token_file.absolute()) if token_file is not None else "",
            "server_name": server_name,
        }
        made = context_of(name, {field: value for field, value in stated.items() if value})
        before = read_contexts()
        by_name = {**before.by_name, name: made}
        after = replace(before, by_name=by_name, current=before.current or name)
        write_contexts(after)
    print_line(f"context {name}: {_addresses(made)}" + _in_use(after, name))


@context_app.command("use")
def use_context(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Have commands take their addresses from a context."""
    with explained():
        from spotline.adapters.identity.contexts import read_contexts, write_contexts

        contexts = read_contexts()
        _check_known(contexts, name)
        after = replace(contexts, current=name)
        write_contexts(after)
    print_line(f"context {name}: {_addresses(after.by_name[name])}{_in_use(after, name)}")


@context_app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List the contexts; the one in use has a star."""
    with explained(as_json=as_json):
        from spotline.adapters.identity.contexts import CONTEXT, FIELDS, read_contexts

        contexts = read_contexts()
        chosen = os.environ.get(CONTEXT, "") or contexts.current
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "in_use": name == chosen,
                    **{field: getattr(context, field) or None for field in FIELDS},
                }
                for name, context in contexts.by_name.items()
            ]
        )
        return
    if not contexts.by_name:
        print_line(
            "there are no contexts; add one: spotline context add NAME --allocator HOST:PORT"
        )
        return
    print_table(
        (
            Column("", Kind.ID),
            Column("name", Kind.ID),
            Column("addresses", Kind.SENTENCE, rank=1),
            Column("token", rank=2),
        ),
        [
            (
                "*" if name == chosen else "",
                name,
                _addresses(context),
                context.token_file or "none",
            )
            for name, context in contexts.by_name.items()
        ],
    )


@context_app.command("remove")
def remove_context(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Forget a context; its files stay where they are."""
    with explained():
        from spotline.adapters.identity.contexts import read_contexts, write_contexts

        contexts = read_contexts()
        _check_known(contexts, name)
        kept = {key: value for key, value in contexts.by_name.items() if key != name}
        current = "" if contexts.current == name else contexts.current
        write_contexts(replace(contexts, current=current, by_name=kept))
    more = "; no context is in use now" if not current else ""
    print_line(f"context {name} is removed{more}")


def _check_known(contexts: Contexts, name: str) -> None:
    from spotline.contracts.errors import ConfigError

    if name not in contexts.by_name:
        known = ", ".join(contexts.by_name) or "none yet"
        raise ConfigError(f"NAME: expected a context ({known}), found {name!r}")


def _addresses(context: ServiceContext) -> str:
    stated = [
        f"{service} {getattr(context, service)}"
        for service in (*_SERVICES.values(), "http")
        if getattr(context, service)
    ]
    return ", ".join(stated) or "no addresses"


def _in_use(contexts: Contexts, name: str) -> str:
    return " (in use)" if contexts.current == name else ""


# --- what commands take from it -----------------------------------------------------------------


def take_addresses(context: typer.Context) -> None:
    """Have the command that is called take its address from the context in use.

    What the command line or a variable states comes first. Commands that ask nobody read no file.

    Raises
    ------
    ConfigError, ContractError
        The file of contexts, or the variable that names one, is not as expected.
    """
    called = context.invoked_subcommand
    commands: Mapping[str, Any] = getattr(context.command, "commands", {})
    if called is None or called in _SERVERS or called not in commands:
        return
    asked = _asked(commands[called])
    if not asked:
        return
    from spotline.adapters.identity.contexts import CONTEXT, chosen_context, contexts_file

    if not os.environ.get(CONTEXT) and not contexts_file().exists():
        return
    chosen = chosen_context()
    if chosen is not None:
        context.default_map = {called: _defaults(commands[called], chosen)}


def _asked(command: Any) -> bool:
    """Whether a command, or one below it, asks a service."""
    below = getattr(command, "commands", {}).values()
    return bool(_options(command)) or any(map(_asked, below))


def _options(command: Any) -> Mapping[str, str]:
    """The parameters of a command that are an address, and of which service."""
    return {
        param.name: _SERVICES[param.envvar]
        for param in getattr(command, "params", ())
        if isinstance(getattr(param, "envvar", None), str) and param.envvar in _SERVICES
    }


def _defaults(command: Any, chosen: ServiceContext) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(chosen, service)
        for name, service in _options(command).items()
        if getattr(chosen, service)
    }
    for name, below in getattr(command, "commands", {}).items():
        found[name] = _defaults(below, chosen)
    return found
