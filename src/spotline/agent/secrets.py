"""Secrets of a program: resolved on its instance, and masked in what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from spotline.contracts.errors import SpotlineError

MASK = b"***"
VARIABLE_PREFIX = "SPOTLINE_SECRET_"

# Shorter lines of a secret of several lines are masked with the whole only: they could be anything.
_SHORTEST_LINE = 8


class SecretsMissing(SpotlineError):
    """The instance does not hold all secrets that the program names."""


def resolve_secrets(
    names: Sequence[str], folder: Path | None, environ: Mapping[str, str]
) -> Mapping[str, str]:
    """Find the values of secrets on this instance.

    A file of the name in `folder` goes before the variable `SPOTLINE_SECRET_<NAME>`; the line break
    at the end of a file is not part of the secret.

    Raises
    ------
    SecretsMissing
        Some are found in neither place; it names them all.
    """
    found: dict[str, str] = {}
    for name in names:
        value = _from_folder(name, folder)
        if value is None:
            value = environ.get(VARIABLE_PREFIX + name)
        if value is not None:
            found[name] = value
    if missing := [name for name in names if name not in found]:
        where = f"files in {folder} or " if folder else ""
        raise SecretsMissing(
            f"run.secrets {', '.join(missing)}: expected as {where}variables "
            f"{VARIABLE_PREFIX}<NAME> of the instance, found neither"
        )
    return found


def _from_folder(name: str, folder: Path | None) -> str | None:
    if folder is None:
        return None
    try:
        return (folder / name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SecretsMissing(f"run.secrets {name}: cannot be read: {error}") from error


class Masker:
    """Replaces secrets in a stream of bytes, also where a chunk ends inside one.

    The end of what it was fed is kept back while it may be the beginning of a secret.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        wanted: set[bytes] = set()
        for value in values:
            wanted.add(value.encode())
            lines = [line.strip() for line in value.splitlines()]
            if len(lines) > 1:
                wanted.update(line.encode() for line in lines if len(line) >= _SHORTEST_LINE)
        # The longest first: a secret may begin with another one.
        self._wanted = sorted(wanted - {b""}, key=lambda secret: (-len(secret), secret))
        self._held = b""

    def copy(self) -> Masker:
        """One for another stream."""
        other = Masker()
        other._wanted = self._wanted
        return other

    def feed(self, data: bytes) -> bytes:
        """What may be shown of all that was fed, and was not shown yet."""
        text = self._held + data
        shown = bytearray()
        at = 0
        while at < len(text):
            found, secret = self._next(text, at)
            kept_from = self._may_begin(text, at)
            # A longer secret may begin before, or where, the found one does.
            if kept_from is not None and (found < 0 or kept_from <= found):
                shown += text[at:kept_from]
                self._held = text[kept_from:]
                return bytes(shown)
            if found < 0:
                break
            shown += text[at:found] + MASK
            at = found + len(secret)
        shown += text[at:]
        self._held = b""
        return bytes(shown)

    def close(self) -> bytes:
        """What was kept back: the stream has ended, masked as far as it holds secrets."""
        text, self._held = self._held, b""
        for secret in self._wanted:
            text = text.replace(secret, MASK)
        return text

    def mask(self, text: str) -> str:
        """Mask a text that is whole."""
        encoded = text.encode("utf-8", "replace")
        for secret in self._wanted:
            encoded = encoded.replace(secret, MASK)
        return encoded.decode("utf-8", "replace")

    def _next(self, text: bytes, at: int) -> tuple[int, bytes]:
        """The first secret from `at`, the longest of those that begin there; -1 where none is."""
        best, chosen = -1, b""
        for secret in self._wanted:
            index = text.find(secret, at)
            if index >= 0 and (best < 0 or index < best):
                best, chosen = index, secret
        return best, chosen

    def _may_begin(self, text: bytes, at: int) -> int | None:
        """Where, from `at`, the end of the text is the beginning of a secret that is cut off."""
        earliest: int | None = None
        for secret in self._wanted:
            start = max(at, len(text) - len(secret) + 1)
            for index in range(start, len(text)):
                if secret.startswith(text[index:]):
                    if earliest is None or index < earliest:
                        earliest = index
                    break
        return earliest
