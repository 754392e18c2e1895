"""What an instance writes, in a file that stays small: the beginning, and the newest end.

Standard library only, and little of it: every instance's first process loads this.
"""

from __future__ import annotations

import os

CONSOLE = "console.log"
# What is kept of the beginning, and at least of the newest end; of this at most twice as much.
BEGINNING_BYTES = NEWEST_BYTES = 1 << 20

_READ_BYTES = 64 * 1024


class Console:
    """A file of `beginning_bytes` and `newest_bytes` to twice as many, and a line between them.

    That line has less than 100 bytes, and `newest_bytes` must not be fewer. A disk that takes
    nothing costs what is written meanwhile, and holds up nobody.
    """

    def __init__(
        self,
        path: str,
        *,
        beginning_bytes: int = BEGINNING_BYTES,
        newest_bytes: int = NEWEST_BYTES,
    ) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._beginning, self._newest = beginning_bytes, newest_bytes
        # Where the beginning ends and the newest end begins, once anything was left out.
        self._kept = self._resumed = 0
        self._left_out = 0

    def follow(self, pipe: int) -> None:
        """Write what comes out of a pipe until nobody can write into it any more."""
        while said := os.read(pipe, _READ_BYTES):
            self.write(said)

    def write(self, said: bytes) -> None:
        """Append; where that is too much, leave out what is neither first nor newest."""
        try:
            self._append(said)
            size = os.fstat(self._file).st_size
            if size > self._beginning + 2 * self._newest:
                self._shorten(size)
        except OSError:
            return

    def _append(self, said: bytes) -> None:
        while said:
            said = said[os.write(self._file, said) :]

    def _shorten(self, size: int) -> None:
        """Cut the middle out, at the ends of lines where there are any."""
        if not self._left_out:
            first = os.pread(self._file, self._beginning, 0)
            self._kept = self._resumed = first.rfind(b"\n") + 1 or len(first)
        last = os.pread(self._file, self._newest, size - self._newest)
        last = last[last.find(b"\n") + 1 :] or last
        self._left_out += size - len(last) - self._resumed
        said = f"[spotline: {self._left_out} bytes were left out here]\n".encode()
        if os.pread(self._file, 1, self._kept - 1) != b"\n":
            said = b"\n" + said
        os.ftruncate(self._file, self._kept)
        self._append(said + last)
        self._resumed = self._kept + len(said)
