"""The key that signs tokens and sessions of instances, in files; it may be drawn anew at any time."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import structlog
from pydantic import Field

from spotline.adapters.files.fields import Part, read_part
from spotline.adapters.files.json_file import read_json
from spotline.adapters.identity.private_files import locked, write_private
from spotline.adapters.identity.signing import KEY_BYTES, Signer, checked_key
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.contracts.errors import ContractError

_KEY, _FORMER = "hmac.key", "hmac.former.json"

_log = structlog.get_logger(__name__)


class _FormerPart(Part):
    format_version: Literal[1]
    key: Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * KEY_BYTES}}}$")]
    until_s: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The keys as the files had them; the former counts until a moment, seconds since the epoch."""

    key: bytes
    former: bytes | None
    until_s: int


class RotatedSigner(Signer):
    """Signs with the key in a folder, as it is now; several processes share it.

    What the former key has signed counts until the moment that its rotation has set.

    Raises
    ------
    OSError, ValueError
        The folder cannot be used, or holds something else.
    """

    def __init__(self, folder: Path, *, now: Now = utc_now) -> None:
        self._folder = folder
        self._now = now
        with locked(folder):
            if not (folder / _KEY).exists():
                write_private(folder / _KEY, secrets.token_bytes(KEY_BYTES))
        self._seen = self._state()
        self._known = self._load()
        super().__init__(self._known.key)

    def rotate(self, until: datetime | None) -> None:
        """Draw a new key; what the present one has signed counts until then, None: no more at all.

        Raises
        ------
        OSError
            The folder cannot be written to.
        """
        with locked(self._folder):
            present = checked_key((self._folder / _KEY).read_bytes())
            if until is None:
                (self._folder / _FORMER).unlink(missing_ok=True)
            else:
                content = {
                    "format_version": 1,
                    "key": present.hex(),
                    "until_s": int(until.timestamp()),
                }
                # Before the new one: nothing that was signed is refused in between.
                write_private(self._folder / _FORMER, json.dumps(content).encode() + b"\n")
            write_private(self._folder / _KEY, secrets.token_bytes(KEY_BYTES))

    def _keys(self) -> Sequence[bytes]:
        state = self._state()
        if state != self._seen:
            try:
                self._known, self._seen = self._load(), state
            except (OSError, ValueError) as error:
                # Of two files one may be read before the other is written: the next call sees both.
                _log.warning("signing_keys_unreadable", folder=str(self._folder), error=str(error))
        known = self._known
        if known.former is None or self._now().timestamp() >= known.until_s:
            return (known.key,)
        return (known.key, known.former)

    def _state(self) -> object:
        return tuple(self._state_of(self._folder / name) for name in (_KEY, _FORMER))

    @staticmethod
    def _state_of(path: Path) -> object:
        try:
            found = path.stat()
        except OSError as error:
            return str(error)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _load(self) -> _Known:
        key = checked_key((self._folder / _KEY).read_bytes())
        path = self._folder / _FORMER
        if not path.exists():
            return _Known(key=key, former=None, until_s=0)
        try:
            part = read_part(_FormerPart, read_json(path), where=str(path))
        except ContractError as error:
            raise ValueError(str(error)) from error
        return _Known(key=key, former=bytes.fromhex(part.key), until_s=part.until_s)
