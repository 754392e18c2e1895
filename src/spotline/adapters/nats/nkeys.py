"""NATS's nkeys: Ed25519 keys of users, as its servers and tools write them.

A public key is base32 without padding of a prefix byte, 32 bytes of key and a CRC-16 (XMODEM, low
byte first); a seed has two prefix bytes. Source: https://github.com/nats-io/nkeys (README, strkey.go).
"""

from __future__ import annotations

import base64
import binascii
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES = 32
PUBLIC_CHARS = 56

# Shown as the first letters: S of a seed, U of a user.
_SEED = 18 << 3
_USER = 20 << 3
_CRC_BYTES = 2


class UserKey:
    """The key of a user of a broker.

    Parameters
    ----------
    raw
        The 32 bytes of an Ed25519 seed (RFC 8032).

    Raises
    ------
    ValueError
        They are not 32.
    """

    def __init__(self, raw: bytes) -> None:
        if len(raw) != SEED_BYTES:
            raise ValueError(f"a seed must have {SEED_BYTES} bytes, has {len(raw)}")
        self._raw = raw
        self._key = Ed25519PrivateKey.from_private_bytes(raw)

    @classmethod
    def drawn(cls) -> UserKey:
        """A new one."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def from_seed(cls, seed: str) -> UserKey:
        """The key of a seed as `nsc` and `nk` write it, `SU...`.

        Raises
        ------
        ValueError
            It is none of a user; the message does not hold it.
        """
        decoded = _decoded(seed.strip(), "a seed")
        first, second = decoded[0], decoded[1]
        kind = (first & 7) << 5 | (second & 248) >> 3
        if first & 248 != _SEED or kind != _USER:
            raise ValueError("a seed must be one of a user: it begins with SU")
        return cls(decoded[2:])

    @property
    def seed(self) -> str:
        """What is secret, `SU...`."""
        head = bytes((_SEED | _USER >> 5, (_USER & 31) << 3))
        return _encoded(head + self._raw)

    @property
    def public(self) -> str:
        """What the broker knows, `U...`."""
        return _encoded(bytes((_USER,)) + self._key.public_key().public_bytes_raw())

    def sign(self, nonce: bytes) -> bytes:
        """The signature of what a server asked to be signed, 64 bytes."""
        return self._key.sign(nonce)


def check_public(text: str) -> str:
    """Return the public key of a user, as it is written.

    Raises
    ------
    ValueError
        It is none.
    """
    decoded = _decoded(text, "a public key")
    if decoded[0] != _USER or len(decoded) != 1 + SEED_BYTES:
        raise ValueError("a public key must be one of a user: it begins with U")
    return text


def _encoded(content: bytes) -> str:
    crc = binascii.crc_hqx(content, 0)
    return base64.b32encode(content + crc.to_bytes(_CRC_BYTES, "little")).rstrip(b"=").decode()


def _decoded(text: str, what: str) -> bytes:
    try:
        content = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise ValueError(f"{what} must be base32 without padding") from None
    content, crc = content[:-_CRC_BYTES], content[-_CRC_BYTES:]
    if len(content) < _CRC_BYTES or binascii.crc_hqx(content, 0) != int.from_bytes(crc, "little"):
        raise ValueError(f"{what} must end with its checksum: this one was mistyped or cut")
    return content
