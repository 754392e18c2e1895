"""Whose a store is: found before anything is touched, kept once it may be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spotline import __version__
from spotline.adapters.store_file import (
    STORE_FILE,
    new_identity,
    new_installation,
    read_identity,
    write_identity,
)
from spotline.application.installation import Installation, StoreIdentity, store_differences
from spotline.application.market_ingest.continuing import MarketIdentity
from spotline.contracts.errors import ConfigError


def checked_store(
    store: Path, market: MarketIdentity, *, partition: int, from_now: bool
) -> StoreIdentity:
    """What the store says of itself, or a new identity where it says nothing; writes nothing.

    Raises
    ------
    ConfigError
        It was made with another market, geography or partition, or used by a newer release.
    """
    identity = read_identity(store)
    if identity is None:
        return new_identity(new_installation())
    problems = [
        f"market: {problem}"
        for problem in store_differences(identity, market, partition=partition, from_now=from_now)
    ]
    if problems:
        made = identity.market.source if identity.market is not None else ""
        problems[-1] += (
            f" (the store {store} was made with {made!r}, given is {market.source!r}: give the "
            "market and geography that it began with, or another store)"
        )
        raise ConfigError("\n".join(problems))
    return identity


def used_store(
    store: Path, identity: StoreIdentity, market: MarketIdentity, *, partition: int
) -> StoreIdentity:
    """Keep in the store what it is used with, and by which release.

    Raises
    ------
    ConfigError
        It cannot be written to.
    """
    used = replace(
        identity,
        last_used_by=__version__,
        market=identity.market or market,
        partitions=identity.partitions or (partition,),
    )
    if used != identity or not (store / STORE_FILE).exists():
        write_identity(store, used)
    return used


def installation_of(store: Path) -> Installation:
    """Whose a store is; one that does not say so belongs to a new installation from now on.

    Raises
    ------
    ConfigError
        What it says cannot be read, or it cannot be written to.
    """
    identity = read_identity(store)
    if identity is None:
        store.mkdir(parents=True, exist_ok=True)
        identity = new_identity(new_installation())
        write_identity(store, identity)
    return identity.installation
