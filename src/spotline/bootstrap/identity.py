"""Who the servers and clients of an installation are: opened once, handed to every service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from spotline.adapters.identity.endpoints import (
    ClientIdentity,
    publish_endpoint,
    read_token_file,
    withdraw_endpoint,
)
from spotline.adapters.identity.folder import FOLDER, IdentityFolder
from spotline.adapters.identity.handed_out import ServiceKeys
from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.adapters.identity.shown import ServerIdentity

# Bound so, a server is reached by names that nobody stated.
_ANY_NAME = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAt:
    """Where an installation's keys are, and what its servers ask of callers.

    Parameters
    ----------
    store
        Its folder `identity` holds authority and keys, and is made where it is missing.
    hosts
        As what servers are reached, beside loopback: their certificates name these.
    issuers
        File of issuers whose JWTs count, too (docs/identity.md); None: API keys alone do.
    mtls
        Whether callers, too, must show a certificate of the installation's authority.
    """

    store: Path
    hosts: tuple[str, ...] = ()
    issuers: Path | None = None
    mtls: bool = False

    def check(self) -> None:
        """Say what is wrong with what is there already, and make nothing.

        Raises
        ------
        ConfigError, ContractError
            As `InstalledIdentity`.
        """
        if (self.store / FOLDER).exists():
            IdentityFolder(self.store)
        if self.issuers is not None:
            JwtTokens.of_file(self.issuers)


class ServiceIdentities(Protocol):
    """Who the servers and clients of a process are."""

    def server(self) -> ServerIdentity:
        """What one server shows, and knows callers by."""
        ...

    def client(self, service: str) -> ClientIdentity:
        """By what a service is known to the others."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysAt:
    """Where a service that runs apart has its keys (`spotline auth keys deploy`); as `IdentityAt`."""

    folder: Path
    issuers: Path | None = None
    mtls: bool = False


class ApartIdentity:
    """The identity of one service that runs apart; `ServiceIdentities` of that one.

    Raises
    ------
    ConfigError
        A key is absent.
    ContractError
        The file of issuers is not as expected: names each field.
    """

    def __init__(self, at: KeysAt) -> None:
        self._at = at
        self._keys = ServiceKeys(at.folder)
        if at.issuers is not None:
            JwtTokens.of_file(at.issuers)

    def server(self) -> ServerIdentity:
        """See `ServiceIdentities`."""
        readers = () if self._at.issuers is None else (JwtTokens.of_file(self._at.issuers),)
        return ServerIdentity(
            authenticator=self._keys.authenticator(*readers),
            key_and_chain=self._keys.key_and_chain(),
            look=self._keys.key_and_chain,
            clients_ca_pem=self._keys.ca_pem() if self._at.mtls else b"",
        )

    def client(self, service: str) -> ClientIdentity:
        """See `ServiceIdentities`: the keys are those of the service that has them."""
        return self._keys.client(mtls=self._at.mtls)


class InstalledIdentity:
    """The identity of an installation, as its services use it.

    Raises
    ------
    ConfigError
        The folder can be read by others, or cannot be used.
    ContractError
        The file of issuers is not as expected: names each field.
    """

    def __init__(self, at: IdentityAt) -> None:
        self._at = at
        self._folder = IdentityFolder(at.store)
        self._hosts = tuple(dict.fromkeys(_bare(host) for host in at.hosts if _is_name(host)))
        if at.issuers is not None:
            # What is wrong with it is said before anything is served.
            JwtTokens.of_file(at.issuers)

    def server(self) -> ServerIdentity:
        """What one server shows, and knows callers by."""
        readers = () if self._at.issuers is None else (JwtTokens.of_file(self._at.issuers),)
        return ServerIdentity(
            authenticator=self._folder.authenticator(*readers),
            key_and_chain=self._folder.server_identity(self._hosts),
            look=partial(self._folder.server_identity, self._hosts),
            clients_ca_pem=self._folder.authority.ca_pem.encode() if self._at.mtls else b"",
        )

    def client(self, service: str) -> ClientIdentity:
        """By what a service is known to the others; a rotated key is taken while it runs."""
        return self._folder.service_identity(service, mtls=self._at.mtls)

    def owners_token(self) -> str:
        """What the person who runs it hands in jobs with; `ConfigError` where it cannot be read."""
        path = self._folder.token_file("owner")
        return read_token_file(path, str(path))

    def publish(self, addresses: Sequence[str]) -> Callable[[], None]:
        """Tell this user's clients what these addresses ask for, until the result is called."""
        endpoint = self._folder.endpoint(mtls=self._at.mtls)
        for address in addresses:
            publish_endpoint(address, endpoint)

        def withdraw() -> None:
            for address in addresses:
                withdraw_endpoint(address)

        return withdraw


def serve_in_the_clear(addresses: Sequence[str]) -> None:
    """Tell this user's clients that these addresses ask for nothing, whatever stood there before."""
    for address in addresses:
        withdraw_endpoint(address)


def _is_name(host: str) -> bool:
    return bool(host) and host not in _ANY_NAME


def _bare(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")
