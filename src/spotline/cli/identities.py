"""Options of commands that start servers: whether callers are asked who they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotline.bootstrap.identity import IdentityAt

NO_IDENTITY = (
    "identity is off: whoever reaches these ports may do anything, and nothing is encrypted"
)

AskIdentity = Annotated[
    bool,
    typer.Option(
        "--identity/--no-identity",
        envvar="SPOTLINE_IDENTITY",
        help="Speak TLS and ask callers who they are; this user's commands find what it takes.",
    ),
]
IdentityHosts = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME",
        envvar="SPOTLINE_IDENTITY_HOSTS",
        help="As what servers are reached from elsewhere: their certificates name these.",
    ),
]
Issuers = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="SPOTLINE_IDENTITY_ISSUERS",
        help="Issuers whose JWTs count beside our API keys (docs/identity.md).",
    ),
]
Mtls = Annotated[
    bool,
    typer.Option(
        "--mtls/--no-mtls",
        envvar="SPOTLINE_IDENTITY_MTLS",
        help="Callers must show a certificate of the store's authority, too.",
    ),
]


def asked_identity(
    store: Path,
    hosts: str = "",
    issuers: Path | None = None,
    *,
    asked: bool,
    mtls: bool = False,
) -> IdentityAt | None:
    """The identity of a store, None where none is asked for: that is said each time."""
    from spotline.bootstrap.identity import IdentityAt

    if not asked:
        typer.echo(NO_IDENTITY, err=True)
        return None
    names = tuple(name.strip() for name in hosts.split(",") if name.strip())
    return IdentityAt(store=store, hosts=names, issuers=issuers, mtls=mtls)
