"""Value tables on disk: one folder a machine, mapped by every process that looks into them.

A file is a line that says what it is, the SHA-256 of the numbers, and the numbers, float32 in the
table's order. It is written beside its place and renamed, so that nobody sees half of one. A file
that is not what its name says is built again, with a warning: nothing depends on what is kept here.

The folder lies in another, named by what tables are solved with: after an upgrade, or where numbers
are rounded otherwise, a table of the same name may be another.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import platform
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from weakref import WeakValueDictionary

import numba
import numpy as np
import structlog
from numba.misc.appdirs import AppDirs

from spotline.domain.kernels import kernel_sources, sources_digest
from spotline.domain.solvers.table_stage import TableArray
from spotline.domain.solvers.table_store import HeldTables, TableStore

_log = structlog.get_logger(__name__)

DEFAULT_MOST_BYTES = 4 << 30
# A process holds a descriptor for each table that it has mapped; the usual limit is 1,024.
_MOST_MAPPED = 256
_MAGIC = b"spotline-table 1\n"
_HEAD = len(_MAGIC) + 32
# Where the numbers begin: kernels want them aligned.
_FIRST = -(-_HEAD // 64) * 64
_CHUNK = 1 << 20
_KEPT_FOLDERS = 3
_ENDING = ".table"


class MappedTables:
    """Keeps tables in a folder, `most_bytes` of them, those used last.

    Several processes may use one folder, and several threads this object: a table that two threads
    want is built once.

    Parameters
    ----------
    folder
        Made where it is missing.

    Raises
    ------
    OSError
        The folder cannot be made or written to.
    """

    def __init__(self, folder: Path, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._keeps = True
        self._mapped: dict[str, TableArray] = {}
        self._building: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        # What was read whole by this process need not be read again to be mapped.
        self._checked: dict[str, tuple[int, int]] = {}
        # Where the disk takes no more, tables are kept as they were before there was a folder.
        self._unwritten = HeldTables()

    def array(
        self, name: str, shape: tuple[int, ...], build: Callable[[], TableArray]
    ) -> TableArray:
        """Return the table of this name and shape, mapped, or built and kept where there is none."""
        mapped = self._known(name)
        if mapped is not None:
            return mapped
        with self._lock:
            turn = self._building.setdefault(name, _Turn())
        with turn.lock:
            mapped = self._known(name)
            if mapped is None:
                mapped = self._opened(name, shape)
            if mapped is None:
                mapped = self._built(name, shape, build)
            return mapped

    def has(self, name: str) -> bool:
        """Whether it is mapped, or its file is there."""
        return name in self._mapped or self._unwritten.has(name) or self._path(name).exists()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_ENDING}"

    def _known(self, name: str) -> TableArray | None:
        with self._lock:
            mapped = self._mapped.pop(name, None)
            if mapped is not None:
                self._mapped[name] = mapped
        if mapped is not None:
            self._use(name)
        return mapped

    def _use(self, name: str) -> None:
        # When it was used last says which goes first; another process may have removed it.
        with suppress(OSError):
            os.utime(self._path(name))

    def _built(
        self, name: str, shape: tuple[int, ...], build: Callable[[], TableArray]
    ) -> TableArray:
        after = self._unwritten.array(name, shape, build) if self._unwritten.has(name) else build()
        try:
            self._write(name, after)
        except OSError as error:
            if self._keeps:
                # Once, not for every table: of a full disk nothing else is new.
                _log.warning("tables_not_kept", folder=str(self._folder), error=str(error))
            self._keeps = False
            return self._unwritten.array(name, shape, lambda: after)
        self._keeps = True
        mapped = self._opened(name, shape)
        # Another process may have made room by it already.
        return after if mapped is None else mapped

    def _write(self, name: str, after: TableArray) -> None:
        content = np.ascontiguousarray(after).tobytes()
        head = (_MAGIC + hashlib.sha256(content).digest()).ljust(_FIRST, b"\0")
        # Whoever clears caches may have cleared the folder.
        self._folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self._folder, delete=False) as file:
            try:
                file.write(head)
                file.write(content)
                file.flush()
                os.replace(file.name, self._path(name))
            except BaseException:
                with suppress(OSError):
                    os.unlink(file.name)
                raise
        self._checked[name] = _stamp(os.stat(self._path(name)))
        self._make_room(name)

    def _opened(self, name: str, shape: tuple[int, ...]) -> TableArray | None:
        path = self._path(name)
        try:
            with path.open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if self._checked.get(name) != stamp:
                    fault = _fault(file.fileno(), shape)
                    if fault:
                        _log.warning("table_unreadable", path=str(path), error=fault)
                        return None
                    self._checked[name] = stamp
                # A private map: kernels are compiled for arrays that may be written, none does.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("table_unreadable", path=str(path), error=str(error))
            return None
        after = np.frombuffer(content, dtype=np.float32, offset=_FIRST).reshape(shape)
        self._use(name)
        with self._lock:
            self._mapped[name] = after
            while len(self._mapped) > _MOST_MAPPED:
                del self._mapped[next(iter(self._mapped))]
        return after

    def _make_room(self, fresh: str) -> None:
        """Remove the files used longest ago until the rest fits; who has them mapped keeps them."""
        files = []
        for path in self._folder.glob(f"*{_ENDING}"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, path.name, stat.st_size))
        too_many = sum(size for *_, size in files) - self._most_bytes
        for _, name, size in sorted(files):
            if too_many <= 0:
                break
            if name == f"{fresh}{_ENDING}":
                continue
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()
            too_many -= size


class _Turn:
    """Who builds a table, others wait for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def _stamp(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_ino, stat.st_size


def _fault(descriptor: int, shape: tuple[int, ...]) -> str:
    """What is wrong with a file, empty where it is what was written; it is read, not mapped."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        head = file.read(_FIRST)
        wanted = _FIRST + 4 * math.prod(shape)
        size = os.fstat(descriptor).st_size
        if not head.startswith(_MAGIC) or size != wanted:
            return f"expected a table of {wanted} bytes, found {size}"
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.digest() != head[len(_MAGIC) : _HEAD]:
        return "its checksum is of other numbers"
    return ""


def machine_tables(
    parent: Path | None = None, most_bytes: int = DEFAULT_MOST_BYTES
) -> TableStore | None:
    """The store of this machine, in `parent` or with the user's other caches; None: no room there.

    The environment variable `SPOTLINE_TABLES` names the parent, too.
    """
    named = os.environ.get("SPOTLINE_TABLES", "")
    if parent is None:
        parent = Path(named) if named else Path(AppDirs("spotline", appauthor=False).user_cache_dir)  # type: ignore[no-untyped-call]
    folder = parent / f"tables-{_solver()}"
    try:
        store = MappedTables(folder, most_bytes)
    except OSError as error:
        _log.warning("tables_not_kept", folder=str(folder), error=str(error))
        return None
    _forget_oldest(parent, folder)
    return store


def _solver() -> str:
    """What tables are solved with: our sources, and what makes machine code of them."""
    parts = (
        sources_digest(kernel_sources()),
        numba.__version__,
        np.__version__,
        platform.machine(),
        platform.processor(),
        str(numba.config.CPU_NAME),  # type: ignore[attr-defined]
        str(numba.config.DISABLE_JIT),  # type: ignore[attr-defined]
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _forget_oldest(parent: Path, used: Path) -> None:
    others = []
    for folder in parent.glob("tables-*"):
        with suppress(FileNotFoundError):
            if folder != used:
                others.append((folder.stat().st_mtime_ns, folder.name))
    for _, name in sorted(others)[: 1 - _KEPT_FOLDERS]:
        shutil.rmtree(parent / name, ignore_errors=True)
