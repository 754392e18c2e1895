"""What a client needs to speak to an address: whom to trust, and what to show.

It is looked for in the environment, then in the context of the user's configuration that has the
address, then in what a system that runs on this machine wrote for it into the user's own state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import structlog
from platformdirs import user_state_path
from pydantic import Field

from spotline.adapters.files.fields import Part, Stated, Text, read_part
from spotline.adapters.files.json_file import read_json
from spotline.adapters.identity.contexts import ServiceContext, chosen_context
from spotline.adapters.identity.private_files import check_private, write_private
from spotline.application.identity.credentials import MOST_TOKEN_BYTES
from spotline.contracts.access import GRPC_ACTIONS, Role
from spotline.contracts.errors import ConfigError

TOKEN, TOKEN_FILE, CA_FILE = "SPOTLINE_TOKEN", "SPOTLINE_TOKEN_FILE", "SPOTLINE_CA"

_HOST_AND_PORT = re.compile(r"(?P<host>.+):(?P<port>\d{1,5})")
# Bound or dialled so, it is the same machine and the same port.
_THIS_MACHINE = frozenset({"localhost", "0.0.0.0", "[::]", "[::1]", ""})  # noqa: S104
_MOST_CA_BYTES = 1 << 20

_log = structlog.get_logger()


class TokenFile:
    """A token in a file, read again when the file was replaced.

    Raises
    ------
    ConfigError
        It cannot be read, or holds no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._token = ""
        self.token()

    def token(self) -> str:
        """The token as it is now; the one before where the file cannot be read any more."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._token = read_token_file(self._path, str(self._path))
                self._seen = seen
        except (OSError, ConfigError) as error:
            if not self._token:
                raise ConfigError(f"{self._path}: expected a token, found: {error}") from error
            _log.warning("token_file_unreadable", path=str(self._path), error=str(error))
        return self._token


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """What a client shows, and whom it trusts; it speaks TLS wherever it has one of these.

    Parameters
    ----------
    token
        Bearer token; empty: shows none.
    ca_pem
        Certificates of the authorities that it trusts; None: those of the operating system.
    server_name
        The name that the server's certificate must have; empty: the host of the address.
    tokens
        Further tokens by role, of a person who has several: for what `token`'s role may not do.
    key_and_chain
        A client's certificate, where the server asks for one (mTLS).
    token_file
        Where `token` is read again once it was replaced there: who runs for long takes a rotated one.
    """

    token: str = field(default="", repr=False)
    ca_pem: bytes | None = None
    server_name: str = ""
    tokens: Mapping[Role, str] = field(default_factory=dict, repr=False)
    key_and_chain: tuple[bytes, bytes] | None = field(default=None, repr=False)
    token_file: TokenFile | None = None

    def token_for(self, method: str) -> str:
        """The token to show to a gRPC method (`/package.Service/Method`)."""
        action = GRPC_ACTIONS.get(method)
        return self.token_of(frozenset() if action is None else action.roles)

    def token_of(self, roles: frozenset[Role]) -> str:
        """The token to show where one of these roles is asked for.

        `token` itself unless another of ours is of such a role and none is known of `token`'s.
        """
        if self.token_file is not None:
            return self.token_file.token()
        own = [role for role, token in self.tokens.items() if token == self.token]
        if not self.tokens or any(role in roles for role in own):
            return self.token
        fitting = sorted(
            (role for role in self.tokens if role in roles), key=lambda role: role.value
        )
        return self.tokens[fitting[0]] if fitting else self.token


def client_identity(
    address: str, environ: Mapping[str, str] | None = None
) -> ClientIdentity | None:
    """What it takes to speak to `HOST:PORT`; None: nothing is known, it is spoken to in the clear.

    Parameters
    ----------
    environ
        By default the process's own.

    Raises
    ------
    ConfigError
        A file that is named somewhere cannot be used; says which, and where it is named.
    ContractError
        A file is not as expected.
    """
    environ = os.environ if environ is None else environ
    found = _of_context(chosen_context(environ), address) or _of_endpoint(address)
    token, ca = _token_in(environ), environ.get(CA_FILE, "")
    if not token and not ca:
        return found
    known = found or ClientIdentity()
    ca_pem = _certificates(Path(ca), CA_FILE) if ca else known.ca_pem
    if not token:
        return replace(known, ca_pem=ca_pem)
    return replace(known, token=token, ca_pem=ca_pem, tokens={})


def _token_in(environ: Mapping[str, str]) -> str:
    if environ.get(TOKEN):
        return checked_token(environ[TOKEN], TOKEN)
    file = environ.get(TOKEN_FILE)
    return read_token_file(Path(file), TOKEN_FILE) if file else ""


def _of_context(context: ServiceContext | None, address: str) -> ClientIdentity | None:
    if context is None or not context.has(address):
        return None
    if not context.token_file and not context.ca:
        return None
    where = f"context {context.name}"
    return ClientIdentity(
        token=read_token_file(Path(context.token_file), where) if context.token_file else "",
        ca_pem=_certificates(Path(context.ca), where) if context.ca else None,
        server_name=context.server_name,
    )


# --- what a running system writes ---------------------------------------------------------------


class _EndpointPart(Part):
    address: Stated
    ca: Stated
    server_name: Text = ""
    pid: Annotated[int, Field(ge=0)] = 0
    tokens: dict[Stated, Stated]
    key: Text = ""
    certificate: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where clients of one machine find what an address asks for.

    Parameters
    ----------
    ca
        File of certificates that sign its own.
    token_files
        By role; the first is what commands show by default.
    key_and_certificate
        Files by which clients show themselves, where servers ask for that (mTLS).
    """

    ca: Path
    token_files: Mapping[Role, Path]
    server_name: str = ""
    key_and_certificate: tuple[Path, Path] | None = None


def publish_endpoint(address: str, endpoint: Endpoint) -> Path:
    """Tell this user's clients what the address asks for; returns the file that says it.

    Raises
    ------
    ConfigError
        The user's state cannot be written to.
    """
    path = endpoint_file(address)
    said: dict[str, object] = {
        "address": address,
        "ca": str(endpoint.ca.absolute()),
        "server_name": endpoint.server_name,
        "pid": os.getpid(),
        "tokens": {role.value: str(file.absolute()) for role, file in endpoint.token_files.items()},
    }
    if endpoint.key_and_certificate is not None:
        key, certificate = endpoint.key_and_certificate
        said |= {"key": str(key.absolute()), "certificate": str(certificate.absolute())}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, json.dumps(said, indent=2).encode() + b"\n")
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError(
            f"{path}: expected a file to write to, found: {found}; name another folder of state "
            "(XDG_STATE_HOME)"
        ) from error
    return path


def withdraw_endpoint(address: str) -> None:
    """Tell clients no more of an address that is served no more, or now in the clear."""
    try:
        endpoint_file(address).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{endpoint_file(address)}: expected a file to remove, found: {error.strerror or error}"
        ) from error


def endpoint_file(address: str) -> Path:
    """Where is told what an address asks for."""
    match = _HOST_AND_PORT.fullmatch(address)
    host, port = (match["host"], match["port"]) if match else (address, "")
    if host in _THIS_MACHINE:
        host = "127.0.0.1"
    name = re.sub(r"[^A-Za-z0-9.-]", "-", host)
    return user_state_path("spotline") / "endpoints" / f"{name}_{port}.json"


def published_ca(address: str) -> Path | None:
    """The file of certificates of the system of this user that serves an address; None for none.

    Raises
    ------
    ConfigError, ContractError
        What is told of the address cannot be read.
    """
    part = _published(address)
    return None if part is None else Path(part.ca)


def _published(address: str) -> _EndpointPart | None:
    path = endpoint_file(address)
    try:
        check_private(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: expected a readable file, found: {error.strerror}") from error
    part = read_part(_EndpointPart, read_json(path), where=str(path))
    # Whoever wrote it may have been killed: another server is there by now, or none.
    return part if _runs(part.pid) else None


def _of_endpoint(address: str) -> ClientIdentity | None:
    path, part = endpoint_file(address), _published(address)
    if part is None:
        return None
    known = {role.value for role in Role}
    tokens = {
        Role(role): read_token_file(Path(file), str(path))
        for role, file in part.tokens.items()
        if role in known
    }
    return ClientIdentity(
        token=next(iter(tokens.values()), ""),
        ca_pem=_certificates(Path(part.ca), str(path)),
        server_name=part.server_name,
        tokens=tokens,
        key_and_chain=_shown(part, str(path)),
    )


def _runs(pid: int) -> bool:
    """Whether a process is there; 0: that is not known, and taken for granted."""
    try:
        if pid:
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Another user's: it is there.
        return True
    return True


def _shown(part: _EndpointPart, where: str) -> tuple[bytes, bytes] | None:
    """What a client shows itself by, None where it need not."""
    if not part.key:
        return None
    return (
        _read(Path(part.key), where, _MOST_CA_BYTES),
        _certificates(Path(part.certificate), where),
    )


# --- files --------------------------------------------------------------------------------------


def read_token_file(path: Path, where: str) -> str:
    """The one token that a file holds, without the white space around it.

    Raises
    ------
    ConfigError
        It cannot be read, or holds none; `where` is what names the file.
    """
    return checked_token(_read(path, where, 2 * MOST_TOKEN_BYTES).decode("utf-8", "replace"), where)


def checked_token(text: str, where: str) -> str:
    """A token without the white space around it; `ConfigError` where it cannot be one."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where}: expected a token of one line of ASCII, found something else")
    if len(token) > MOST_TOKEN_BYTES:
        raise ConfigError(
            f"{where}: expected a token of at most {MOST_TOKEN_BYTES} bytes, found more"
        )
    return token


def _certificates(path: Path, where: str) -> bytes:
    content = _read(path, where, _MOST_CA_BYTES)
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise ConfigError(f"{where}: {path}: expected certificates in PEM, found none")
    return content


def _read(path: Path, where: str, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        found = error.strerror or str(error)
        if path.name.startswith(("spl_", "eyJ")):
            # A key or a JWT where the name of its file belongs.
            raise ConfigError(f"{where}: expected the file of a token, found a token") from None
        raise ConfigError(f"{where}: {path}: expected a readable file, found: {found}") from error
    if len(content) > most_bytes:
        raise ConfigError(f"{where}: {path}: expected at most {most_bytes} bytes, found more")
    return content
