"""Our own API keys, `spl_ID_SECRET`, in a file that holds no secret: `api_keys.json`.

A secret has 256 random bits and is kept as its SHA-256: a slow hash guards what people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from pydantic import AfterValidator, Field

from spotline.adapters.files.fields import Name, Part, Text, TimeNs, expected, read_part
from spotline.adapters.files.json_file import read_json
from spotline.adapters.files.yaml_file import Limits
from spotline.adapters.identity.private_files import locked, write_private
from spotline.adapters.identity.wall_clock import Now, utc_now, written_moment
from spotline.application.identity.credentials import ProvedCaller
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import ConfigError, ContractError, Unauthenticated
from spotline.domain.units import NS_PER_S

FILE = "api_keys.json"

_FORM = re.compile(r"spl_(?P<key_id>[0-9a-f]{12})_(?P<secret>[0-9a-f]{64})")
_PREFIX = "spl_"
_ID_BYTES, _SECRET_BYTES = 6, 32
_FORMAT = 1
_SIZES = Limits(most_bytes=1 << 24, most_values=1_000_000)
_NOBODYS = "0" * 64
# Where a key never expires: as long as an answer is remembered at all.
_REMEMBERED = timedelta(days=1)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is kept.

    Parameters
    ----------
    name
        Who holds it, for people and for the audit.
    expires, revoked
        None: never, not.
    """

    key_id: str
    name: str
    grant: RoleGrant
    created: datetime
    sha256: str
    expires: datetime | None = None
    revoked: datetime | None = None

    def ended(self, now: datetime) -> str:
        """Why the key counts no more, empty while it does."""
        if self.revoked is not None and self.revoked <= now:
            return f"was revoked at {written_moment(self.revoked)}"
        if self.expires is not None and self.expires <= now:
            return f"expired at {written_moment(self.expires)}"
        return ""


class ApiKeys:
    """The keys in a folder; the file is read again when it has changed.

    A `TokenReader`. Processes share it: what one revokes, the others refuse with the next call.

    Parameters
    ----------
    written
        Is called with the file after every change, within its lock.
    """

    def __init__(
        self,
        folder: Path,
        *,
        now: Now = utc_now,
        written: Callable[[Path], None] = lambda _: None,
    ) -> None:
        self._tell_written = written
        self._folder = folder
        self._path = folder / FILE
        self._now = now
        self._read_at: object = None
        self._keys: Mapping[str, ApiKey] = {}
        self._fault: ContractError | None = None

    # --- reading tokens -------------------------------------------------------------------------

    def recognises(self, token: str) -> bool:
        """Whether a token claims to be one of ours."""
        return token.startswith(_PREFIX)

    def state(self) -> object:
        """Another one whenever the file was replaced."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return "absent"
        except OSError as error:
            return str(error)
        return found.st_ino, found.st_mtime_ns, found.st_size

    async def read(self, token: str) -> ProvedCaller:
        """Whom a key proves.

        Raises
        ------
        Unauthenticated
            It is unknown, expired or revoked; says which only to who knows its secret.
        """
        match = _FORM.fullmatch(token)
        if match is None:
            raise Unauthenticated("the API key is refused: it has not the form spl_ID_SECRET")
        found = self._current().get(match["key_id"])
        if self._fault is not None:
            raise Unauthenticated("the API key is refused: the file of keys cannot be read")
        kept = _NOBODYS if found is None else found.sha256
        same = hmac.compare_digest(_sha256(match["secret"]), kept)
        if found is None or not same:
            raise Unauthenticated(f"the API key {match['key_id']} is unknown here")
        now = self._now()
        ended = found.ended(now)
        if ended:
            raise Unauthenticated(f"the API key {found.key_id} ({found.name}) {ended}")
        ends = [moment for moment in (found.expires, found.revoked) if moment is not None]
        return ProvedCaller(
            caller=Caller(
                subject=found.name,
                role=found.grant.role,
                tenant=found.grant.tenant,
                credential_id=found.key_id,
            ),
            good_until_s=min([*ends, now + _REMEMBERED]).timestamp(),
        )

    def _current(self) -> Mapping[str, ApiKey]:
        state = self.state()
        if state != self._read_at:
            try:
                self._keys, self._fault = self._load(), None
            except ContractError as error:
                # Who was revoked is not known: nobody is let in by what was read before.
                self._keys, self._fault = {}, error
                _log.error("api_keys_unreadable", path=str(self._path), error=str(error))
            self._read_at = state
        return self._keys

    # --- the keys themselves --------------------------------------------------------------------

    def listed(self) -> Sequence[ApiKey]:
        """Every key, in the order in which they were made.

        Raises
        ------
        ContractError
            The file is not what was written.
        """
        return tuple(self._load().values())

    def create(self, name: str, grant: RoleGrant, *, expires: datetime | None = None) -> str:
        """Make a key; returns the token, which is kept nowhere.

        Raises
        ------
        ConfigError
            The file cannot be written.
        ContractError
            It is not what was written before, or name or time are not as expected.
        """
        key, token = self._drawn(name, grant, expires)
        if key.ended(key.created):
            found = written_moment(key.expires)
            raise ContractError("expires", f"expected a time that is to come, found {found}")
        self._change(lambda keys: {**keys, key.key_id: key})
        return token

    def create_each(self, grants: Mapping[str, RoleGrant]) -> Mapping[str, str]:
        """Make a key that never expires for each name, at once; the tokens. Raises as `create`."""
        drawn = {name: self._drawn(name, grant, None) for name, grant in grants.items()}
        made = {key.key_id: key for key, _ in drawn.values()}
        self._change(lambda keys: {**keys, **made})
        return {name: token for name, (_, token) in drawn.items()}

    def _drawn(self, name: str, grant: RoleGrant, expires: datetime | None) -> tuple[ApiKey, str]:
        secret = secrets.token_hex(_SECRET_BYTES)
        key = ApiKey(
            key_id=secrets.token_hex(_ID_BYTES),
            name=name,
            grant=grant,
            created=_to_the_second(self._now()),
            sha256=_sha256(secret),
            expires=None if expires is None else _to_the_second(expires),
        )
        return key, f"{_PREFIX}{key.key_id}_{secret}"

    def revoke(self, which: str) -> ApiKey:
        """End a key by its id, by its name where that is one key's, or by itself; again: as it was.

        Raises
        ------
        ConfigError
            There is no such key, or several, or the file cannot be written.
        ContractError
            It is not what was written before.
        """
        ended: list[ApiKey] = []

        def revoked(keys: Mapping[str, ApiKey]) -> Mapping[str, ApiKey]:
            key = _only(keys, key_id_of(which) or which)
            if key.revoked is None:
                key = replace(key, revoked=_to_the_second(self._now()))
            ended.append(key)
            return {**keys, key.key_id: key}

        self._change(revoked)
        return ended[0]

    def end_later(self, key_ids: Sequence[str], at: datetime) -> None:
        """Have keys expire at a moment, unless they do earlier: they were replaced."""
        at = _to_the_second(at)

        def shortened(keys: Mapping[str, ApiKey]) -> Mapping[str, ApiKey]:
            return {
                key_id: replace(key, expires=min(key.expires or at, at))
                if key_id in key_ids
                else key
                for key_id, key in keys.items()
            }

        self._change(shortened)

    def _change(self, work: Callable[[Mapping[str, ApiKey]], Mapping[str, ApiKey]]) -> None:
        try:
            with locked(self._folder):
                changed = work(self._load())
                content = {
                    "format_version": _FORMAT,
                    "keys": [_written(key) for key in changed.values()],
                }
                # What cannot be read again must not be written.
                _keys_of(content, where=str(self._path))
                write_private(self._path, json.dumps(content, indent=2).encode() + b"\n")
                self._tell_written(self._path)
        except OSError as error:
            found = error.strerror or str(error)
            raise ConfigError(
                f"{self._path}: expected a file to write to, found: {found}"
            ) from error

    def _load(self) -> Mapping[str, ApiKey]:
        if not self._path.exists():
            return {}
        return _keys_of(read_json(self._path, _SIZES), where=str(self._path))


def key_id_of(token: str) -> str:
    """The id of a key, empty for what is none; the id is no secret."""
    match = _FORM.fullmatch(token)
    return "" if match is None else match["key_id"]


def _only(keys: Mapping[str, ApiKey], which: str) -> ApiKey:
    if which in keys:
        return keys[which]
    named = [key for key in keys.values() if key.name == which]
    in_force = [key for key in named if key.revoked is None]
    found = in_force or named
    if len(found) != 1:
        among = ", ".join(key.key_id for key in found) or "none"
        # What is given may be a key that was copied badly: it is not said again.
        shown = "part of a key" if which.startswith(_PREFIX) else repr(which)
        raise ConfigError(f"expected the id or the name of one key, found {shown}, of {among}")
    return found[0]


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _to_the_second(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)


# --- the file ---------------------------------------------------------------------------------


def _hexadecimal(length: int) -> Any:
    def check(value: str) -> str:
        if not re.fullmatch(f"[0-9a-f]{{{length}}}", value):
            raise expected(f"{length} hexadecimal digits")
        return value

    return AfterValidator(check)


class _KeyPart(Part):
    id: Annotated[Name, _hexadecimal(2 * _ID_BYTES)]
    name: Name
    role: Literal["owner", "operator", "viewer", "service"]
    tenant: Text = ""
    created: TimeNs
    expires: TimeNs | None = None
    revoked: TimeNs | None = None
    sha256: Annotated[Name, _hexadecimal(64)]


class _FilePart(Part):
    format_version: Literal[1]
    keys: Annotated[list[_KeyPart], Field(max_length=100_000)]


def _keys_of(content: Any, *, where: str) -> Mapping[str, ApiKey]:
    part = read_part(_FilePart, content, where=where)
    keys: dict[str, ApiKey] = {}
    for index, read in enumerate(part.keys):
        try:
            grant = RoleGrant(role=Role(read.role), tenant=read.tenant)
        except ValueError as error:
            raise ContractError(f"{where}: keys[{index}]", str(error)) from error
        if read.id in keys:
            raise ContractError(
                f"{where}: keys[{index}].id", "expected each id once, found it again"
            )
        keys[read.id] = ApiKey(
            key_id=read.id,
            name=read.name,
            grant=grant,
            created=_moment(read.created),
            sha256=read.sha256,
            expires=None if read.expires is None else _moment(read.expires),
            revoked=None if read.revoked is None else _moment(read.revoked),
        )
    return keys


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // NS_PER_S, UTC)


def _written(key: ApiKey) -> dict[str, Any]:
    said = {
        "id": key.key_id,
        "name": key.name,
        "role": key.grant.role.value,
        "tenant": key.grant.tenant,
        "created": written_moment(key.created),
        "expires": written_moment(key.expires),
        "revoked": written_moment(key.revoked),
        "sha256": key.sha256,
    }
    return {field: value for field, value in said.items() if value}
