"""A recorded log, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spotline.adapters.eventlog.lines import entry_of
from spotline.adapters.eventlog.manifest import (
    ENTRIES_FILE,
    LogStatus,
    Manifest,
    UnreadableLog,
    read_manifest,
)
from spotline.contracts.envelope import StoredEntry


class EventLogReader:
    """Reads the log in `directory`; iterating twice reads twice.

    Raises
    ------
    UnreadableLog
        The manifest is missing, malformed, or of another format version.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / ENTRIES_FILE
        self.manifest: Manifest = read_manifest(directory)

    def statistics(self) -> Iterator[StoredEntry]:
        """Yield the entries of the statistics' own stream, in its order; none in a log of before.

        Raises
        ------
        UnreadableLog
            The manifest names a file that is absent, or a line of it cannot be read.
        """
        if not self.manifest.statistics_file:
            return
        path = self._directory / Path(self.manifest.statistics_file).name
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise UnreadableLog(f"{path} is missing") from None
        with file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n") and self.manifest.status is not LogStatus.ENDED:
                    break
                yield entry_of(text, f"{path}:{number}")

    def __iter__(self) -> Iterator[StoredEntry]:
        """Yield every entry in `seq` order.

        Raises
        ------
        UnreadableLog
            A line cannot be read, a `seq` is missing, or an ended log lacks its first or last
            entries. In the log of a run that did not end, a torn last line is where it was cut.
        """
        last_seq = self.manifest.first_seq - 1 if self.manifest.first_seq else None
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            raise UnreadableLog(f"{self._path} is missing") from None
        with file:
            for number, text in enumerate(file, start=1):
                where = f"{self._path}:{number}"
                if not text.endswith(b"\n") and self.manifest.status is not LogStatus.ENDED:
                    break
                entry = entry_of(text, where)
                if last_seq is not None and entry.seq != last_seq + 1:
                    raise UnreadableLog(
                        f"{where}: seq must be {last_seq + 1}, was {entry.seq}; "
                        "entries are missing, repeated or out of order"
                    )
                last_seq = entry.seq
                yield entry
        if self.manifest.status is LogStatus.ENDED and (last_seq or 0) != self.manifest.last_seq:
            raise UnreadableLog(
                f"{self._path}: ends at seq {last_seq or 0}, "
                f"the manifest says {self.manifest.last_seq}"
            )
