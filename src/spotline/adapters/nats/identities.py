"""As whom a process connects to the bus: seeds in files, read anew with every connection."""

from __future__ import annotations

import base64
import secrets
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from spotline.adapters.identity.authority import Authority
from spotline.adapters.identity.private_files import (
    check_private,
    locked,
    make_private_folder,
    write_private,
)
from spotline.adapters.nats.nkeys import UserKey
from spotline.contracts.bus_access import (
    CONNECTIONS,
    IDENTITIES,
    SETS_UP,
    TENANT,
    inbox_prefix,
    reader_names,
    tenant_identity,
)
from spotline.contracts.errors import ConfigError
from spotline.runtime.broker_access import BrokerAccess, variables

CA_FILE = "ca.pem"
SERVER_FILES = ("server.pem", "server.key")
KEYS_FILE = "keys.inc"
_SEED = ".seed"


class ConsumerNames:
    """The names that passing consumers of an identity may have; each is used by one at a time.

    Another process of the same identity has the same names. So each begins somewhere else, and
    whoever takes a name removes the consumer that is there: its reader opens another.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._next = secrets.randbelow(len(names))
        self._taken: set[str] = set()
        self._turn = threading.Lock()

    def take(self) -> str:
        """A name that is free in this process.

        Raises
        ------
        ConfigError
            All are taken.
        """
        with self._turn:
            for _ in self._names:
                name = self._names[self._next]
                self._next = (self._next + 1) % len(self._names)
                if name not in self._taken:
                    self._taken.add(name)
                    return name
        raise ConfigError(
            f"more than {len(self._names)} consumers read at once as {self._names[0]}"
        )

    def give(self, name: str) -> None:
        """Let a name be taken again."""
        with self._turn:
            self._taken.discard(name)


@cache
def consumer_names(seed: Path, identity: str) -> ConsumerNames:
    """Those of an identity, for all connections of this process that have it."""
    return ConsumerNames(reader_names(identity))


@dataclass(frozen=True, slots=True, kw_only=True)
class BusIdentity:
    """One identity, as a connection shows it.

    Parameters
    ----------
    name
        One of `contracts.bus_access.IDENTITIES`, or a tenant's.
    seed
        The file of its key.
    ca
        The file of the certificates that sign the broker's.
    """

    name: str
    seed: Path
    ca: Path

    @property
    def sets_up(self) -> bool:
        """Whether it may make streams."""
        return self.name in SETS_UP

    @contextmanager
    def consumer(self) -> Iterator[str]:
        """A name for a passing consumer."""
        names = consumer_names(self.seed, self.name)
        name = names.take()
        try:
            yield name
        finally:
            names.give(name)

    def key(self) -> UserKey:
        """Its key as it is now.

        Raises
        ------
        ConfigError
            The file is absent, holds no seed, or can be read by others.
        """
        return read_seed(self.seed)

    def options(self) -> dict[str, Any]:
        """What `HeedfulClient.connect` is to be told, read from the files as they are now.

        Raises
        ------
        ConfigError
            A file is absent or not what it should be.
        """
        key = self.key()
        try:
            tls = ssl.create_default_context(cadata=self.ca.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.ca}: expected the certificates that sign the broker's: {error}"
            ) from error
        return {
            "nkey": key.public,
            "signature_cb": lambda nonce: base64.b64encode(key.sign(nonce.encode())),
            "inbox_prefix": inbox_prefix(self.name),
            "tls": tls,
        }


class BusIdentities(Protocol):
    """Where a process finds the identity of each of its connections."""

    def of(self, connection: str) -> BusIdentity:
        """The identity of a connection by its name, such as `selector` or `explain`."""
        ...


class OneIdentity:
    """The identity of a process that has one: all its connections have it."""

    def __init__(self, seed: Path, ca: Path) -> None:
        name = seed.name.removesuffix(_SEED)
        if name not in IDENTITIES and not name.startswith(TENANT):
            raise ConfigError(
                f"SPOTLINE_NATS_SEED: the file must be named as an identity, such as selector{_SEED}; "
                f"was {seed.name!r}, known are {', '.join(IDENTITIES)}"
            )
        self._identity = BusIdentity(name=name, seed=seed, ca=ca)
        self._identity.options()

    def of(self, connection: str) -> BusIdentity:
        """See `BusIdentities`."""
        return self._identity


class IdentitiesInFolder:
    """All identities of a bus: their seeds in a folder, and the broker's certificate.

    Parameters
    ----------
    folder
        `STORE/identity/nats`; made where it is not there, with a key for each identity.

    Raises
    ------
    ConfigError
        The folder is another user's, can be read by others, or cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, authority: Authority, *, hosts: tuple[str, ...] = ()) -> None:
        """Draw what is missing: a key per identity, and a certificate of the server at `hosts`."""
        with self._usable():
            make_private_folder(self.folder)
            check_private(self.folder)
            key, chain = authority.server_identity(hosts, name="nats", subject="Spotline NATS")
            with locked(self.folder):
                for identity in IDENTITIES:
                    if not self._seed(identity).exists():
                        self._draw(identity)
                _keep(self.folder / CA_FILE, authority.ca_pem.encode())
                for file, content in zip(SERVER_FILES, (chain, key), strict=True):
                    _keep(self.folder / file, content)
                self._note_keys()

    def add_tenant(self, tenant: str) -> Path:
        """Draw a key for a tenant unless it has one; the file of its seed.

        Raises
        ------
        ConfigError
            No identity can have the tenant's name.
        """
        identity = tenant_identity(tenant)
        with self._usable(), locked(self.folder):
            if not self._seed(identity).exists():
                self._draw(identity)
            self._note_keys()
        return self._seed(identity)

    def rotate(self) -> None:
        """Draw every key anew; the broker has to read its configuration again."""
        with self._usable(), locked(self.folder):
            for identity in self.names():
                self._draw(identity)
            self._note_keys()

    def names(self) -> tuple[str, ...]:
        """The identities that have a key, ours before the tenants'."""
        found = {path.name.removesuffix(_SEED) for path in self.folder.glob(f"*{_SEED}")}
        tenants = sorted(name for name in found if name.startswith(TENANT))
        return (*(name for name in IDENTITIES if name in found), *tenants)

    def tenants(self) -> tuple[str, ...]:
        """The tenants that have an identity."""
        return tuple(n.removeprefix(TENANT) for n in self.names() if n.startswith(TENANT))

    def access(self, partition: int = 0) -> BrokerAccess:
        """What the broker is to know of them."""
        certificate, key = (self.folder / name for name in SERVER_FILES)
        return BrokerAccess(
            public_keys=self._public_keys(), certificate=certificate, key=key, partition=partition
        )

    def of(self, connection: str) -> BusIdentity:
        """See `BusIdentities`."""
        name = CONNECTIONS.get(connection, connection)
        return BusIdentity(name=name, seed=self._seed(name), ca=self.folder / CA_FILE)

    def _public_keys(self) -> Mapping[str, str]:
        return {name: read_seed(self._seed(name)).public for name in self.names()}

    def _seed(self, identity: str) -> Path:
        return self.folder / f"{identity}{_SEED}"

    def _draw(self, identity: str) -> None:
        write_private(self._seed(identity), f"{UserKey.drawn().seed}\n".encode())

    def _note_keys(self) -> None:
        """Write what a deployed broker's configuration includes."""
        _keep(self.folder / KEYS_FILE, variables(self._public_keys()).encode())

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the bus identities in {self.folder} cannot be used: {error}"
            ) from error


def read_seed(path: Path) -> UserKey:
    """The key in a file.

    Raises
    ------
    ConfigError
        It is absent or holds no seed; the message does not hold what it does.
    """
    try:
        return UserKey.from_seed(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = error if not isinstance(error, UnicodeError) else "it is not ASCII"
        raise ConfigError(f"{path}: expected the seed of a NATS user, SU...: {reason}") from None


def _keep(path: Path, content: bytes) -> None:
    """Write a file, unless it holds that."""
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)
