"""Statements that only holders of a key could have made: `PURPOSE.PAYLOAD.MAC`, base64url."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence

KEY_BYTES = 32


class ForgedStatement(Exception):
    """A text that is no statement of ours; says in which way."""


class Signer:
    """Signs and reads statements under one key of 32 bytes; a purpose is no part of another's."""

    def __init__(self, key: bytes) -> None:
        self._key = checked_key(key)

    def _keys(self) -> Sequence[bytes]:
        """The key that signs, then those whose statements count still."""
        return (self._key,)

    def sign(self, purpose: str, statement: Mapping[str, str | int]) -> str:
        """Write a statement; equal ones are written equally."""
        payload = _text(json.dumps(statement, sort_keys=True, separators=(",", ":")).encode())
        return f"{purpose}.{payload}.{_mac(self._keys()[0], purpose, payload)}"

    def read(self, purpose: str, signed: str) -> Mapping[str, str | int]:
        """Read a statement that was signed for `purpose`.

        Raises
        ------
        ForgedStatement
            It is not one, or was changed, or signed under another key or for another purpose.
        """
        parts = signed.split(".")
        if len(parts) != 3 or parts[0] != purpose:
            raise ForgedStatement(f"it is no {purpose}")
        shown = parts[2].encode("utf-8", "replace")
        expected = [_mac(key, purpose, parts[1]).encode() for key in self._keys()]
        if not any([hmac.compare_digest(mac, shown) for mac in expected]):
            raise ForgedStatement("it was not signed here")
        try:
            statement: Mapping[str, str | int] = json.loads(_bytes(parts[1]))
        except (binascii.Error, ValueError) as error:
            raise ForgedStatement("it cannot be read") from error
        return statement


def checked_key(key: bytes) -> bytes:
    """A key; `ValueError` where it has not the length of one."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"key must have {KEY_BYTES} bytes, had {len(key)}")
    return key


def _mac(key: bytes, purpose: str, payload: str) -> str:
    signed = f"{purpose}.{payload}".encode("utf-8", "replace")
    return _text(hmac.new(key, signed, hashlib.sha256).digest())


def _text(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
