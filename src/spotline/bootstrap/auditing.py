"""The audit of an installation: where it is, and the commands that change a store by themselves."""

from __future__ import annotations

import json
import os
import pwd
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from spotline.adapters.audit.chain_file import ChainFile, chains_in, lines_of
from spotline.adapters.audit.trail import ThreadedTrail
from spotline.application.identity.audit import (
    BEGUN,
    DONE,
    Act,
    AuditDoor,
    AuditedAct,
    ChainHead,
    ChainReport,
    LineUnreadable,
    joined,
    record_of,
    verified_chain,
)
from spotline.contracts.errors import AuditUnavailable, ConfigError, SpotlineError

FOLDER = "audit"
COMMANDS = "commands"
"""The chain of the commands that change a store by themselves, whoever gives them."""

_FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAt:
    """Where an installation's audit is: a folder of its store.

    Each service that answers callers has a chain of its own there.
    """

    store: Path

    @property
    def folder(self) -> Path:
        """The folder of the chains."""
        return self.store / FOLDER

    def trail(self, service: str) -> ThreadedTrail:
        """What a service records to; the caller closes it.

        Raises
        ------
        ConfigError
            The folder cannot be made.
        """
        try:
            return ThreadedTrail(ChainFile(self.folder, service))
        except AuditUnavailable as error:
            raise ConfigError(f"audit: {error}") from error


@dataclass(slots=True, kw_only=True)
class CommandRecord:
    """A command that is being recorded; what it finds out while it runs may be filled in."""

    target: str = ""


@contextmanager
def record_command(store: Path, action: str, *, target: str = "") -> Iterator[CommandRecord]:
    """Record a command that changes a store: that it begins, and what came of it.

    Nothing is done where it cannot be recorded.

    Parameters
    ----------
    store
        The store that it changes; its audit has the record.
    action
        The command, as `auth token create`.
    target
        What it changes, as `key=ann`: ids and names, never a secret. May be filled in later.

    Raises
    ------
    ConfigError
        It cannot be recorded: nothing was done.
    """
    said = CommandRecord(target=target)
    with _chain(store) as chain:
        began = _act(action, BEGUN, target)
        seq = _append(chain, began)
        try:
            yield said
        except BaseException as error:
            reason = type(error).__name__
            _settle(chain, replace(began, outcome=_FAILED, reason=reason, of_seq=seq), said)
            raise
        _settle(chain, replace(began, outcome=DONE, of_seq=seq), said)


def note_command(store: Path, action: str, *, target: str = "") -> None:
    """Record a command that has made the store; `ConfigError` where that cannot be."""
    with _chain(store) as chain:
        _append(chain, _act(action, DONE, target))


@contextmanager
def _chain(store: Path) -> Iterator[ChainFile]:
    try:
        chain = ChainFile(store / FOLDER, COMMANDS)
    except AuditUnavailable as error:
        raise ConfigError(f"audit: {error}; nothing was done") from error
    try:
        yield chain
    finally:
        chain.close()


def _append(chain: ChainFile, act: Act) -> int:
    try:
        return chain.append([act])[0].seq
    except AuditUnavailable as error:
        raise ConfigError(f"audit: {error}; nothing was done") from error


def _settle(chain: ChainFile, act: Act, said: CommandRecord) -> None:
    try:
        chain.append([replace(act, ts_ns=time.time_ns(), target=said.target)])
    except AuditUnavailable as error:
        raise SpotlineError(
            f"audit: {error}; the command was carried out, its record says only that it began"
        ) from error


def _act(action: str, outcome: str, target: str) -> Act:
    user = os.geteuid()
    return Act(
        ts_ns=time.time_ns(),
        door=AuditDoor.COMMAND,
        action=action,
        outcome=outcome,
        subject=_user_name(user),
        credential_id=f"uid:{user}",
        target=target,
        peer=f"{socket.gethostname()}, process {os.getpid()}",
    )


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


# --- reading ------------------------------------------------------------------------------------


def audited_acts(store: Path) -> list[AuditedAct]:
    """What was done in a store, or tried, by when it began, from all of its chains.

    Raises
    ------
    ConfigError
        A file cannot be read, or a line is no record: `spotline audit verify` says more.
    """
    folder = _folder_of(store)
    acts: list[AuditedAct] = []
    for chain in chains_in(folder):
        try:
            acts += joined(chain, map(record_of, _lines(folder, chain)))
        except LineUnreadable as error:
            raise ConfigError(
                f"{folder / chain}: {error}; see what is broken: spotline audit verify --store {store}"
            ) from error
    return sorted(acts, key=lambda each: (each.act.ts_ns, each.chain, each.seq))


def verified_chains(store: Path, kept: Mapping[str, ChainHead]) -> list[ChainReport]:
    """What each chain of a store is found to be, and those of which a head was kept.

    Raises
    ------
    ConfigError
        A file cannot be read.
    """
    folder = _folder_of(store)
    return [
        verified_chain(chain, _lines(folder, chain), [kept[chain]] if chain in kept else [])
        for chain in sorted({*chains_in(folder), *kept})
    ]


def kept_heads(file: Path) -> dict[str, ChainHead]:
    """The heads that `spotline audit verify --json` printed to a file.

    Raises
    ------
    ConfigError
        It is another file.
    """
    try:
        chains = json.loads(file.read_text(encoding="utf-8"))["chains"]
        return {
            str(said["chain"]): ChainHead(seq=int(said["records"]), sha256=str(said["sha256"]))
            for said in chains
            # The head of an empty chain says nothing.
            if said["records"]
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{file}: expected what `spotline audit verify --json` prints, found: {error!r:.200}"
        ) from error


def _folder_of(store: Path) -> Path:
    if not store.is_dir():
        raise ConfigError(f"{store}: expected the folder of a store, found none")
    return store / FOLDER


def _lines(folder: Path, chain: str) -> Iterator[str]:
    try:
        yield from lines_of(folder, chain)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: expected a file that can be read, found: {error.strerror}"
        ) from error
