"""Copies of a store: made while it runs or stands still, verified, and put back where nothing is."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spotline import __version__
from spotline.adapters.audit.chain_file import copy_chains
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.nats.stream_copy import copy_stream, put_stream
from spotline.adapters.store_file import (
    STORE_FILE,
    new_identity,
    new_installation,
    read_identity,
    write_identity,
)
from spotline.adapters.whole_file import replacing
from spotline.bootstrap.auditing import FOLDER as AUDIT_FOLDER
from spotline.bootstrap.installed import LEDGER_FILE, LEDGER_OWNER
from spotline.bootstrap.standing_costs import CLOUD_FILE
from spotline.bootstrap.store_opened import BROKER_FOLDER, connected, refuse_absent
from spotline.contracts.errors import ConfigError
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.runtime.broker import EmbeddedBroker

MANIFEST_FILE = "backup.json"
BACKUP_FORMAT = 1
AGENTS_FOLDER = "agents"

_CONNECT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a copy holds: `files` are digests by name, `streams` the last entry of each."""

    installation_id: str
    made: str
    files: Mapping[str, str]
    streams: Mapping[str, int]


async def back_up(store: Path, to: Path, *, nats_url: str = "", partition: int = 0) -> Backup:
    """Copy a store that runs or stands still to a new folder, and read back what was written.

    The log comes first and the ledger after it: of what happens meanwhile the ledger knows more,
    which a start makes up for; it never knows less.

    Raises
    ------
    ConfigError
        There is no store, the folder is there and not empty, or the copy is not what it should be.
    LedgerDamaged
        The ledger is: the copy is removed again.
    ProviderUnavailable
        The broker does not answer, or finds its stream damaged.
    """
    await asyncio.to_thread(_new_folder, store, to)
    try:
        streams: dict[str, dict[str, Any]] = {}
        async with connected(store, nats_url=nats_url, partition=partition) as (connection, _):
            link = await connection.link(timeout_s=_CONNECT_S)
            for part in StreamPart:
                name = stream_name(partition, part)
                said = await copy_stream(link.client, name, to / f"{name}.stream")
                if said is not None:
                    streams[name] = said
        return await asyncio.to_thread(_finished, store, to, streams)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, to, ignore_errors=True)
        raise


def _new_folder(store: Path, to: Path) -> None:
    refuse_absent(store)
    _refuse_full(to, "a new folder for the copy")
    to.mkdir(parents=True, exist_ok=True)
    # The keys of the instances' agents are among it.
    to.chmod(0o700)


def _refuse_full(folder: Path, expected: str) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: expected {expected}, found something in it")


def _finished(store: Path, to: Path, streams: Mapping[str, dict[str, Any]]) -> Backup:
    """Copy what is in files, note the digests, and look at all of it again."""
    if (store / LEDGER_FILE).exists():
        _copy_database(store / LEDGER_FILE, to / LEDGER_FILE)
        _audit(to / LEDGER_FILE)
    for name in (STORE_FILE, CLOUD_FILE):
        if (store / name).exists():
            shutil.copy2(store / name, to / name)
    if (store / AGENTS_FOLDER).is_dir():
        shutil.copytree(store / AGENTS_FOLDER, to / AGENTS_FOLDER)
    copy_chains(store / AUDIT_FOLDER, to / AUDIT_FOLDER)
    identity = read_identity(to)
    backup = Backup(
        installation_id="" if identity is None else identity.installation.installation_id,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        files=_digests(to),
        streams={name: int(said["state"]["last_seq"]) for name, said in streams.items()},
    )
    with replacing(to / MANIFEST_FILE) as unfinished:
        unfinished.write_text(
            json.dumps(
                {
                    "format_version": BACKUP_FORMAT,
                    "made_by": __version__,
                    "made": backup.made,
                    "installation_id": backup.installation_id,
                    "files": backup.files,
                    "streams": streams,
                },
                indent=2,
                sort_keys=True,
            )
            + "\n",
            encoding="utf-8",
        )
    read_backup(to)
    return backup


def _copy_database(source: Path, to: Path) -> None:
    """Copy a SQLite file as of one moment, whoever writes to it meanwhile."""
    with (
        _closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as before,
        _closing(sqlite3.connect(to)) as after,
    ):
        before.backup(after)


class _closing:
    """Close a connection at the end; sqlite3's own `with` only commits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _audit(file: Path) -> None:
    ledger = SqlLedger.looked_at(ledger_url(file), LEDGER_OWNER)
    try:
        ledger.audit()
    finally:
        ledger.close()
    # Looking makes them; the copy is the one file.
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): _sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST_FILE
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_backup(folder: Path) -> dict[str, Any]:
    """What a copy says of itself, when all of it is what was written.

    Raises
    ------
    ConfigError
        It is no copy, of a newer format, or a file is absent or another one.
    """
    path = folder / MANIFEST_FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        version, files = said["format_version"], dict(said["files"])
        streams = dict(said["streams"])
    except FileNotFoundError:
        raise ConfigError(f"{folder}: expected the folder of a backup, found none") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected what a backup writes, found: {error!r}") from error
    if version != BACKUP_FORMAT:
        raise ConfigError(
            f"{path}: format_version: expected {BACKUP_FORMAT}, found {version}; it was made by "
            f"Spotline {said.get('made_by', '(unknown)')}, this is {__version__}"
        )
    there = _digests(folder)
    wanted = {**files}
    for name in sorted(wanted.keys() | there.keys()):
        if wanted.get(name) != there.get(name):
            found = "none" if name not in there else f"one of digest {there[name]}"
            expected = wanted.get(name, "(none)")
            raise ConfigError(f"{folder / name}: expected digest {expected}, found {found}")
    for name in streams:
        if f"{name}.stream" not in files:
            raise ConfigError(f"{folder / name}.stream: expected this file, found none")
    return dict(said)


async def restore(backup: Path, store: Path) -> dict[str, Any]:
    """Put a copy back as a store that is not there yet; what the copy says of itself.

    Its first start begins another incarnation of the log: what came after the copy is lost to it,
    and the cloud may hold more than it knows.

    Raises
    ------
    ConfigError
        The copy is not what was written, or the store's folder is not empty.
    """
    said = await asyncio.to_thread(read_backup, backup)
    await asyncio.to_thread(_refuse_full, store, "an empty folder for the store")
    # Made beside its place: a store that is there is whole.
    unfinished = await asyncio.to_thread(_beside, store)
    try:
        async with (
            EmbeddedBroker(unfinished / BROKER_FOLDER) as broker,
            NatsConnection(broker.url, name="spotline-restore") as connection,
        ):
            link = await connection.link(timeout_s=_CONNECT_S)
            for name, content in said["streams"].items():
                await put_stream(link.client, name, content, backup / f"{name}.stream")
                await _check_restored(connection, name, content)
        await asyncio.to_thread(_put_files, backup, unfinished, said)
        await asyncio.to_thread(_put_in_place, unfinished, store)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
        raise
    return said


def _beside(store: Path) -> Path:
    store.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{store.name}.", suffix=".unfinished", dir=store.parent))


async def _check_restored(connection: NatsConnection, name: str, content: Any) -> None:
    stream = NatsEventStream(connection)
    stream.name = name
    last_seq, expected = await stream.last_seq(), int(content["state"]["last_seq"])
    if last_seq != expected:
        raise ConfigError(f"{name}: expected {expected} entries to be restored, found {last_seq}")


def _put_files(backup: Path, store: Path, said: Mapping[str, Any]) -> None:
    for name in said["files"]:
        if name.endswith(".stream"):
            continue
        # The folder of the audit, and that of keys, are this user's alone.
        (store / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(backup / name, store / name)
    identity = read_identity(store) or new_identity(new_installation())
    restored = f"restored from a copy that was made {said['made']}"
    write_identity(store, replace(identity, restored=restored))


def _put_in_place(unfinished: Path, store: Path) -> None:
    if store.exists():
        store.rmdir()
    unfinished.chmod(0o755)
    os.rename(unfinished, store)
