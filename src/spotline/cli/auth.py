"""`spotline auth`: keys of callers, their rotation, and who one is."""

# Imports of what the commands use are inside them: they cost more than `--help` should.

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.cli.calls import DEFAULT_ADDRESS, Address, AsJson, answered
from spotline.cli.failures import explained, writable
from spotline.cli.jobs_view import print_json
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import Column, Kind, print_facts, print_line, print_table

if TYPE_CHECKING:
    from spotline.adapters.identity.api_keys import ApiKey
    from spotline.adapters.identity.folder import IdentityFolder
    from spotline.application.identity.grants import RoleGrant
    from spotline.contracts.access import Caller

auth_app = typer.Typer(
    name="auth", help="Who may call: keys, their rotation, and who one is.", no_args_is_help=True
)
token_app = typer.Typer(
    name="token", help="API keys of a store (docs/identity.md).", no_args_is_help=True
)
keys_app = typer.Typer(name="keys", help="The keys that a store itself made.", no_args_is_help=True)
auth_app.add_typer(token_app)
auth_app.add_typer(keys_app)

_NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(auth_app)


# --- keys of callers ----------------------------------------------------------------------------


@token_app.command("create")
def create_token(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Who holds it; the audit names them so.")
    ],
    role: Annotated[str, typer.Option(help="owner, operator, viewer or service.")],
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Whose; an owner needs one, a viewer may have one.")
    ] = "",
    expires: Annotated[
        str,
        typer.Option(
            metavar="WHEN", help="A duration such as 90d, a time with its zone, or never."
        ),
    ] = "90d",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, for you only."),
    ] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key, and print it: it is kept nowhere, and cannot be shown again."""
    with explained(as_json=as_json):
        from spotline.adapters.identity.folder import IdentityFolder
        from spotline.adapters.identity.private_files import write_private
        from spotline.bootstrap.auditing import record_command

        ends = _moment(expires)
        grant = _grant(role, tenant)
        path = _key_store(store, quiet=as_json)
        with record_command(path, "auth token create", target=f"name={name}") as record:
            folder = IdentityFolder(path)
            token = folder.keys.create(name, grant, expires=ends)
            made = folder.keys.listed()[-1]
            record.target = f"key={made.key_id} {_granted(made)}"
        if output is not None:
            with writable(output):
                write_private(output, token.encode() + b"\n")
    if as_json:
        shown = {} if output is not None else {"token": token}
        print_json({**_as_json(made), **shown})
        return
    if output is None:
        typer.echo(token)
    what = f"of {made.grant.tenant}" if made.grant.tenant else "of no tenant"
    print_line(
        f"{made.grant.role.value} {made.name} {what}, key {made.key_id}, {_end(made)}", err=True
    )


@token_app.command("list")
def list_tokens(store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the API keys of a store, oldest first; never a secret."""
    with explained(as_json=as_json):
        keys = _folder(store, quiet=as_json).keys.listed()
    if as_json:
        print_json([_as_json(key) for key in keys])
        return
    now = datetime.now(UTC)
    print_table(
        (
            Column("key", Kind.ID),
            Column("name", rank=1),
            Column("role", rank=1),
            Column("tenant", rank=2),
            Column("created", rank=4),
            Column("state", Kind.SENTENCE, rank=3),
        ),
        [
            (
                key.key_id,
                key.name,
                key.grant.role.value,
                key.grant.tenant,
                _written(key.created),
                key.ended(now) or _end(key),
            )
            for key in keys
        ],
    )


@token_app.command("revoke")
def revoke_token(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, or its name.")],
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """End an API key: running servers refuse it with the next call."""
    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import record_command

        folder = _folder(store, quiet=as_json)
        # What was typed may be a key by mistake: the record says which one it was once that is found.
        with record_command(folder.path.parent, "auth token revoke") as record:
            revoked = folder.keys.revoke(key)
            record.target = f"key={revoked.key_id} {_granted(revoked)}"
    if as_json:
        print_json(_as_json(revoked))
        return
    print_line(f"key {revoked.key_id} ({revoked.name}) was revoked at {_written(revoked.revoked)}")


# --- keys of the store --------------------------------------------------------------------------


@keys_app.command("rotate")
def rotate_keys(
    overlap: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long the old keys of services stay good."),
    ] = "1d",
    distrust: Annotated[
        bool,
        typer.Option(
            "--distrust",
            help="Trust the old authority no more, at once: after a theft. Servers need a restart.",
        ),
    ] = False,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire", help="Draw nothing new: end the trust in the authority before the last one."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Draw new keys of the authority, the services, the bus, and the person who runs them.

    They may run meanwhile.

    Keys made by `spotline auth token create` stay as they are. Instances that have joined stay with
    their jobs: each gets its next session by the secret that its agent keeps.
    """
    with explained(as_json=as_json):
        from spotline.bootstrap.auditing import record_command

        seconds = _seconds(overlap, "--overlap")
        folder = _folder(store, quiet=as_json)
        how = "retire" if retire else "distrust" if distrust else f"overlap={seconds}s"
        with record_command(folder.path.parent, "auth keys rotate", target=how):
            if retire:
                done = {"retired": folder.retire_former()}
                _hand_out_again(folder.path.parent)
            else:
                folder.rotate(overlap=timedelta(seconds=seconds), keep_former=not distrust)
                done = {"rotated": True, "former_trusted": not distrust}
                _rotate_bus(folder.path.parent)
                _rotate_agents(folder.path.parent, None if distrust else seconds)
                _hand_out_again(folder.path.parent)
    if as_json:
        print_json({**done, "ca": str(folder.ca_file)})
        return
    if retire:
        found = "is trusted no more" if done["retired"] else "there was none"
        print_line(f"the authority of before the last rotation: {found}")
        return
    print_facts(
        [
            ("authority", "new; servers show it within seconds"),
            (
                "former one",
                "is trusted no more" if distrust else "stays trusted until --retire",
            ),
            ("keys of services", f"new; the old ones count for {overlap}"),
            (
                "sessions of instances",
                "signed anew; the old ones count " + ("no more" if distrust else f"for {overlap}"),
            ),
            ("keys of the bus", "new; services connect again with them"),
            ("your own keys", "new; commands take them from now on"),
            ("certificates", str(folder.ca_file)),
        ]
    )


@keys_app.command("deploy")
def deploy(
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name by which services are reached, beside their own and loopback."),
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="A tenant that may read its own decisions on the bus.")
    ] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Make the keys of services that run apart, and hand each its own: again, what has changed.

    STORE/identity/containers has a folder for each service, to be mounted into its container, and
    one for NATS. What signs them, and your own keys, stay in STORE/identity.
    """
    with explained(as_json=as_json):
        from spotline.adapters.identity.folder import FOLDER
        from spotline.bootstrap.auditing import record_command
        from spotline.bootstrap.deployed_keys import deploy_keys

        at = store_folder(store, quiet=as_json)
        named = ",".join((*(host or ()), *(tenant or ())))
        with record_command(at, "auth keys deploy", target=named):
            containers = deploy_keys(at, hosts=tuple(host or ()), tenants=tuple(tenant or ()))
        own = at / FOLDER
    if as_json:
        print_json({"containers": str(containers), "ca": str(own / "ca.pem")})
        return
    print_facts(
        [
            ("services", f"a folder each in {containers}"),
            ("certificates", str(own / "ca.pem")),
            ("your own keys", f"{own / 'tokens' / 'owner.key'}, operator.key beside it"),
        ]
    )


def _rotate_agents(store: Path, overlap_s: int | None) -> None:
    """Draw the key that signs sessions anew, where there is one; None: the old one counts no more."""
    from spotline.adapters.agents.keys import AgentKeys

    folder = store / "agents"
    if folder.is_dir():
        until = None if overlap_s is None else datetime.now(UTC) + timedelta(seconds=overlap_s)
        AgentKeys(folder).rotate(until)


def _hand_out_again(store: Path) -> None:
    from spotline.bootstrap.deployed_keys import deploy_again

    deploy_again(store)


def _rotate_bus(store: Path) -> None:
    """Draw the keys of the store's bus anew, too, where it has any."""
    from spotline.bootstrap.bus_identities import identities_of, rotate_identities

    if identities_of(store) is not None:
        rotate_identities(store)


# --- who one is ---------------------------------------------------------------------------------


@auth_app.command("whoami")
def whoami(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Say whom the token that commands show proves, and what it may do."""

    async def run() -> Caller | None:
        from spotline.adapters.grpc.identity.client import IdentityClient

        async with IdentityClient(address) as client:
            return await client.who_am_i()

    caller = answered(run(), as_json=as_json)
    if as_json:
        print_json(
            {"address": address}
            if caller is None
            else {
                "address": address,
                "subject": caller.subject,
                "role": caller.role.value,
                "tenant": caller.tenant,
                "credential_id": caller.credential_id,
            }
        )
        return
    if caller is None:
        print_line(f"{address} asks nobody who he is: everybody who reaches it may do everything")
        return
    from spotline.contracts.access import ROLE_MEANINGS

    print_facts(
        [
            ("you are", caller.subject),
            ("role", f"{caller.role.value}: {ROLE_MEANINGS[caller.role]}"),
            ("tenant", caller.tenant or "none in particular"),
            ("known by", caller.credential_id),
            ("at", address),
        ]
    )


# --- what the commands share --------------------------------------------------------------------


def _key_store(stated: Path | None, *, quiet: bool) -> Path:
    """The store that was stated; else that of the system that runs here, which asks for its keys."""
    from spotline.adapters.identity.endpoints import published_ca
    from spotline.adapters.identity.folder import FOLDER

    if stated is None:
        ca = published_ca(os.environ.get("SPOTLINE_ALLOCATOR_ADDRESS") or DEFAULT_ADDRESS)
        if ca is not None and ca.parent.name == FOLDER:
            return ca.parent.parent
    return store_folder(stated, quiet=quiet)


def _folder(store: Path | None, *, quiet: bool) -> IdentityFolder:
    """The keys of a store that has some."""
    from spotline.adapters.identity.folder import FOLDER, IdentityFolder
    from spotline.contracts.errors import ConfigError

    path = _key_store(store, quiet=quiet)
    if not (path / FOLDER).is_dir():
        raise ConfigError(
            f"--store: expected a store that has keys, found none in {path}; `spotline up` makes "
            "them at its first start"
        )
    return IdentityFolder(path)


def _grant(role: str, tenant: str) -> RoleGrant:
    from spotline.application.identity.grants import RoleGrant
    from spotline.contracts.access import Role
    from spotline.contracts.errors import ConfigError

    known = [one.value for one in Role if one is not Role.INSTANCE]
    if role not in known:
        raise ConfigError(f"--role: expected one of {', '.join(known)}, found {role!r}")
    try:
        return RoleGrant(role=Role(role), tenant=tenant)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error


def _moment(text: str) -> datetime | None:
    """A time, or how long from now; None: never."""
    from pydantic_core import PydanticCustomError

    from spotline.adapters.files.fields import time_ns
    from spotline.adapters.files.units import seconds_of
    from spotline.contracts.errors import ConfigError
    from spotline.domain.units import NS_PER_S

    if text == _NEVER:
        return None
    seconds = seconds_of(text)
    if seconds is not None:
        return datetime.now(UTC) + timedelta(seconds=seconds)
    try:
        return datetime.fromtimestamp(time_ns(text) / NS_PER_S, UTC)
    except PydanticCustomError:
        raise ConfigError(
            "--expires: expected a duration such as 90d, a time with its UTC offset, or never, "
            f"found {text!r}"
        ) from None


def _seconds(text: str, option: str) -> int:
    from spotline.adapters.files.units import A_DURATION, seconds_of
    from spotline.contracts.errors import ConfigError

    seconds = seconds_of(text)
    if seconds is None:
        raise ConfigError(f"{option}: expected {A_DURATION}, found {text!r}")
    return seconds


def _granted(key: ApiKey) -> str:
    """Whose a key is and what it may, for its record."""
    of = f" tenant={key.grant.tenant}" if key.grant.tenant else ""
    return f"name={key.name} role={key.grant.role.value}{of}"


def _end(key: ApiKey) -> str:
    return "never expires" if key.expires is None else f"expires at {_written(key.expires)}"


def _written(moment: datetime | None) -> str:
    from spotline.adapters.identity.wall_clock import written_moment

    return written_moment(moment)


def _as_json(key: ApiKey) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "role": key.grant.role.value,
        "tenant": key.grant.tenant,
        "created": _written(key.created),
        "expires": _written(key.expires) or None,
        "revoked": _written(key.revoked) or None,
    }
