"""`STORE/identity`: what one installation proves itself and its people by, made at the first start.

`authority/` signs what servers show; `api_keys.json` holds what keys are good for; `tokens/` the
keys of the person who runs it (`owner.key`, `operator.key`) and of each service (`NAME.key`);
`containers/`, where there is one, what each service that runs apart was given (`handed_out.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from spotline.adapters.identity.api_keys import FILE as KEYS_FILE
from spotline.adapters.identity.api_keys import ApiKeys, key_id_of
from spotline.adapters.identity.authority import Authority, KeyAndChain
from spotline.adapters.identity.chain import AuthenticatorChain
from spotline.adapters.identity.endpoints import (
    ClientIdentity,
    Endpoint,
    TokenFile,
    read_token_file,
)
from spotline.adapters.identity.handed_out import (
    CA_FILE,
    CLIENT_FILES,
    SERVER_FILES,
    TOKEN_FILE,
    hand_out,
    write_shared,
)
from spotline.adapters.identity.handed_out import FOLDER as HANDED_OUT
from spotline.adapters.identity.private_files import (
    check_private,
    locked,
    make_private_folder,
    write_private,
)
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.identity.credentials import TokenReader
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role
from spotline.contracts.errors import ConfigError

FOLDER = "identity"
SERVICES = (
    *("market_ingest", "forecaster", "allocator", "configurator", "placer", "selector"),
    *("cloud_actuator", "analytics", "read_model", "notifier"),
)
"""Who has a key of its own; a name is also the subject of its calls."""

# A caller has one role. The person who runs it all hands in jobs of any tenant with the one, and
# stops buying, mends, reaps with the other; commands take the one that an action asks for.
_PERSON = {"owner": Role.SERVICE, "operator": Role.OPERATOR}


class IdentityFolder:
    """The folder of one store; what is missing in it is made.

    Parameters
    ----------
    store
        The store's own folder.

    Raises
    ------
    ConfigError
        The folder can be read by others, or cannot be used; says what mends it.
    ContractError
        The file of keys is not what was written.
    """

    def __init__(self, store: Path, *, now: Now = utc_now) -> None:
        self.path = store / FOLDER
        self._tokens = self.path / "tokens"
        self._now = now
        try:
            store.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = error.strerror or str(error)
            raise ConfigError(
                f"{store}: expected a path that can be used, found: {found}"
            ) from error
        try:
            for folder in (self.path, self.path / "authority", self._tokens):
                make_private_folder(folder)
                check_private(folder)
            for file in sorted((*self.path.glob("*"), *self.path.glob("*/*"))):
                # Another process may write at this moment; what is unfinished vanishes. Containers
                # read what is in their folders, into which nobody else gets.
                if file.suffix != ".unfinished" and file.parent != self.containers:
                    check_private(file)
            self.authority = Authority(self.path / "authority", title="Spotline authority", now=now)
            self.keys = ApiKeys(self.path, now=now, written=self._hand_on)
            with locked(self._tokens):
                names = (*_PERSON, *SERVICES)
                self._draw_tokens([name for name in names if not self.token_file(name).exists()])
            self._write_ca()
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.path} cannot be used ({error}); mend it, or remove it: keys and "
                "certificates are then made anew, and those that were given away count no more"
            ) from error

    @property
    def ca_file(self) -> Path:
        """File of the certificates that clients check ours against."""
        return self.path / "ca.pem"

    @property
    def containers(self) -> Path:
        """Folder of what services that run apart were given."""
        return self.path / HANDED_OUT

    def server_identity(self, hosts: Sequence[str]) -> KeyAndChain:
        """Key and chain of a server that is reached as any of `hosts`, or by loopback."""
        return self.authority.server_identity(hosts)

    def hand_out(self, service: str, hosts: Sequence[str], more: Mapping[str, bytes]) -> Path:
        """Write all that one service needs to run apart, and `more`; returns its folder.

        Parameters
        ----------
        hosts
            As what its server is reached, beside loopback.

        Raises
        ------
        ConfigError
            There is no such service, or the folder cannot be used.
        """
        server = self.authority.server_identity(
            hosts, name=f"server-{service}", subject=f"Spotline {service}"
        )
        client = self.authority.service_identity(service)
        folder = self.containers / service
        try:
            files = {
                **dict(zip(SERVER_FILES, server, strict=True)),
                **dict(zip(CLIENT_FILES, client, strict=True)),
                CA_FILE: self.authority.ca_pem.encode(),
                TOKEN_FILE: self.token_file(service).read_bytes(),
            }
            with locked(self.path):
                hand_out(folder, {**files, KEYS_FILE: (self.path / KEYS_FILE).read_bytes(), **more})
        except OSError as error:
            raise ConfigError(f"{folder} cannot be used ({error})") from error
        return folder

    def _hand_on(self, keys: Path) -> None:
        """Give every service that runs apart the digests of the API keys as they are now."""
        for copy in sorted(self.containers.glob(f"*/{KEYS_FILE}")):
            write_shared(copy, keys.read_bytes())

    def authenticator(self, *more: TokenReader) -> AuthenticatorChain:
        """Who knows callers by our API keys, and by what `more` know."""
        return AuthenticatorChain((self.keys, *more), now=self._now)

    def endpoint(self, *, mtls: bool = False) -> Endpoint:
        """What this user's clients need to speak to any of our servers."""
        files = {role: self.token_file(name) for name, role in _PERSON.items()}
        shown = self.authority.client_files("person") if mtls else None
        return Endpoint(ca=self.ca_file, token_files=files, key_and_certificate=shown)

    def service_identity(self, service: str, *, mtls: bool = False) -> ClientIdentity:
        """By what a service of ours is known to the others.

        Raises
        ------
        ConfigError
            There is no such service, or its key cannot be read.
        """
        file = TokenFile(self.token_file(service))
        return ClientIdentity(
            token=file.token(),
            token_file=file,
            ca_pem=self.authority.ca_pem.encode(),
            key_and_chain=self.authority.service_identity(service) if mtls else None,
        )

    def token_file(self, name: str) -> Path:
        """Where the key of a service is, or of the person who runs it (owner, operator)."""
        if name not in (*_PERSON, *SERVICES):
            known = ", ".join((*_PERSON, *SERVICES))
            raise ConfigError(f"expected the key of one of {known}, found {name!r}")
        return self._tokens / f"{name}.key"

    def rotate(self, *, overlap: timedelta = timedelta(days=1), keep_former: bool = True) -> None:
        """Draw new keys for the authority, the person and every service, while servers run.

        Parameters
        ----------
        overlap
            How long the old keys stay good: as long as running services may take to read theirs.
        keep_former
            Whether the old authority stays trusted: running servers show its certificates.

        Raises
        ------
        ConfigError
            The folder cannot be used.
        """
        try:
            self.authority.rotate(keep_former=keep_former)
            self._write_ca()
            with locked(self._tokens):
                files = [self.token_file(name) for name in (*_PERSON, *SERVICES)]
                replaced = [key_id_of(read_token_file(file, str(file))) for file in files]
                self._draw_tokens((*_PERSON, *SERVICES))
            self.keys.end_later(replaced, self._now() + overlap)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be used ({error})") from error

    def retire_former(self) -> bool:
        """Trust the authority of before the last rotation no more; whether there was one.

        Raises
        ------
        ConfigError
            The folder cannot be used.
        """
        try:
            there = self.authority.retire_former()
            self._write_ca()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be used ({error})") from error
        return there

    def _draw_tokens(self, names: Sequence[str]) -> None:
        if not names:
            return
        grants = {name: RoleGrant(role=_PERSON.get(name, Role.SERVICE)) for name in names}
        # Keys count before their files are there: nobody reads one that is unknown yet.
        for name, token in self.keys.create_each(grants).items():
            write_private(self.token_file(name), token.encode() + b"\n")

    def _write_ca(self) -> None:
        with locked(self.path):
            pem = self.authority.ca_pem.encode()
            if not self.ca_file.exists() or self.ca_file.read_bytes() != pem:
                write_private(self.ca_file, pem)
