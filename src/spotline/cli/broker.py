"""`spotline broker`: who may connect to the bus, and what its configuration says of it."""

# What the commands use is imported inside: it costs more than `--help` should.

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotline.cli.failures import explained
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import print_line

broker_app = typer.Typer(
    name="broker", help="Keys and permissions of NATS, the bus.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(broker_app, name="broker")


@broker_app.callback()
def root() -> None:
    """Keys and permissions of NATS, the bus."""


@broker_app.command()
def config(
    tenant: Annotated[
        list[str] | None, typer.Option(help="A tenant that may read its own decisions.")
    ] = None,
) -> None:
    """Print the configuration of a broker that stands by itself: settings and permissions.

    Keys are not in it: it includes what `spotline broker keys` writes.
    """
    with explained():
        from spotline.runtime.broker_access import deployed

        text = deployed(tenant or ())
    typer.echo(text, nl=False)


@broker_app.command()
def keys(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the keys.")],
    host: Annotated[
        list[str] | None, typer.Option(help="A name by which services reach the broker.")
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="A tenant that may read its own decisions.")
    ] = None,
    containers: Annotated[
        bool,
        typer.Option(
            "--containers",
            help="Let containers of other users read the files that are mounted into them.",
        ),
    ] = False,
) -> None:
    """Make what is missing of the keys of a broker that stands by itself, and its certificate.

    DIR/nats is what the broker reads, with its configuration; each service gets its own
    DIR/nats/SERVICE.seed, and DIR/nats/ca.pem.
    """
    with explained():
        from spotline.bootstrap.bus_identities import keys_for_broker

        identities = keys_for_broker(
            to, hosts=tuple(host or ()), tenants=tuple(tenant or ()), containers=containers
        )
    print_line(f"keys of {len(identities.names())} identities in {identities.folder}")


@broker_app.command()
def tenant(
    name: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")],
    store: StoreOption = None,
) -> None:
    """Give a tenant a key with which it reads its own decisions, and nothing else.

    A running system lets it in at once; what was decided before comes after the next start.
    """
    with explained():
        from spotline.bootstrap.auditing import record_command
        from spotline.bootstrap.bus_identities import add_tenant
        from spotline.contracts.bus_access import history_subject, tenant_identity

        folder = store_folder(store, quiet=True)
        with record_command(folder, "broker tenant", target=f"tenant={name}"):
            seed, let_in = add_tenant(folder, name)
    print_line(f"{tenant_identity(name)}: {seed}")
    print_line(f"  decisions from the beginning on: {history_subject(name)}")
    if not let_in:
        print_line("  the broker knows it from the next start on")


@broker_app.command()
def rotate(store: StoreOption = None) -> None:
    """Draw all keys of a store's bus anew, while its system runs."""
    with explained():
        from spotline.bootstrap.auditing import record_command
        from spotline.bootstrap.bus_identities import rotate_identities

        folder = store_folder(store, quiet=True)
        with record_command(folder, "broker rotate"):
            reloaded = rotate_identities(folder)
    print_line("the keys are new" + (", and the broker has read them" if reloaded else ""))
