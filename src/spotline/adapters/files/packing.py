"""A working directory as one archive under the digest of its bytes, and where it is stored.

The same files give the same archive: names are sorted, times and owners are left out, of modes only
the right to execute is kept. What `.spotlineignore` names (as `.gitignore` would) is not packed, nor
is what nobody's program needs, such as `.git`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from spotline.adapters.files.mistake import BadFile, Mistake, bad_file, shown_key
from spotline.domain.jobs.run import RunPackage

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pathspec import GitIgnoreSpec

    from spotline.adapters.files.job_file import StatedJob
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job

IGNORE_FILE = ".spotlineignore"
ALWAYS_IGNORED = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.py[cod]", ".venv/", "venv/"),
    *(".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".ipynb_checkpoints/", ".DS_Store"),
)
"""Patterns that hold before those of `.spotlineignore`, which may take them back with `!`."""

DEFAULT_MOST_BYTES = 100_000_000

_WORKDIR = "run.workdir"
_LOCATION = "checkpoint.location"
_MOST_ENTRIES = 100_000
_LARGEST_SHOWN = 3


class _TooLarge(Exception):
    """The archive has grown beyond its bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packed working directory: the archive, for as long as the context that made it."""

    archive: Path
    sha256: str
    size_bytes: int

    def package_at(self, location: str) -> RunPackage:
        """The package, as it is called below a checkpoint location."""
        uri = f"{location.rstrip('/')}/packages/{self.sha256}.tar.gz"
        return RunPackage(sha256=self.sha256, uri=uri, size_bytes=self.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A file, folder or link to pack: its name in the archive, and where it is."""

    name: str
    path: Path
    mode: int
    size: int
    target: str = ""


@contextmanager
def packed_job(
    stated: StatedJob, now_ns: int | None, *, most_bytes: int = DEFAULT_MOST_BYTES
) -> Iterator[tuple[Job | JobDraft, Path | None]]:
    """A job as it can be submitted at a market time, its working directory packed, not yet stored.

    With it comes the archive, for as long as the context lasts; None where nothing is packed.

    Raises
    ------
    BadFile
        As `packed` and `StatedJob.resolved`.
    """
    if stated.workdir is None:
        yield stated.resolved(now_ns=now_ns), None
        return
    location = stated.checkpoint_location
    checkpoints = Path(location.removeprefix("file://"))
    with packed(
        stated.workdir, where=stated.where, most_bytes=most_bytes, leave_out=[checkpoints]
    ) as package:
        yield (
            stated.resolved(now_ns=now_ns, package=package.package_at(location)),
            package.archive,
        )


@contextmanager
def packed(
    workdir: Path,
    *,
    where: str,
    most_bytes: int = DEFAULT_MOST_BYTES,
    leave_out: Sequence[Path] = (),
) -> Iterator[Packed]:
    """Pack a working directory into a temporary file.

    Parameters
    ----------
    where
        The job file, as errors name it.
    most_bytes
        What the archive may have, packed.
    leave_out
        Folders that are not packed wherever they lie, such as that of the checkpoints.

    Raises
    ------
    BadFile
        It is no folder, holds what no archive can (each such entry is named), or is too large.
    """
    entries = _entries(workdir, where, {_real(path) for path in leave_out})
    with TemporaryDirectory(prefix="spotline-package-") as folder:
        archive = Path(folder) / "package.tar.gz"
        with archive.open("wb") as stream:
            writer = _Measured(stream, most_bytes)
            try:
                _write(entries, writer, where)
            except _TooLarge:
                raise _too_large(entries, where, most_bytes) from None
        yield Packed(archive=archive, sha256=writer.digest.hexdigest(), size_bytes=writer.size)


def store(archive: Path, package: RunPackage, *, where: str) -> bool:
    """Put a package where it says that it is, unless it is there; returns whether it was put.

    Raises
    ------
    BadFile
        Nothing can be written there; `where` is the job file that names the place.
    """
    # An object store's client takes a second to load.
    import fsspec

    try:
        filesystem, path = fsspec.url_to_fs(package.uri)
        if filesystem.exists(path) and filesystem.size(path) == package.size_bytes:
            return False
        _put(filesystem, archive, path)
        filesystem.invalidate_cache()
        size = filesystem.size(path)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        found = " ".join(str(error).split())[:200] or type(error).__name__
        raise bad_file(where, _LOCATION, "a place that can be written to", found) from error
    if size != package.size_bytes:
        expected = f"a place that keeps the {package.size_bytes:,} bytes of {package.uri}"
        raise bad_file(where, _LOCATION, expected, f"{size:,} bytes there")
    return True


def _put(filesystem: AbstractFileSystem, archive: Path, path: str) -> None:
    from fsspec.implementations.local import LocalFileSystem

    parent, _, name = path.rpartition("/")
    filesystem.makedirs(parent, exist_ok=True)
    if not isinstance(filesystem, LocalFileSystem):
        # Object stores show an object when it is whole.
        filesystem.put_file(str(archive), path)
        return
    aside = f"{parent}/.{name}.{uuid.uuid4().hex}"
    try:
        filesystem.put_file(str(archive), aside)
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)


# --- what is packed ---------------------------------------------------------------------------


def _entries(workdir: Path, where: str, left_out: set[Path]) -> list[_Entry]:
    if not workdir.is_dir():
        there = "a file" if workdir.exists() else "none"
        raise bad_file(where, _WORKDIR, "a folder", f"{there} at {workdir}")
    ignored = _ignored(workdir, where)
    root = _real(workdir)
    found: list[_Entry] = []
    mistakes: list[Mistake] = []
    folders = [(workdir, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            mistakes.append(_mistake("folders that can be read", prefix or ".", error))
            continue
        for entry in inside:
            name = f"{prefix}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            path = Path(entry.path)
            if ignored.match_file(f"{name}/" if is_folder else name):
                continue
            if is_folder and _real(path) in left_out:
                continue
            made = _entry(entry, name, root)
            if isinstance(made, Mistake):
                mistakes.append(made)
                continue
            found.append(made)
            if is_folder:
                folders.append((path, f"{name}/"))
        if len(found) > _MOST_ENTRIES:
            most = f"at most {_MOST_ENTRIES:,} files and folders (name others in {IGNORE_FILE})"
            raise bad_file(where, _WORKDIR, most, "more")
    if mistakes:
        raise BadFile(where, mistakes)
    return sorted(found, key=lambda entry: entry.name)


def _ignored(workdir: Path, where: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    path = workdir / IGNORE_FILE
    lines: list[str] = []
    try:
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
        return GitIgnoreSpec.from_lines([*ALWAYS_IGNORED, *lines])
    except (OSError, ValueError) as error:
        raise bad_file(where, _WORKDIR, f"patterns in {path}", str(error)) from error


def _entry(entry: os.DirEntry[str], name: str, root: Path) -> _Entry | Mistake:
    """What an entry of a folder is packed as, or why it cannot be."""
    path = Path(entry.path)
    try:
        name.encode()
        status = entry.stat(follow_symlinks=False)
        kind, runs = stat.S_IFMT(status.st_mode), bool(status.st_mode & stat.S_IXUSR)
        if kind == stat.S_IFDIR:
            return _Entry(name=name, path=path, mode=0o755, size=0)
        if kind == stat.S_IFLNK:
            return _link(path, name, root)
        if kind == stat.S_IFREG:
            mode = 0o755 if runs else 0o644
            return _Entry(name=name, path=path, mode=mode, size=status.st_size)
    except UnicodeEncodeError:
        return _mistake("names in UTF-8", name.encode(errors="replace").decode())
    except OSError as error:
        return _mistake("files that can be read", name, error)
    return _mistake(
        "files, folders and links only", f"{name}, {_KINDS.get(kind, 'something else')}"
    )


_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def _link(path: Path, name: str, root: Path) -> _Entry | Mistake:
    target = os.readlink(path)
    leads_to = _real(path)
    if Path(target).is_absolute() or not leads_to.is_relative_to(root):
        return _mistake("links that stay below it", f"{name}, a link to {shown_key(target)}")
    return _Entry(name=name, path=path, mode=0o777, size=0, target=target)


def _mistake(expected: str, found: str, error: OSError | None = None) -> Mistake:
    said = f"{shown_key(found)}: {error.strerror or error}" if error else found
    return Mistake(field=_WORKDIR, expected=f"{expected} (or {IGNORE_FILE} names it)", found=said)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


# --- the archive ------------------------------------------------------------------------------


class _Measured:
    """Writes, counts and digests; `_TooLarge` beyond a bound."""

    def __init__(self, stream: IO[bytes], most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.size += len(content)
        if self.size > self._most_bytes:
            raise _TooLarge
        self.digest.update(content)
        return self._stream.write(content)

    def flush(self) -> None:
        self._stream.flush()


def _write(entries: Sequence[_Entry], writer: _Measured, where: str) -> None:
    # Neither the time nor a name gets into the header.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=writer, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in entries:
            try:
                _add(archive, entry)
            except OSError as error:
                expected = "files that can be read, and stay as they are while they are packed"
                found = f"{shown_key(entry.name)}: {error.strerror or error}"
                raise bad_file(where, _WORKDIR, expected, found) from error


def _add(archive: tarfile.TarFile, entry: _Entry) -> None:
    header = tarfile.TarInfo(entry.name)
    header.mode = entry.mode
    if entry.target:
        header.type, header.linkname = tarfile.SYMTYPE, entry.target
        archive.addfile(header)
    elif entry.path.is_dir():
        header.type = tarfile.DIRTYPE
        archive.addfile(header)
    else:
        # It was a file when it was looked at; what took its place must not be waited for.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(entry.path, flags), "rb") as content:
            header.size = os.fstat(content.fileno()).st_size
            archive.addfile(header, content)


def _too_large(entries: Sequence[_Entry], where: str, most_bytes: int) -> BadFile:
    largest = sorted(entries, key=lambda entry: (-entry.size, entry.name))[:_LARGEST_SHOWN]
    sizes = ", ".join(f"{shown_key(entry.name)} ({entry.size / 1e6:,.1f} MB)" for entry in largest)
    expected = (
        f"at most {most_bytes / 1e6:g} MB when packed (name what is not needed in {IGNORE_FILE}, or "
        "raise --package-mb)"
    )
    return bad_file(where, _WORKDIR, expected, f"more; the largest files are {sizes}")
