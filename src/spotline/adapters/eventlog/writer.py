"""Record a stream into a directory, so that a killed recorder goes on where it stopped."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from spotline.adapters.eventlog.lines import entry_of, line_of
from spotline.adapters.eventlog.manifest import (
    ENTRIES_FILE,
    MANIFEST_FILE,
    STATISTICS_FILE,
    LogStatus,
    Manifest,
    UnreadableLog,
    read_manifest,
    write_manifest,
)
from spotline.adapters.eventlog.segments import set_aside
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError
from spotline.runtime.stream import EventStream

_FETCH_LIMIT = 500
_FETCH_TIMEOUT_S = 0.5
_READ_BACK_BYTES = 1 << 16


class EventLogWriter:
    """Appends entries to the log in `directory`, created where absent.

    One of an older incarnation is set aside (`segments.py`), and this one recorded from its beginning.
    A log that is there already is continued if it is of the same run and stream; a line torn by a
    crash is cut, and `last_seq` says from where to read the stream again.

    Raises
    ------
    ConfigError
        The directory holds the log of another run.
    UnreadableLog
        It holds a log that cannot be continued.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        set_aside(directory, manifest.incarnation)
        self._manifest = _continued(directory, manifest)
        path = directory / ENTRIES_FILE
        path.touch()
        last = _cut_torn_line(path)
        self._file = path.open("ab")
        self._last_seq = last.seq if last else 0
        if not last:
            self._manifest = replace(self._manifest, first_seq=0)
        write_manifest(directory, self._manifest)

    @property
    def last_seq(self) -> int:
        """The last entry that was written, 0 for none."""
        return self._last_seq

    @property
    def entries(self) -> int:
        """How many entries the log holds."""
        return self._last_seq - self._manifest.first_seq + 1 if self._last_seq else 0

    def append(self, entries: Sequence[StoredEntry]) -> None:
        """Write entries in `seq` order; those already written are passed over.

        Raises
        ------
        UnreadableLog
            There is a hole between the last entry and these.
        """
        fresh = [entry for entry in entries if entry.seq > self._last_seq]
        for entry in fresh:
            if self._last_seq and entry.seq != self._last_seq + 1:
                raise UnreadableLog(
                    f"{self._directory}: seq must be {self._last_seq + 1}, was {entry.seq}; "
                    "the stream no longer holds all that happened"
                )
            if not self._manifest.first_seq:
                self._manifest = replace(self._manifest, first_seq=entry.seq)
                write_manifest(self._directory, self._manifest)
            self._last_seq = entry.seq
        _write(self._file, fresh)

    def close(self, status: LogStatus) -> None:
        """Put everything on disk and say how the recording ended. Safe to repeat."""
        if self._file.closed:
            return
        os.fsync(self._file.fileno())
        self._file.close()
        self._manifest = replace(
            self._manifest, status=status, ended_ns=time.time_ns(), last_seq=self._last_seq
        )
        write_manifest(self._directory, self._manifest)


class StatisticsWriter:
    """Appends the entries of the statistics' own stream to their file beside the log's.

    A file that is there already is continued, as by `EventLogWriter`.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / STATISTICS_FILE
        path.touch()
        last = _cut_torn_line(path)
        self._file = path.open("ab")
        self._last_seq = last.seq if last else 0

    @property
    def last_seq(self) -> int:
        """The last entry that was written, 0 for none."""
        return self._last_seq

    def append(self, entries: Sequence[StoredEntry]) -> None:
        """Write entries in `seq` order; those already written are passed over."""
        fresh = [entry for entry in entries if entry.seq > self._last_seq]
        if fresh:
            self._last_seq = fresh[-1].seq
            _write(self._file, fresh)

    def close(self) -> None:
        """Put everything on disk. Safe to repeat."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()


def _write(file: BinaryIO, entries: Sequence[StoredEntry]) -> None:
    # Flushed per batch: a kill tears the last line at worst, and that is cut on reopening.
    file.write("".join(map(line_of, entries)).encode())
    file.flush()


async def record_statistics(
    stream: EventStream,
    directory: Path,
    *,
    stop_at: asyncio.Future[int],
    name: str = "event_log_statistics",
    drain_timeout_s: float = 30.0,
) -> None:
    """Record the statistics' own stream beside the log in `directory`; otherwise as `record`."""
    writer = StatisticsWriter(directory)
    try:
        await _follow(stream, writer, stop_at, name, drain_timeout_s)
    finally:
        writer.close()


async def record(
    stream: EventStream,
    directory: Path,
    manifest: Manifest,
    *,
    stop_at: asyncio.Future[int],
    name: str = "event_log",
    drain_timeout_s: float = 30.0,
) -> int:
    """Record the whole stream, live, until `stop_at` holds a `seq` and that entry is written.

    Parameters
    ----------
    manifest
        Of the run; extent and status are filled in here.
    stop_at
        Set its result to the last `seq` to record, such as the stream's last one. What was
        written beyond it before it was set stays.
    name
        The durable place in the stream. What counts is the log itself: what it lacks is read
        again, whatever the place says.
    drain_timeout_s
        How long the stream may stay silent short of `stop_at` before that is an error.

    Returns
    -------
    int
        The number of entries in the log.

    Raises
    ------
    ConfigError, UnreadableLog
        As `EventLogWriter`, or the stream ended short of `stop_at`. The log is marked as crashed
        then, as it is when this task is cancelled.
    """
    writer = EventLogWriter(directory, manifest)
    status = LogStatus.CRASHED
    try:
        await _follow(stream, writer, stop_at, name, drain_timeout_s)
        status = LogStatus.ENDED
    finally:
        writer.close(status)
    return writer.entries


class Recording:
    """The recording of a whole run into a directory: its log, and its statistics beside it."""

    def __init__(
        self, log: EventStream, statistics: EventStream, directory: Path, manifest: Manifest
    ) -> None:
        loop = asyncio.get_running_loop()
        self._streams = (log, statistics)
        self._directory = directory
        self._manifest = replace(manifest, statistics_file=STATISTICS_FILE)
        self._ends: tuple[asyncio.Future[int], ...] = (loop.create_future(), loop.create_future())

    async def run(self) -> int:
        """Record until `stop`; the number of entries in the log. Raises as `record`."""
        (log, statistics), (log_end, statistics_end) = self._streams, self._ends
        # Before anything of either is written.
        set_aside(self._directory, self._manifest.incarnation)
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(
                record_statistics(statistics, self._directory, stop_at=statistics_end),
                name="record_statistics",
            )
            entries = await record(log, self._directory, self._manifest, stop_at=log_end)
            await beside
        return entries

    async def stop(self) -> None:
        """Let `run` end with what is stored by now. Safe to repeat."""
        for stream, end in zip(self._streams, self._ends, strict=True):
            if not end.done():
                end.set_result(await stream.last_seq())


async def _follow(
    stream: EventStream,
    writer: EventLogWriter | StatisticsWriter,
    stop_at: asyncio.Future[int],
    name: str,
    drain_timeout_s: float,
) -> None:
    subscription = await stream.subscribe(name, (), first_seq=writer.last_seq + 1)
    try:
        if subscription.floor_seq > writer.last_seq:
            async for entry in stream.read(
                (), first_seq=writer.last_seq + 1, last_seq=subscription.floor_seq
            ):
                writer.append(_wanted((entry,), stop_at))
        silent_s = 0.0
        while not (stop_at.done() and writer.last_seq >= stop_at.result()):
            entries = await subscription.fetch(limit=_FETCH_LIMIT, timeout_s=_FETCH_TIMEOUT_S)
            if entries:
                writer.append(_wanted(entries, stop_at))
                await subscription.ack(entries[-1])
                silent_s = 0.0
            elif stop_at.done():
                silent_s += _FETCH_TIMEOUT_S
                if silent_s >= drain_timeout_s:
                    raise UnreadableLog(
                        f"the stream fell silent at seq {writer.last_seq}, "
                        f"{stop_at.result()} was to be the last"
                    )
    finally:
        await subscription.close()


def _wanted(entries: Sequence[StoredEntry], stop_at: asyncio.Future[int]) -> Sequence[StoredEntry]:
    if not stop_at.done():
        return entries
    return [entry for entry in entries if entry.seq <= stop_at.result()]


def _continued(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest to go on with: the old one's start, the new one's circumstances."""
    if not (directory / MANIFEST_FILE).exists():
        if (directory / ENTRIES_FILE).exists():
            raise UnreadableLog(f"{directory}: entries without a manifest; move them away")
        return replace(manifest, status=LogStatus.RUNNING, ended_ns=0, first_seq=0, last_seq=0)
    old = read_manifest(directory)
    if (old.run_id, old.stream) != (manifest.run_id, manifest.stream):
        raise ConfigError(
            f"{directory} holds the log of run {old.run_id} (stream {old.stream}), not of "
            f"{manifest.run_id} (stream {manifest.stream}); give another directory"
        )
    return replace(
        manifest,
        started_ns=old.started_ns,
        status=LogStatus.RUNNING,
        ended_ns=0,
        first_seq=old.first_seq,
        last_seq=0,
    )


def _cut_torn_line(path: Path) -> StoredEntry | None:
    """Cut what a kill left of a last line, and return the last whole entry."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        tail = b""
        start = end
        # Back until the tail holds one whole line: two newlines, or the file's beginning.
        while start and tail.count(b"\n") < 2:
            start = max(0, start - _READ_BACK_BYTES)
            file.seek(start)
            tail = file.read(end - start)
        whole = tail[: tail.rfind(b"\n") + 1]
        file.truncate(start + len(whole))
    if not whole:
        return None
    text = whole[:-1].rsplit(b"\n", 1)[-1]
    return entry_of(text, f"{path}, last line")
