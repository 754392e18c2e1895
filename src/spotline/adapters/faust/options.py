"""What the broker URL of a Faust app says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faust.exceptions import ImproperlyConfigured
from yarl import URL

from spotline.adapters.nats.connection import redacted
from spotline.adapters.nats.identities import BusIdentity, OneIdentity

DEFAULT_PORT = 4222
DEFAULT_LEASE_S = 10.0

_KNOWN = ("lease_s", "partitions", "changelog", "monitor", "seed", "ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the transport behaves.

    `url` is the server without the options. `lease_s` is how long a worker that was not heard of
    keeps its partitions. `partitions` assigns these and no others; None shares them out.
    `coalesce` writes a changelog once per key and commit instead of once per change. `monitor`
    lets Faust's monitor follow every event. `seed` is the file of the key to connect with, named as
    its identity, `ca` that of the certificates that sign the server's.
    """

    url: str = field(repr=False)
    lease_s: float = DEFAULT_LEASE_S
    partitions: frozenset[int] | None = None
    coalesce: bool = True
    monitor: bool = True
    seed: Path | None = None
    ca: Path | None = None

    def identity(self) -> BusIdentity | None:
        """As whom to connect; None: by what the URL says.

        Raises
        ------
        ConfigError
            A file is absent or not what it should be.
        """
        if self.seed is None or self.ca is None:
            return None
        return OneIdentity(self.seed, self.ca).of("")


def parse_options(urls: Sequence[URL]) -> Options:
    """Read `nats://[user[:password]@]host[:port]?lease_s=10&partitions=0-3&changelog=each`.

    Raises
    ------
    ImproperlyConfigured
        An option is unknown or malformed, or there is more than one server.
    """
    if len(urls) != 1:
        raise ImproperlyConfigured(
            f"the nats:// transport takes one broker URL, was "
            f"{', '.join(redacted(str(url)) for url in urls)}; for a "
            "cluster name one address that resolves to all its servers (and write several "
            "partitions as partitions=0-3 or partitions=0&partitions=2: Faust splits at commas)"
        )
    [url] = urls
    unknown = sorted(set(url.query) - set(_KNOWN))
    if unknown:
        raise ImproperlyConfigured(
            f"unknown option {unknown[0]!r} in the broker URL, known are {', '.join(_KNOWN)}"
        )
    server = URL.build(
        scheme=url.scheme,
        user=url.user,
        password=url.password,
        host=url.host or "127.0.0.1",
        port=url.port or DEFAULT_PORT,
    )
    return Options(
        url=str(server),
        lease_s=_lease_s(url.query.get("lease_s")),
        partitions=_partitions(url.query.getall("partitions", [])),
        coalesce=_is_first(url, "changelog", "coalesced", "each"),
        monitor=_is_first(url, "monitor", "on", "off"),
        **_files(url),
    )


def _files(url: URL) -> dict[str, Path]:
    found = {name: Path(url.query[name]) for name in ("seed", "ca") if name in url.query}
    if len(found) == 1:
        raise ImproperlyConfigured("the broker URL needs both seed and ca, or neither")
    return found


def _is_first(url: URL, option: str, first: str, second: str) -> bool:
    text = url.query.get(option, first)
    if text not in (first, second):
        raise ImproperlyConfigured(f"{option} must be {first} or {second}, was {text!r}")
    return text == first


def _lease_s(text: str | None) -> float:
    if text is None:
        return DEFAULT_LEASE_S
    try:
        lease_s = float(text)
    except ValueError:
        lease_s = 0.0
    if not 0.1 <= lease_s <= 3600:
        raise ImproperlyConfigured(f"lease_s must be 0.1 to 3600 seconds, was {text!r}")
    return lease_s


def _partitions(texts: Sequence[str]) -> frozenset[int] | None:
    if not texts:
        return None
    found: set[int] = set()
    for text in texts:
        first, _, last = text.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise ImproperlyConfigured(f"partitions must be like 3 or 0-3, was {text!r}")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
