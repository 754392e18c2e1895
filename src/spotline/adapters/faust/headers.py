"""Headers of Faust messages as headers of NATS messages, and what else travels there. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping

# The value is None, not empty: in a compacting topic, the key is deleted.
NO_VALUE = "Faust-No-Value"
# A timestamp given by the sender, in seconds since 1970; without it the stored time counts.
TIMESTAMP = "Faust-Timestamp"
# A key too long for the subject, in base64.
KEY = "Faust-Key"
# JSON of [[name, base64 value], ...]: headers that NATS could not carry as they are.
OTHERS = "Faust-Headers"

_OWN = "Faust-"
# Instructions to the server, spent when the message was stored.
_SERVER = "Nats-"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STATUS_LINE = b"NATS/1.0"


def encode_headers(
    headers: Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]] | None,
) -> dict[str, str]:
    """Write Faust's headers, so that `decode_headers` gives the same back."""
    if not headers:
        return {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    plain: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in pairs:
        raw = value.encode() if isinstance(value, str) else bytes(value)
        text = _plain_text(raw)
        if text is None or name in plain or name.startswith(_OWN) or not _NAME.fullmatch(name):
            others.append((name, base64.b64encode(raw).decode()))
        else:
            plain[name] = text
    if others:
        plain[OTHERS] = json.dumps(others)
    return plain


def parse_block(block: bytes) -> list[tuple[str, bytes]]:
    """The lines of a NATS header block, without its status line."""
    pairs = []
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            pairs.append((name.strip().decode("latin-1"), value.strip()))
    return pairs


def decode_headers(pairs: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Read Faust's headers back; what is meant for the transport or the server is left out.

    Raises
    ------
    ValueError
        `Faust-Headers` is malformed.
    """
    headers: list[tuple[str, bytes]] = []
    for name, value in pairs:
        if name == OTHERS:
            try:
                headers.extend((other, base64.b64decode(text)) for other, text in json.loads(value))
            except (ValueError, TypeError, binascii.Error) as error:
                raise ValueError(f"the header {OTHERS} is malformed: {error}") from error
        elif not name.startswith((_OWN, _SERVER)):
            headers.append((name, value))
    return headers


def status_of(block: bytes | None) -> str:
    """The status code of a control message such as `404`, empty for an ordinary one."""
    if block is None or block[len(_STATUS_LINE) : len(_STATUS_LINE) + 1] != b" ":
        return ""
    return block[len(_STATUS_LINE) + 1 : len(_STATUS_LINE) + 4].decode("latin-1")


def _plain_text(raw: bytes) -> str | None:
    """`raw` as header text, None if it would not arrive as it is."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if text != text.strip() or not text.isprintable():
        return None
    return text


def base64_text(raw: bytes) -> str:
    """`raw` as a header's text."""
    return base64.b64encode(raw).decode()


def long_key(block: bytes) -> bytes:
    """The key that was too long for the subject.

    Raises
    ------
    ValueError
        The header is missing or malformed.
    """
    for name, value in parse_block(block):
        if name == KEY:
            return base64.b64decode(value, validate=True)
    raise ValueError(f"the header {KEY} is missing")
