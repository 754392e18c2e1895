"""A chain as files: lines that are only appended, in segments by size."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spotline.adapters.identity.private_files import make_private_folder
from spotline.application.identity.audit import (
    MOST_LINE_BYTES,
    Act,
    AuditRecord,
    ChainHead,
    LineUnreadable,
    line_of,
    origin_of,
    record_of,
    recorded,
)
from spotline.contracts.errors import AuditUnavailable

SEGMENT_BYTES = 64 << 20
_SUFFIX = ".jsonl"
_SEGMENT = re.compile(r"(?P<chain>[a-z_]+)\.(?P<first>\d{12})\.jsonl")


@contextmanager
def alone(folder: Path, chain: str) -> Iterator[None]:
    """Have nobody else append to a chain, of any process, until this is left."""
    lock = os.open(folder / f"{chain}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(lock, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


class ChainFile:
    """Appends to a chain; other processes may append to the same one.

    The records of `chain` are in FOLDER/CHAIN.jsonl, those of before in FOLDER/CHAIN.FIRST.jsonl,
    where FIRST is the number of the first record in it.

    Raises
    ------
    AuditUnavailable
        The folder cannot be made.
    """

    def __init__(self, folder: Path, chain: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.chain = chain
        self._folder = folder
        self._path = folder / f"{chain}{_SUFFIX}"
        self._segment_bytes = segment_bytes
        self._file = -1
        # What the file was when it was last written to, or read.
        self._seen = (0, 0)
        self.head = origin_of(chain)
        try:
            make_private_folder(folder)
        except OSError as error:
            raise _unavailable(folder, error) from error

    def append(self, acts: Sequence[Act]) -> list[AuditRecord]:
        """Record acts in this order; they are on the disk when this returns, all or none.

        Raises
        ------
        AuditUnavailable
            They are not: the disk is full, or the file is not what was written.
        """
        try:
            with alone(self._folder, self.chain):
                self._look()
                if self._seen[1] >= self._segment_bytes:
                    self._begin_segment()
                return self._write(acts)
        except OSError as error:
            raise _unavailable(self._path, error) from error

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _look(self) -> None:
        """Have the file open as it is now, and its head."""
        if self._file >= 0:
            try:
                there = self._path.stat()
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_ino, there.st_size) == self._seen:
                return
            self.close()
        self._open()

    def _open(self) -> None:
        made = not self._path.exists()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if made:
            _sync_folder(self._folder)
        size = os.fstat(self._file).st_size
        tail, whole = _tail_of(self._file, size)
        if whole < size:
            # Half a line is what a crash left of what nobody was told is recorded.
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
        self.head = self._head_of(self._path, tail) if whole else self._head_before()
        self._note_size(whole)

    def _head_before(self) -> ChainHead:
        segments = segments_of(self._folder, self.chain)
        if not segments:
            return origin_of(self.chain)
        last = segments[-1]
        file = os.open(last, os.O_RDONLY)
        try:
            tail, _ = _tail_of(file, os.fstat(file).st_size)
        finally:
            os.close(file)
        return self._head_of(last, tail)

    def _head_of(self, path: Path, tail: bytes) -> ChainHead:
        lines = tail.splitlines()
        try:
            return record_of(lines[-1].decode() if lines else "").head
        except (LineUnreadable, UnicodeDecodeError) as error:
            raise self._no_record("end", path, error) from error

    def _no_record(self, place: str, path: Path, error: ValueError) -> AuditUnavailable:
        return AuditUnavailable(
            f"{path}: expected a record at its {place}, found none ({error}): see `spotline audit "
            f"verify`, and move the files of {self.chain} elsewhere, that a chain may begin"
        )

    def _begin_segment(self) -> None:
        with self._path.open("rb") as file:
            line = file.readline()
        try:
            first = record_of(line.decode().rstrip("\n")).seq
        except (LineUnreadable, UnicodeDecodeError) as error:
            raise self._no_record("beginning", self._path, error) from error
        self.close()
        self._path.rename(self._folder / f"{self.chain}.{first:012d}{_SUFFIX}")
        self._open()

    def _write(self, acts: Sequence[Act]) -> list[AuditRecord]:
        head, records = self.head, []
        for act in acts:
            record = recorded(head, act)
            records.append(record)
            head = record.head
        text = "".join(f"{line_of(record)}\n" for record in records).encode()
        before = self._seen[1]
        try:
            left = memoryview(text)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            # Nobody was told of what is there of it; the next one looks again what there is.
            self._take_back(before)
            raise
        self.head = head
        self._note_size(before + len(text))
        return records

    def _take_back(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        finally:
            self.close()

    def _note_size(self, size: int) -> None:
        self._seen = (os.fstat(self._file).st_ino, size)


def _tail_of(file: int, size: int) -> tuple[bytes, int]:
    """The end of a file up to its last whole line, at least that line; and up to where that is."""
    start = max(0, size - 2 * MOST_LINE_BYTES)
    tail = os.pread(file, size - start, start)
    whole = tail.rfind(b"\n") + 1
    return tail[:whole], start + whole


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(path: Path, error: OSError) -> AuditUnavailable:
    reason = error.strerror or str(error)
    return AuditUnavailable(f"{path}: expected a file that can be written to, found: {reason}")


# --- reading ------------------------------------------------------------------------------------


def segments_of(folder: Path, chain: str) -> list[Path]:
    """The files of a chain that are full, in the order of their records."""
    found = []
    for path in folder.glob(f"{chain}.*{_SUFFIX}"):
        match = _SEGMENT.fullmatch(path.name)
        if match is not None and match["chain"] == chain:
            found.append(path)
    return sorted(found)


def chains_in(folder: Path) -> list[str]:
    """The names of the chains that a folder has."""
    names = set()
    for path in folder.glob(f"*{_SUFFIX}"):
        match = _SEGMENT.fullmatch(path.name)
        names.add(path.name.removesuffix(_SUFFIX) if match is None else match["chain"])
    return sorted(names)


def copy_chains(folder: Path, to: Path) -> None:
    """Copy the chains of a folder to a new one of this user's alone, each as of one moment.

    Who appends to a chain waits meanwhile. Nothing is copied where there are no chains.

    Raises
    ------
    OSError
        A file cannot be read, or not be written.
    """
    chains = chains_in(folder)
    if chains:
        make_private_folder(to)
    for chain in chains:
        with alone(folder, chain):
            last = folder / f"{chain}{_SUFFIX}"
            for path in (*segments_of(folder, chain), last):
                if path.exists():
                    shutil.copy2(path, to / path.name)


def lines_of(folder: Path, chain: str) -> Iterator[str]:
    """The lines of a chain, also while it is written to.

    Half a line at the end of the last file is none: it is being written, or was when a process died.

    Raises
    ------
    OSError
        A file cannot be read.
    """
    last = folder / f"{chain}{_SUFFIX}"
    for path in (*segments_of(folder, chain), last):
        if path == last and not path.exists():
            return
        with path.open("rb") as file:
            for line in file:
                if path == last and not line.endswith(b"\n"):
                    return
                yield line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
