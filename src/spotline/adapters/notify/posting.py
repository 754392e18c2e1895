"""Post a message once: over TLS or to this machine, within a time, following nobody elsewhere."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

TIMEOUT_S = 15.0
"""From the first packet to the last header of the answer."""

_MOST_HEADERS = 1 << 16
_LONGEST_URL = 1_000
_STATUS = re.compile(rb"HTTP/1\.[01] (?P<status>[1-5][0-9]{2})(?: |\r|$)")
_UNPRINTABLE = re.compile(r"[^!-~]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: a status, 0 where none did, and why; `retry_after_s` is what it asks for."""

    status: int = 0
    said: str = ""
    retry_after_s: float = 0.0

    @property
    def taken(self) -> bool:
        """Whether the receiver has it now."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"HTTP {self.status}" if self.status else self.said


def check_url(url: str, *, insecure: bool = False) -> str:
    """What is wrong with a URL to post to, empty for nothing: as `expected ...`, without the URL."""
    if len(url) > _LONGEST_URL:
        return f"a URL of at most {_LONGEST_URL:,} characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "a URL such as https://example.com/hook"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "a URL such as https://example.com/hook"
    if _UNPRINTABLE.search(url):
        return "a URL of printable ASCII without blanks"
    if parts.username is not None or parts.password is not None:
        return "a URL without a user or a password in it"
    if parts.scheme == "http" and not insecure and not _is_loopback(parts.hostname):
        return "https, or this machine itself; or insecure: true beside it"
    return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    timeout_s: float = TIMEOUT_S,
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
) -> Answer:
    """Post a body and read how it was answered; what fails on the way is an answer without a status.

    Of the answer only status and headers are read. A redirect is an answer like every other.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _post(urlsplit(url), headers, body, tls)
    except TimeoutError:
        return Answer(said=f"no answer within {timeout_s:g} s")
    except ssl.SSLCertVerificationError as error:
        return Answer(said=f"its certificate is not believed: {error.verify_message}")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return Answer(said=f"not reached: {getattr(error, 'strerror', None) or error}")


async def _post(
    place: SplitResult,
    headers: Mapping[str, str],
    body: bytes,
    tls: Callable[[], ssl.SSLContext],
) -> Answer:
    host = place.hostname or ""
    secure = place.scheme == "https"
    reader, writer = await asyncio.open_connection(
        host,
        place.port or (443 if secure else 80),
        ssl=tls() if secure else None,
        limit=_MOST_HEADERS,
    )
    try:
        writer.write(_request(place, headers, body))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):
            head = await reader.readuntil(b"\r\n\r\n")
        return _answer(head)
    finally:
        # All that counts was read; a farewell of TLS would wait for the other side.
        writer.transport.abort()


def _request(place: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {place.netloc}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


def _answer(head: bytes) -> Answer:
    found = _STATUS.match(head)
    if found is None:
        return Answer(said="it does not speak HTTP/1.1")
    asked = next(
        (
            line.partition(b":")[2].strip().decode("latin-1")
            for line in head.split(b"\r\n")[1:]
            if line.lower().startswith(b"retry-after:")
        ),
        "",
    )
    return Answer(status=int(found["status"]), retry_after_s=_seconds(asked))


def _seconds(asked: str) -> float:
    """What `Retry-After` asks for (RFC 9110, 10.2.3): seconds, or a date; 0 where it is neither."""
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        moment = parsedate_to_datetime(asked)
    except ValueError:
        return 0.0
    # A date without a zone is of UTC.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
