"""Checkpoints that can be trusted: a marker, written last, names every file with its digest.

A checkpoint is a folder `GGGGGGGG-SSSSSSSSSS[-p|-f]`: generation, step, and what it was written for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "COMMITTED"
PERIODIC, PREEMPTION, FINAL = "periodic", "preemption", "final"
SUFFIXES = {PERIODIC: "", PREEMPTION: "-p", FINAL: "-f"}
SKIPPED, NOT_WRITTEN, INCOMPLETE, DAMAGED = "skipped", "not_written", "incomplete", "damaged"
KEPT = 2

_NAME = re.compile(r"(\d{8,})-(\d{10,})(-p|-f)?")
_KINDS = {suffix: kind for kind, suffix in SUFFIXES.items()}
_BLOCK_BYTES = 1 << 20


class CheckpointUnusable(Exception):
    """A checkpoint is incomplete or damaged.

    Parameters
    ----------
    fault
        `INCOMPLETE` or `DAMAGED`.
    detail
        Which file, what was expected, what was found.
    """

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointName:
    """The name of a checkpoint's folder."""

    generation: int
    step: int
    kind: str

    @property
    def text(self) -> str:
        """As the folder is called."""
        return f"{self.generation:08d}-{self.step:010d}{SUFFIXES[self.kind]}"

    @property
    def order(self) -> tuple[int, int, int]:
        """Ascending from old to new."""
        return (self.generation, self.step, list(SUFFIXES).index(self.kind))

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """Read a folder's name; None: it is no checkpoint's."""
        if (found := _NAME.fullmatch(text)) is None:
            return None
        return cls(generation=int(found[1]), step=int(found[2]), kind=_KINDS[found[3] or ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a checkpoint; `sha256` hexadecimal."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMarker:
    """What `COMMITTED` says: which files are in the checkpoint, and what it holds.

    Parameters
    ----------
    name
        Generation, step and kind.
    done
        Work that it holds, in the job's own unit.
    files
        By path below the folder, with `/`.
    position
        What the program keeps of its place in the data: anything that JSON holds.
    """

    name: CheckpointName
    done: float
    files: Mapping[str, StoredFile]
    position: Any = None

    @property
    def sha256(self) -> str:
        """Digest of the lines `SHA256  NAME`, ascending by name, as sha256sum writes them."""
        lines = "".join(f"{self.files[name].sha256}  {name}\n" for name in sorted(self.files))
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files.values())

    def encode(self) -> bytes:
        """Write it as JSON."""
        content = {
            "generation": self.name.generation,
            "step": self.name.step,
            "done": self.done,
            "kind": self.name.kind,
            "files": {
                name: {"bytes": file.size_bytes, "sha256": file.sha256}
                for name, file in sorted(self.files.items())
            },
            "sha256": self.sha256,
            "position": self.position,
        }
        return json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes, name: CheckpointName) -> CommitMarker:
        """Read the marker of a checkpoint.

        Raises
        ------
        CheckpointUnusable
            It is not what was written, or belongs to another checkpoint.
        """
        try:
            content = json.loads(text)
            marker = cls(
                name=CheckpointName(
                    generation=int(content["generation"]),
                    step=int(content["step"]),
                    kind=str(content["kind"]),
                ),
                done=float(content["done"]),
                files={
                    str(file): StoredFile(size_bytes=int(row["bytes"]), sha256=str(row["sha256"]))
                    for file, row in content["files"].items()
                },
                position=content.get("position"),
            )
            said = content["sha256"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointUnusable(
                DAMAGED, f"{name.text}/{MARKER} cannot be read: {error!r}"
            ) from error
        if marker.name != name:
            raise CheckpointUnusable(DAMAGED, f"{name.text}/{MARKER} is of {marker.name}")
        if said != marker.sha256:
            raise CheckpointUnusable(
                DAMAGED, f"{name.text}/{MARKER}: sha256 must be {marker.sha256}, was {said}"
            )
        if unsafe := [file for file in marker.files if not inside(file)]:
            raise CheckpointUnusable(DAMAGED, f"{name.text}/{MARKER} names {unsafe[0]!r}")
        return marker


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A complete checkpoint, as the program reads it.

    Parameters
    ----------
    path
        A local folder with its files, to be read only.
    uri
        Where it is kept; the same folder where that is local.
    generation, step, kind
        Who wrote it, after which step, what for: `periodic`, `preemption`, `final`.
    done
        Work that it holds, in the job's own unit.
    sha256, size_bytes
        Of its files.
    position
        As the program gave it.
    """

    path: Path
    uri: str
    generation: int
    step: int
    kind: str
    done: float
    sha256: str
    size_bytes: int
    position: Any

    @classmethod
    def of(cls, marker: CommitMarker, path: Path, uri: str) -> StoredCheckpoint:
        """Describe the checkpoint of a marker."""
        return cls(
            path=path,
            uri=uri,
            generation=marker.name.generation,
            step=marker.name.step,
            kind=marker.name.kind,
            done=marker.done,
            sha256=marker.sha256,
            size_bytes=marker.size_bytes,
            position=marker.position,
        )


def inside(name: str) -> bool:
    """Tell whether a file's name stays below its folder."""
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and not {"", ".", ".."} & set(parts)


def digest_of_file(path: Path, *, durable: bool = False) -> StoredFile:
    """Hash a file; `durable` has the disk keep it first.

    Raises
    ------
    OSError
        It cannot be read, or not be kept.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        if durable:
            os.fsync(file.fileno())
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return StoredFile(size_bytes=size, sha256=digest.hexdigest())


def digests_of(folder: Path) -> dict[str, StoredFile]:
    """Have the disk keep a folder's files, and hash them, by path below it.

    Raises
    ------
    ValueError
        There is no file, one is named `COMMITTED`, or one is a link, whose target may change.
    OSError
        A file cannot be read or not be kept.
    """
    files = {}
    for base, folders, names in os.walk(folder):
        for name in sorted(
            [*names, *(inner for inner in folders if Path(base, inner).is_symlink())]
        ):
            path = Path(base, name)
            if path.is_symlink() or not path.is_file():
                raise ValueError(f"a checkpoint must hold plain files, {path} is none")
            files[path.relative_to(folder).as_posix()] = digest_of_file(path, durable=True)
        keep_folder(Path(base))
    if not files:
        raise ValueError(f"a checkpoint must hold a file: write it below {folder}")
    if MARKER in files:
        raise ValueError(f"no file of a checkpoint may be named {MARKER}")
    return files


def keep_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_file(path: Path, expected: StoredFile, name: str) -> None:
    """Compare a file with what the marker says.

    Raises
    ------
    CheckpointUnusable
        It is not there, cut short, or other than it was.
    """
    try:
        size = path.stat().st_size
        if size != expected.size_bytes:
            raise CheckpointUnusable(
                DAMAGED, f"{name} must have {expected.size_bytes} bytes, has {size}"
            )
        found = digest_of_file(path)
    except OSError as error:
        raise CheckpointUnusable(DAMAGED, f"{name} cannot be read: {error}") from error
    if found != expected:
        raise CheckpointUnusable(
            DAMAGED, f"{name} must have SHA-256 {expected.sha256}, has {found.sha256}"
        )


def to_remove(complete: Iterable[CheckpointName]) -> list[CheckpointName]:
    """Choose what newer complete checkpoints make needless.

    Kept are the two newest, at most one preemption checkpoint, which is newer than the older of
    them, and every result.
    """
    ascending = sorted(complete, key=lambda name: name.order)
    periodic = [name for name in ascending if name.kind == PERIODIC]
    warned = [name for name in ascending if name.kind == PREEMPTION]
    kept = set(periodic[-KEPT:])
    if warned and (len(periodic) < KEPT or warned[-1].order > periodic[-KEPT].order):
        kept.add(warned[-1])
    return [name for name in (*periodic, *warned) if name not in kept]
