"""What a Faust topic, partition and key are called on NATS. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

# A subject is one protocol line of at most 4096 bytes, and the server indexes it: keys beyond this
# are named by their digest and travel whole in a header.
LONGEST_KEY_BYTES = 256
LONGEST_TOPIC_CHARS = 200

_ROOT = "faust"
_FENCE_ROOT = "faust-fence"
_STREAM_PREFIX = "FAUST_"
_BUCKET_PREFIX = "FAUST_"

# No base64 text has a length of 1 modulo 4, so no key is written like these.
_NO_KEY = "_"
_EMPTY_KEY = "-"
_DIGEST_MARK = "~"

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class KeyInHeader(Exception):
    """The key is too long for a subject; its header has it."""


@lru_cache(maxsize=4096)
def topic_token(topic: str) -> str:
    """Write `topic` as one subject token, different topics differently.

    Raises
    ------
    ValueError
        `topic` is empty, or longer than a stream's name may be.
    """
    token = _UNSAFE.sub(
        lambda found: "".join(f"={byte:02x}" for byte in found.group().encode()), topic
    )
    if not 0 < len(token) <= LONGEST_TOPIC_CHARS:
        raise ValueError(
            f"a topic's name must have 1 to {LONGEST_TOPIC_CHARS} characters on NATS, where each "
            f"outside A-Z a-z 0-9 _ - counts three per byte; was {topic!r}"
        )
    return token


def stream_name(topic: str) -> str:
    """The stream that holds `topic`."""
    return _STREAM_PREFIX + topic_token(topic)


def stream_subjects(topic: str) -> list[str]:
    """Every subject of the stream of `topic`: its messages, and one fence per partition."""
    token = topic_token(topic)
    return [f"{_ROOT}.{token}.*.*", f"{_FENCE_ROOT}.{token}.*"]


def partition_filter(topic: str, partition: int) -> str:
    """The subjects of the messages of one partition."""
    return f"{_ROOT}.{topic_token(topic)}.{partition}.*"


def fence_subject(topic: str, partition: int) -> str:
    """Where an owner of the partition says that it is the owner now."""
    return f"{_FENCE_ROOT}.{topic_token(topic)}.{partition}"


def subject_of(topic: str, partition: int, key: bytes | None) -> str:
    """The subject of a message."""
    return f"{_ROOT}.{topic_token(topic)}.{partition}.{key_token(key)}"


@lru_cache(maxsize=65_536)
def key_token(key: bytes | None) -> str:
    """Write `key` as a subject token: base64url, or a digest of what is too long for that."""
    if key is None:
        return _NO_KEY
    if not key:
        return _EMPTY_KEY
    if len(key) > LONGEST_KEY_BYTES:
        return _DIGEST_MARK + _base64(hashlib.sha256(key).digest())
    return _base64(key)


@lru_cache(maxsize=65_536)
def key_in(subject: bytes) -> bytes | None:
    """The key in a message's subject.

    Raises
    ------
    KeyInHeader
        The subject has only its digest.
    ValueError
        The last token is no key.
    """
    token = subject[subject.rfind(b".") + 1 :]
    if token == b"_":
        return None
    if token == b"-":
        return b""
    if token.startswith(b"~"):
        raise KeyInHeader
    return base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)


def bucket_name(app_id: str) -> str:
    """The key-value bucket of an app: who works on what, and how far they came."""
    if not _UNSAFE.search(app_id) and app_id:
        return _BUCKET_PREFIX + app_id
    digest = hashlib.sha256(app_id.encode()).hexdigest()[:12]
    return f"{_BUCKET_PREFIX}{_UNSAFE.sub('-', app_id)}-{digest}"


def offset_key(topic: str, partition: int) -> str:
    """Where in the bucket the committed offset of a partition is."""
    return f"offset.{topic_token(topic)}.{partition}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
