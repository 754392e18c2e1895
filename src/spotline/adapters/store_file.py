"""`store.json`: what a store says of itself, whole or not at all."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spotline import __version__
from spotline.adapters.whole_file import opened, replacing
from spotline.application.installation import Installation, StoreIdentity
from spotline.application.market_ingest.continuing import MarketIdentity
from spotline.contracts.errors import ConfigError

STORE_FILE = "store.json"
STORE_FORMAT = 1
_MOST_BYTES = 1 << 24
_ID_BYTES = 16


def new_installation() -> Installation:
    """An installation that nobody has: its id is random."""
    return Installation(installation_id=secrets.token_hex(_ID_BYTES))


def new_identity(installation: Installation) -> StoreIdentity:
    """What a store says of itself that this release makes."""
    return StoreIdentity(installation=installation, made_by=__version__, last_used_by=__version__)


def write_identity(store: Path, identity: StoreIdentity) -> None:
    """Replace what a store says of itself: a reader sees the old one or the new one.

    Raises
    ------
    ConfigError
        The store's folder cannot be written to.
    """
    said = asdict(identity)
    said["installation_id"] = said.pop("installation")["installation_id"]
    try:
        with (
            replacing(store / STORE_FILE) as unfinished,
            unfinished.open("w", encoding="utf-8") as file,
        ):
            json.dump({"format_version": STORE_FORMAT, **said}, file, indent=2, sort_keys=True)
            file.write("\n")
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError(
            f"{store / STORE_FILE}: expected a folder that can be written to, found: {found}; make "
            "it writable, or go on with a copy: spotline store backup, spotline store restore"
        ) from error


def read_identity(store: Path) -> StoreIdentity | None:
    """What a store says of itself, None for one that says nothing yet.

    Raises
    ------
    ConfigError
        It was written by a newer release, or is not what was written; says what to do.
    """
    path = store / STORE_FILE
    try:
        with opened(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{path}: expected a readable file, found: {error.strerror or error}"
        ) from error
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "JSON", str(error)) from error
    if not isinstance(said, dict):
        raise _damaged(path, "an object", type(said).__name__)
    version = said.get("format_version")
    if isinstance(version, int) and version > STORE_FORMAT:
        raise ConfigError(
            f"{path}: format_version: expected at most {STORE_FORMAT}, found {version}: the store was "
            f"last used by Spotline {said.get('last_used_by', '(unknown)')}, this is {__version__}; "
            "start that release or a newer one, or give another store"
        )
    try:
        return _identity(said)
    except KeyError as error:
        raise _damaged(path, f"the field {error.args[0]}", "nothing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, "what a store writes", str(error)) from error


def _identity(said: Mapping[str, Any]) -> StoreIdentity:
    market = said["market"]
    return StoreIdentity(
        installation=Installation(installation_id=said["installation_id"]),
        made_by=str(said["made_by"]),
        last_used_by=str(said["last_used_by"]),
        partitions=tuple(int(partition) for partition in said["partitions"]),
        market=None
        if market is None
        else MarketIdentity(
            source=str(market["source"]),
            slot_s=int(market["slot_s"]),
            first_slot_ns=int(market["first_slot_ns"]),
            offerings={str(name): str(kind) for name, kind in market["offerings"].items()},
            places=tuple(str(place) for place in market["places"]),
        ),
        incarnation=int(said["incarnation"]),
        log_created=str(said["log_created"]),
        last_seq=int(said["last_seq"]),
        last_slot=int(said["last_slot"]),
        restored=str(said["restored"]),
        # Stores of before do not say it.
        last_digest=str(said.get("last_digest", "")),
    )


def _damaged(path: Path, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"{path}: expected {expected}, found: {found}; look with spotline store check, then take the "
        "file from a backup (spotline store restore)"
    )
