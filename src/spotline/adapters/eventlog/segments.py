"""The incarnations of a recorded log: each in a folder of its own, whole from its first entry on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spotline.adapters.eventlog.lines import entry_of
from spotline.adapters.eventlog.manifest import (
    ENTRIES_FILE,
    MANIFEST_FILE,
    STATISTICS_FILE,
    LogStatus,
    UnreadableLog,
    read_manifest,
    write_manifest,
)

_FOLDER = "incarnation-"
_READ_BACK_BYTES = 1 << 16


def segments_of(directory: Path) -> Sequence[Path]:
    """The folders of a log, oldest incarnation first; the last is the log itself."""
    found = [
        (int(number), folder)
        for folder in directory.glob(f"{_FOLDER}*")
        for number in (folder.name.removeprefix(_FOLDER),)
        if number.isdecimal() and (folder / MANIFEST_FILE).exists()
    ]
    return (*(folder for _, folder in sorted(found)), directory)


def segment_folder(directory: Path, incarnation: int) -> Path:
    """Where an incarnation is kept once the log goes on as a later one."""
    return directory / f"{_FOLDER}{incarnation}"


def set_aside(directory: Path, incarnation: int) -> Path | None:
    """Move a log of an older incarnation to a folder of its own, beside those before; None: it is not.

    What the new incarnation holds is recorded again from its first entry: the two share a beginning.

    Raises
    ------
    UnreadableLog
        There is a log whose manifest cannot be read.
    """
    if not (directory / MANIFEST_FILE).exists():
        return None
    manifest = read_manifest(directory)
    if manifest.incarnation >= incarnation:
        return None
    aside = segment_folder(directory, manifest.incarnation)
    aside.mkdir(exist_ok=True)
    for name in (ENTRIES_FILE, STATISTICS_FILE):
        if (directory / name).exists():
            (directory / name).replace(aside / name)
    # Not ended: its last line may be torn, and nobody knows how far it went.
    write_manifest(aside, replace(manifest, status=LogStatus.CRASHED))
    # Last: a crash before this leaves a manifest by which the rest is moved again.
    (directory / MANIFEST_FILE).unlink()
    return aside


def recorded_end(directory: Path) -> tuple[int, int]:
    """Which incarnation a log is of, and its last whole entry; (1, 0) where there is none."""
    try:
        manifest = read_manifest(directory)
        with (directory / ENTRIES_FILE).open("rb") as file:
            last = last_line(file.fileno())
    except (UnreadableLog, FileNotFoundError):
        return 1, 0
    if not last:
        return manifest.incarnation, 0
    return manifest.incarnation, entry_of(last, f"{directory}, last line").seq


def last_line(descriptor: int) -> bytes:
    """The last whole line of an open file, empty where there is none."""
    start = end = os.fstat(descriptor).st_size
    tail = b""
    while start and tail.count(b"\n") < 2:
        start = max(0, start - _READ_BACK_BYTES)
        tail = os.pread(descriptor, end - start, start)
    whole = tail[: tail.rfind(b"\n") + 1]
    return whole[:-1].rsplit(b"\n", 1)[-1] if whole else b""
