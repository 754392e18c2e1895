"""Fetching what a job has made: its newest complete checkpoint, verified byte by byte."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.job import Job
from spotline.trainer.checkpoints import CheckpointName, CheckpointUnusable, StoredCheckpoint
from spotline.trainer.stores import CheckpointStore, open_store

FINAL = "final"


class NothingToFetch(SpotlineError):
    """A job has nothing yet of what is asked for, or keeps it where it cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What was fetched into `folder`, and what was passed over because its bytes are not right.

    `done` is in the job's own unit, `sha256` that of the names and digests of the files.
    """

    folder: Path
    kind: str
    generation: int
    step: int
    done: float
    sha256: str
    size_bytes: int
    passed_over: tuple[str, ...] = ()


def fetch_result(job: Job, folder: Path, *, unfinished: bool = False) -> Fetched:
    """Bring the result of a job into a folder, which is made; the store is only read.

    Parameters
    ----------
    folder
        Absent or empty; it appears with all of its files or not at all.
    unfinished
        Take the newest checkpoint where there is no result.

    Raises
    ------
    NothingToFetch
        The job states no location, or there is nothing complete and whole in it.
    FileExistsError
        The folder holds something.
    """
    location = job.checkpoint.location
    if not location:
        raise NothingToFetch(f"job {job.job_id} states no checkpoint.location: nothing is kept")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} must not exist or be empty")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        uri = f"{location.rstrip('/')}/{job.job_id}"
        try:
            store = open_store(uri, Path(scratch) / "remote")
        except ValueError as error:
            raise NothingToFetch(f"checkpoint.location {location}: {error}") from error
        passed_over: list[str] = []
        stored = next(_whole(store, passed_over, unfinished=unfinished), None)
        if stored is None:
            what = "no complete checkpoint" if unfinished else "no result yet"
            more = f"; passed over: {'; '.join(passed_over)}" if passed_over else ""
            raise NothingToFetch(f"job {job.job_id} has {what} in {uri}{more}")
        whole = Path(scratch) / "whole"
        shutil.copytree(stored.path, whole)
        if folder.exists():
            folder.rmdir()
        whole.rename(folder)
    return Fetched(
        folder=folder,
        kind=stored.kind,
        generation=stored.generation,
        step=stored.step,
        done=stored.done,
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
        passed_over=tuple(passed_over),
    )


def _whole(
    store: CheckpointStore, passed_over: list[str], *, unfinished: bool
) -> Iterator[StoredCheckpoint]:
    """Complete checkpoints whose bytes are right, the result first, then the newest first."""
    names = sorted(store.names(), key=_newest_last, reverse=True)
    for name in names:
        if name.kind != FINAL and not unfinished:
            continue
        try:
            yield store.fetch(name)
        except CheckpointUnusable as error:
            passed_over.append(str(error))


def _newest_last(name: CheckpointName) -> tuple[bool, tuple[int, int, int]]:
    return name.kind == FINAL, name.order
