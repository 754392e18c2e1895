"""Where checkpoints lie: a folder, or anything that fsspec reaches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from spotline.trainer.checkpoints import (
    DAMAGED,
    INCOMPLETE,
    MARKER,
    CheckpointName,
    CheckpointUnusable,
    CommitMarker,
    StoredCheckpoint,
    check_file,
    digests_of,
    keep_folder,
)

FOLDER = "checkpoints"
_WRITING = ".writing-"
_REMOVING = ".removing-"


class CheckpointStore(Protocol):
    """Checkpoints of one job. Committing is the last thing that makes one visible as complete."""

    def staging(self, name: CheckpointName) -> Path:
        """Return the local folder in which a checkpoint is written; it may not exist."""
        ...

    def commit(self, name: CheckpointName, *, done: float, position: Any) -> StoredCheckpoint:
        """Make what was staged a complete checkpoint. One that is complete already stays."""
        ...

    def names(self) -> list[CheckpointName]:
        """Every folder that is named as a checkpoint, complete or not, ascending."""
        ...

    def leftovers(self) -> list[CheckpointName]:
        """Checkpoints that were being written and are not visible."""
        ...

    def finish_removals(self) -> None:
        """Remove what a killed program had begun to remove and nobody can see any more."""
        ...

    def marker(self, name: CheckpointName) -> CommitMarker:
        """Read a marker; `CheckpointUnusable` where there is none or it is broken."""
        ...

    def fetch(self, name: CheckpointName) -> StoredCheckpoint:
        """Verify every byte, bringing remote files here; `CheckpointUnusable` where one is wrong."""
        ...

    def found(self, name: CheckpointName) -> StoredCheckpoint:
        """Return a checkpoint that another rank of this instance has fetched."""
        ...

    def remove(self, name: CheckpointName) -> None:
        """Remove a checkpoint, marker first, and what was staged for it."""
        ...


def open_store(uri: str, scratch: Path) -> CheckpointStore:
    """Open the checkpoints below a folder or an fsspec URL.

    Parameters
    ----------
    scratch
        A local folder, of this job alone, for what is on its way to or from a remote store.

    Raises
    ------
    ValueError
        fsspec does not know the URL's scheme, or its client is not installed.
    """
    if "://" not in uri and "::" not in uri:
        return FolderStore(Path(uri) / FOLDER)
    if uri.startswith(("file://", "local://")):
        return FolderStore(Path(uri.partition("://")[2]) / FOLDER)
    return UrlStore(uri, scratch)


class FolderStore:
    """Checkpoints in a folder that all members share. One becomes visible whole, by a rename."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def staging(self, name: CheckpointName) -> Path:
        """See `CheckpointStore`."""
        return self._root / f"{_WRITING}{name.text}"

    def commit(self, name: CheckpointName, *, done: float, position: Any) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        staged, final = self.staging(name), self._root / name.text
        marker = CommitMarker(name=name, done=done, files=digests_of(staged), position=position)
        write_durably(staged / MARKER, marker.encode())
        keep_folder(staged)
        if final.exists():
            try:
                known = self.marker(name)
            except CheckpointUnusable:
                self._drop(final)
            else:  # the same step of the same generation: the same state
                shutil.rmtree(staged)
                return StoredCheckpoint.of(known, final, str(final))
        staged.rename(final)
        keep_folder(self._root)
        return StoredCheckpoint.of(marker, final, str(final))

    def names(self) -> list[CheckpointName]:
        """See `CheckpointStore`."""
        return parsed(self._folders())

    def leftovers(self) -> list[CheckpointName]:
        """See `CheckpointStore`."""
        return parsed(hidden(self._folders()))

    def finish_removals(self) -> None:
        """See `CheckpointStore`."""
        for name in self._folders():
            if name.startswith(_REMOVING):
                # Another process may remove it at the same time; what is left goes next time.
                shutil.rmtree(self._root / name, ignore_errors=True)

    def marker(self, name: CheckpointName) -> CommitMarker:
        """See `CheckpointStore`."""
        try:
            text = (self._root / name.text / MARKER).read_bytes()
        except FileNotFoundError:
            raise CheckpointUnusable(INCOMPLETE, f"{name.text} has no {MARKER}") from None
        except OSError as error:
            raise CheckpointUnusable(DAMAGED, f"{name.text}/{MARKER}: {error}") from error
        return CommitMarker.decode(text, name)

    def fetch(self, name: CheckpointName) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        marker = self.marker(name)
        for file, expected in marker.files.items():
            check_file(self._root / name.text / file, expected, f"{name.text}/{file}")
        return StoredCheckpoint.of(marker, self._root / name.text, str(self._root / name.text))

    def found(self, name: CheckpointName) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        folder = self._root / name.text
        return StoredCheckpoint.of(self.marker(name), folder, str(folder))

    def remove(self, name: CheckpointName) -> None:
        """See `CheckpointStore`."""
        shutil.rmtree(self.staging(name), ignore_errors=True)
        if (folder := self._root / name.text).exists():
            self._drop(folder)

    def _drop(self, folder: Path) -> None:
        # Half removed it must not look like a checkpoint.
        folder.rename(self._root / f"{_REMOVING}{folder.name}")
        self.finish_removals()

    def _folders(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []


class UrlStore:
    """Checkpoints in an object store: files are put first, the marker last; there is no rename."""

    def __init__(self, uri: str, scratch: Path) -> None:
        try:
            from fsspec.core import url_to_fs

            self._fs, root = url_to_fs(uri)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"SPOTLINE_CHECKPOINT_URI must be a folder or a URL that fsspec can open, "
                f"was {uri!r}: {error}"
            ) from error
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._uri = f"{uri.rstrip('/')}/{FOLDER}"
        self._scratch = scratch

    def staging(self, name: CheckpointName) -> Path:
        """See `CheckpointStore`."""
        return self._scratch / f"{_WRITING}{name.text}"

    def commit(self, name: CheckpointName, *, done: float, position: Any) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        staged, at = self.staging(name), f"{self._root}/{name.text}"
        marker = CommitMarker(name=name, done=done, files=digests_of(staged), position=position)
        try:
            marker = self.marker(name)  # the same step of the same generation: the same state
        except CheckpointUnusable:
            self._remove_remote(name)
            for file, expected in marker.files.items():
                self._put(staged / file, f"{at}/{file}", expected.size_bytes)
            self._fs.pipe_file(f"{at}/{MARKER}", marker.encode())
        shutil.rmtree(staged)
        return StoredCheckpoint.of(marker, staged, f"{self._uri}/{name.text}")

    def _put(self, path: Path, at: str, size_bytes: int) -> None:
        self._fs.makedirs(at.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(path), at)
        self._fs.invalidate_cache()
        if (stored := self._fs.size(at)) != size_bytes:
            raise OSError(f"{at} must have {size_bytes} bytes, the store has {stored}")

    def names(self) -> list[CheckpointName]:
        """See `CheckpointStore`."""
        self._fs.invalidate_cache()
        try:
            rows = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return parsed(row["name"].rstrip("/").rpartition("/")[2] for row in rows)

    def leftovers(self) -> list[CheckpointName]:
        """See `CheckpointStore`."""
        if not self._scratch.is_dir():
            return []
        return parsed(hidden(entry.name for entry in self._scratch.iterdir()))

    def finish_removals(self) -> None:
        """See `CheckpointStore`: without a marker the rest is an incomplete checkpoint."""

    def marker(self, name: CheckpointName) -> CommitMarker:
        """See `CheckpointStore`."""
        self._fs.invalidate_cache()
        try:
            text = self._fs.cat_file(f"{self._root}/{name.text}/{MARKER}")
        except FileNotFoundError:
            raise CheckpointUnusable(INCOMPLETE, f"{name.text} has no {MARKER}") from None
        return CommitMarker.decode(text, name)

    def fetch(self, name: CheckpointName) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        marker = self.marker(name)
        shutil.rmtree(self._scratch / "resumed", ignore_errors=True)
        for file, expected in marker.files.items():
            path = self._resumed(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._fs.get_file(f"{self._root}/{name.text}/{file}", str(path))
            except FileNotFoundError as error:
                raise CheckpointUnusable(DAMAGED, f"{name.text}/{file} is not there") from error
            check_file(path, expected, f"{name.text}/{file}")
        return StoredCheckpoint.of(marker, self._resumed(name), f"{self._uri}/{name.text}")

    def found(self, name: CheckpointName) -> StoredCheckpoint:
        """See `CheckpointStore`."""
        return StoredCheckpoint.of(
            self.marker(name), self._resumed(name), f"{self._uri}/{name.text}"
        )

    def remove(self, name: CheckpointName) -> None:
        """See `CheckpointStore`."""
        shutil.rmtree(self.staging(name), ignore_errors=True)
        self._remove_remote(name)

    def _remove_remote(self, name: CheckpointName) -> None:
        at = f"{self._root}/{name.text}"
        self._fs.invalidate_cache()
        if self._fs.exists(f"{at}/{MARKER}"):
            self._fs.rm_file(f"{at}/{MARKER}")
        if self._fs.exists(at):
            self._fs.rm(at, recursive=True)

    def _resumed(self, name: CheckpointName) -> Path:
        return self._scratch / "resumed" / name.text


def parsed(texts: Iterable[str]) -> list[CheckpointName]:
    """Return what of these are names of checkpoints, ascending."""
    names = (CheckpointName.parse(text) for text in texts)
    return sorted((name for name in names if name is not None), key=lambda name: name.order)


def hidden(names: Iterable[str]) -> list[str]:
    """Return what the folders that are being written will be called."""
    return [name.removeprefix(_WRITING) for name in names if name.startswith(_WRITING)]


def write_durably(path: Path, content: bytes) -> None:
    """Write a file aside, have the disk keep it, and give it its name."""
    aside = path.with_name(f".{path.name}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
