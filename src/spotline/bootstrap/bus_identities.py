"""The identities of a store's bus: made at its first start, changed while it runs."""

from __future__ import annotations

from pathlib import Path

import structlog

from spotline.adapters.identity.authority import Authority
from spotline.adapters.identity.private_files import check_private, make_private_folder
from spotline.adapters.nats.identities import IdentitiesInFolder
from spotline.contracts.errors import ConfigError
from spotline.runtime.broker import reload_running

IDENTITY_FOLDER = "identity"
AUTHORITY_FOLDER = "authority"
NATS_FOLDER = "nats"
BROKER_FOLDER = "broker"

_log = structlog.get_logger(__name__)


def bus_identities(store: Path, nats_url: str) -> IdentitiesInFolder | None:
    """The identities to run a store's system with; None with an external broker that asks nobody.

    Raises
    ------
    ConfigError
        Their folder cannot be used.
    """
    if nats_url and not nats_url.startswith("tls://"):
        _log.warning("open_bus", detail="whoever reaches the broker may publish as any service")
        return None
    return opened_identities(store / IDENTITY_FOLDER)


def opened_identities(folder: Path, *, hosts: tuple[str, ...] = ()) -> IdentitiesInFolder:
    """The identities in `STORE/identity`, with what is missing drawn, signed by its authority.

    Raises
    ------
    ConfigError
        The folder is another user's, can be read by others, or cannot be used.
    """
    try:
        for private in (folder, folder / AUTHORITY_FOLDER):
            make_private_folder(private)
            check_private(private)
        authority = Authority(folder / AUTHORITY_FOLDER, title="Spotline authority")
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"the identities in {folder} cannot be used: {error}") from error
    identities = IdentitiesInFolder(folder / NATS_FOLDER)
    identities.make(authority, hosts=hosts)
    return identities


def keys_for_broker(
    folder: Path, *, hosts: tuple[str, ...], tenants: tuple[str, ...] = (), containers: bool = False
) -> IdentitiesInFolder:
    """Make what is missing of the keys of a broker that stands by itself, reached at `hosts`.

    With `containers` files may be read by others, as whom containers run; nobody but its owner gets
    into their folder itself.

    Raises
    ------
    ConfigError
        The folder is another user's, can be read by others, or cannot be used.
    """
    identities = opened_identities(folder, hosts=hosts)
    for tenant in tenants:
        identities.add_tenant(tenant)
    if containers:
        for file in identities.folder.iterdir():
            file.chmod(0o644)
    return identities


def rotate_identities(store: Path) -> bool:
    """Draw the keys of a store's bus anew, and its broker's certificate where that is due.

    Returns
    -------
    bool
        Whether a broker runs, which has read them by now: services connect again with the new ones.

    Raises
    ------
    ConfigError
        The store's bus has no identities, or their folder cannot be used.
    """
    if identities_of(store) is None:
        raise ConfigError(f"{store}: expected a store that was started with identities, found none")
    identities = opened_identities(store / IDENTITY_FOLDER)
    identities.rotate()
    return reload_running(store / BROKER_FOLDER, identities.access())


def add_tenant(store: Path, tenant: str) -> tuple[Path, bool]:
    """Give a tenant an identity that reads its own decisions.

    Returns
    -------
    tuple[Path, bool]
        The file of its seed, and whether a running broker lets it in already.

    Raises
    ------
    ConfigError
        No identity can have the tenant's name, or the folder cannot be used.
    """
    identities = opened_identities(store / IDENTITY_FOLDER)
    seed = identities.add_tenant(tenant)
    return seed, reload_running(store / BROKER_FOLDER, identities.access())


def identities_of(store: Path) -> IdentitiesInFolder | None:
    """The identities of a store's bus; None where it was never started with any."""
    folder = store / IDENTITY_FOLDER / NATS_FOLDER
    return IdentitiesInFolder(folder) if folder.is_dir() else None
