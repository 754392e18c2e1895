"""`STORE/identity/containers/NAME`: all that one service needs to prove itself, and no other's keys.

A service that runs apart gets its own folder and nothing else: its certificate, its token, its key
of the bus, the authority's certificates, and the digests of all API keys, by which it knows callers.
The folder above is its owner's alone; within, files can be read by whom a container runs as.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spotline.adapters.identity.api_keys import FILE as KEYS_FILE
from spotline.adapters.identity.api_keys import ApiKeys
from spotline.adapters.identity.authority import KeyAndChain
from spotline.adapters.identity.chain import AuthenticatorChain
from spotline.adapters.identity.endpoints import ClientIdentity, TokenFile
from spotline.adapters.identity.private_files import make_private_folder
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.adapters.whole_file import replacing
from spotline.application.identity.credentials import TokenReader
from spotline.contracts.errors import ConfigError

FOLDER = "containers"
CA_FILE = "ca.pem"
SERVER_FILES = ("server.key", "server.pem")
CLIENT_FILES = ("client.key", "client.pem")
TOKEN_FILE = "token.key"  # noqa: S105 - the name of a file

_SHARED_FOLDER, _SHARED_FILE = 0o755, 0o644


class ServiceKeys:
    """The keys of one service, in the folder that it was given; read, never written.

    Raises
    ------
    ConfigError
        A file is absent or not what it should be.
    """

    def __init__(self, folder: Path, *, now: Now = utc_now) -> None:
        self._folder = folder
        self._now = now
        for name in (CA_FILE, *SERVER_FILES, TOKEN_FILE, KEYS_FILE):
            self._read(name)

    def key_and_chain(self) -> KeyAndChain:
        """What its server shows, as it is now."""
        key, chain = (self._read(name) for name in SERVER_FILES)
        return key, chain

    def ca_pem(self) -> bytes:
        """The certificates that others' are checked against."""
        return self._read(CA_FILE)

    def authenticator(self, *more: TokenReader) -> AuthenticatorChain:
        """Who knows callers by the API keys of the installation, and by what `more` know."""
        keys = ApiKeys(self._folder, now=self._now)
        return AuthenticatorChain((keys, *more), now=self._now)

    def client(self, *, mtls: bool) -> ClientIdentity:
        """By what the service is known to the others; a rotated token is taken while it runs."""
        token, shown = TokenFile(self._folder / TOKEN_FILE), None
        if mtls:
            key, chain = (self._read(name) for name in CLIENT_FILES)
            shown = key, chain
        return ClientIdentity(
            token=token.token(), token_file=token, ca_pem=self.ca_pem(), key_and_chain=shown
        )

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{path}: expected a key that `spotline auth keys deploy` made, found: "
                f"{error.strerror or error}"
            ) from error
        if not content:
            raise ConfigError(
                f"{path}: expected a key that `spotline auth keys deploy` made, empty"
            )
        return content


def hand_out(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write what one service, or the broker, gets: what has changed, each file whole.

    Raises
    ------
    OSError
        The folder cannot be written to.
    """
    make_private_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    folder.chmod(_SHARED_FOLDER)
    for name, content in files.items():
        write_shared(folder / name, content)


def write_shared(path: Path, content: bytes) -> None:
    """Write a file for whom a container runs as, whole or not at all; `OSError` as above."""
    if path.exists() and path.read_bytes() == content:
        return
    with replacing(path) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        unfinished.chmod(_SHARED_FILE)
