"""The keys of services that run apart, each in a folder of its own: made, and made anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from spotline.adapters.files.fields import Name, Part, read_part
from spotline.adapters.files.json_file import read_json
from spotline.adapters.identity.folder import FOLDER, SERVICES, IdentityFolder
from spotline.adapters.identity.handed_out import FOLDER as HANDED_OUT
from spotline.adapters.identity.handed_out import hand_out
from spotline.adapters.identity.private_files import write_private
from spotline.adapters.nats.identities import KEYS_FILE, SERVER_FILES
from spotline.bootstrap.bus_identities import opened_identities
from spotline.contracts.errors import ConfigError

BROKER = "nats"
_NOTE = "deployed.json"


class _NotePart(Part):
    """For whom the keys were made: a rotation makes them for the same."""

    format_version: Literal[1]
    hosts: Annotated[list[Name], Field(max_length=1_000)]


def deploy_keys(store: Path, *, hosts: Sequence[str] = (), tenants: Sequence[str] = ()) -> Path:
    """Make what is missing of the keys of an installation, and hand each service its own.

    Parameters
    ----------
    hosts
        Names by which the services are reached, beside their own and loopback. Once stated they
        stay: a later call adds to them.
    tenants
        Who gets a key of the bus to read its own decisions.

    Returns
    -------
    Path
        `STORE/identity/containers`: a folder for each service, and one for the broker.

    Raises
    ------
    ConfigError
        The folder is another user's, can be read by others, or cannot be used.
    ContractError
        It holds something else than was written.
    """
    folder = IdentityFolder(store)
    named = tuple(dict.fromkeys((*_noted(folder.containers), *hosts)))
    bus = opened_identities(folder.path, hosts=(BROKER, *named))
    for tenant in tenants:
        bus.add_tenant(tenant)
    try:
        for service in SERVICES:
            seed = bus.of(service).seed
            folder.hand_out(service, (service, *named), {seed.name: seed.read_bytes()})
        shown = {name: (bus.folder / name).read_bytes() for name in (KEYS_FILE, *SERVER_FILES)}
        hand_out(folder.containers / BROKER, shown)
        note = {"format_version": 1, "hosts": list(named)}
        write_private(folder.containers / _NOTE, json.dumps(note, indent=2).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"{folder.containers} cannot be used ({error})") from error
    return folder.containers


def deploy_again(store: Path) -> bool:
    """Hand out what has changed since; whether anything was ever handed out. Raises as before."""
    if not (store / FOLDER / HANDED_OUT).is_dir():
        return False
    deploy_keys(store)
    return True


def _noted(containers: Path) -> Sequence[str]:
    path = containers / _NOTE
    if not path.exists():
        return ()
    return tuple(read_part(_NotePart, read_json(path), where=str(path)).hosts)
