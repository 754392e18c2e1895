"""The state log on disk: JSON lines, each flushed before anybody is answered by what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from spotline.rehearsal.aws.state import Record


class BrokenLog(Exception):
    """A state log says what it cannot say."""


class StateLog:
    """Appends records; a line that a kill tore at the end is cut off when it is opened again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self.path = path
        self._file = path.open("ab")

    def append(self, record: Record) -> None:
        """Write a record, and hand it to the system before returning."""
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> StateLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def records_of(path: Path) -> Iterator[dict[str, Any]]:
    """Read the records of a log, but for a last line without its end; none if there is no file.

    Raises
    ------
    BrokenLog
        A whole line is no record.
    """
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise BrokenLog(f"{path}, line {number}: expected JSON, {error}") from error
        if not isinstance(record, dict) or not {"kind", "at_ns"} <= record.keys():
            raise BrokenLog(f"{path}, line {number}: expected an object with kind and at_ns")
        yield record


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        whole = file.read()
        file.truncate(whole.rfind(b"\n") + 1)
