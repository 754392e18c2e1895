"""Writing a checkpoint together, and choosing what to write: what a session does at a boundary."""

from __future__ import annotations

import errno
import math
import shutil
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotline.trainer.agreement import Agreement
from spotline.trainer.checkpoints import (
    FINAL,
    MARKER,
    NOT_WRITTEN,
    PREEMPTION,
    SKIPPED,
    SUFFIXES,
    CheckpointName,
    CheckpointUnusable,
    StoredCheckpoint,
    to_remove,
)
from spotline.trainer.events import RunEvents, warn
from spotline.trainer.stores import CheckpointStore

_MEASURED = 20
_NUMBERS = 8  # 1, a size, and 256 bits in parts of 48
_FULL_BYTES = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class SaveTimes:
    """Wall seconds of the last saves."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_MEASURED)

    def add(self, save_s: float) -> None:
        """Take a measurement."""
        self._seconds.append(save_s)

    @property
    def p95_s(self) -> float:
        """The 95th percentile by nearest rank; 0 while nothing was measured."""
        if not self._seconds:
            return 0.0
        ascending = sorted(self._seconds)
        return ascending[math.ceil(0.95 * len(ascending)) - 1]


@dataclass(slots=True, kw_only=True)
class CheckpointInProgress:
    """A checkpoint while it is written.

    Parameters
    ----------
    path
        An empty folder; what lies there at the end is the checkpoint. The ranks of the writing
        instance share it, and all ranks do where the store is a shared folder.
    writes
        Rank 0: the one to write what all ranks hold alike.
    committed
        Afterwards: the checkpoint, on all ranks; None: it was not written.
    fault
        Afterwards: why not; None: it was.
    """

    path: Path
    writes: bool
    step: int
    done: float
    kind: str
    position: Any = None
    began_s: float = field(default_factory=time.monotonic)
    committed: StoredCheckpoint | None = None
    fault: str | None = None


class CheckpointWriter:
    """Writes checkpoints with all ranks, tells of them, and removes what they make needless."""

    def __init__(
        self,
        store: CheckpointStore,
        events: RunEvents,
        agree: Agreement,
        *,
        rank: int,
        generation: int,
    ) -> None:
        self._store = store
        self._events = events
        self._agree = agree
        self._rank = rank
        self._generation = generation
        self.times = SaveTimes()
        for event in events.past() if rank == 0 else ():
            if event.get("kind") == "checkpoint" and not event.get("fault"):
                self.times.add(float(event.get("save_s", 0.0)))

    def begin(
        self, kind: str, *, step: int, done: float, position: Any, began_s: float | None
    ) -> CheckpointInProgress:
        """Make the folder in which it is written; returns when it is there for all ranks."""
        name = CheckpointName(generation=self._generation, step=step, kind=kind)
        saving = CheckpointInProgress(
            path=self._store.staging(name),
            writes=self._rank == 0,
            step=step,
            done=done,
            kind=kind,
            position=position,
        )
        if began_s is not None:
            saving.began_s = began_s
        if saving.writes:
            try:
                shutil.rmtree(saving.path, ignore_errors=True)
                saving.path.mkdir(parents=True)
            except OSError as error:  # the program's own writing fails next, and says so
                warn(f"cannot write a checkpoint at {saving.path}: {error}")
        self._agree([0])
        return saving

    def end(self, saving: CheckpointInProgress, error: Exception | None) -> None:
        """Commit it where every rank has written its part, or say why it is not there.

        Raises
        ------
        Exception
            What kept it from being written, unless that was the disk: then training goes on.
        """
        broken = self._agree([0 if error is None else 1])[0]
        on_disk = error is not None and is_disk(error, saving.path)
        if error is not None and not saving.writes:
            warn(f"rank {self._rank} could not write its part of {saving.path.name}: {error}")
        if saving.writes:
            said = error
            if error is None and broken:
                said = OSError("another rank could not write its part")
            elif error is None:
                try:
                    self._commit(saving)
                except (OSError, ValueError) as failed:
                    error = said = failed
                    on_disk = is_disk(failed, saving.path)
            if said is not None:
                self._give_up(saving, said)
        # Others learn it by agreement: a shared file system may show them the folder later.
        mine = in_numbers(saving.committed) if saving.committed else [0] * _NUMBERS
        written, size_bytes, *digest = self._agree(mine)
        if not written:
            saving.fault = NOT_WRITTEN
        elif not saving.writes:
            saving.committed = StoredCheckpoint(
                path=saving.path,
                uri="",
                generation=self._generation,
                step=saving.step,
                kind=saving.kind,
                done=saving.done,
                sha256=f"{sum(part << 48 * place for place, part in enumerate(digest)):064x}",
                size_bytes=size_bytes,
                position=saving.position,
            )
        if error is not None and not on_disk:
            raise error

    def _commit(self, saving: CheckpointInProgress) -> None:
        name = CheckpointName(generation=self._generation, step=saving.step, kind=saving.kind)
        saving.committed = stored = self._store.commit(
            name, done=saving.done, position=saving.position
        )
        save_s = time.monotonic() - saving.began_s
        self.times.add(save_s)
        self._events.append(
            "checkpoint",
            **about(name, done=saving.done),
            uri=stored.uri,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            save_s=save_s,
        )
        try:
            self._prune(name)
        except OSError as error:  # old checkpoints cost room, not work
            warn(f"cannot remove old checkpoints: {error}")

    def _give_up(self, saving: CheckpointInProgress, error: Exception) -> None:
        name = CheckpointName(generation=self._generation, step=saving.step, kind=saving.kind)
        # Room first: on a full disk the line that says so needs some.
        shutil.rmtree(saving.path, ignore_errors=True)
        self.say_fault(name, NOT_WRITTEN, f"{type(error).__name__}: {error}", done=saving.done)

    def skip(self, step: int, *, left_s: float, p95_s: float, done: float) -> None:
        """Say that a save is not tried, because it would not be finished."""
        if self._rank != 0:
            return
        name = CheckpointName(generation=self._generation, step=step, kind=PREEMPTION)
        detail = f"{left_s:.1f} s are left, and 95 of 100 saves take up to {p95_s:.1f} s"
        self.say_fault(name, SKIPPED, detail, done=done)

    def say_fault(
        self, name: CheckpointName, fault: str, detail: str, *, done: float = 0.0
    ) -> None:
        """Tell the agent, and the readers of the output, why a checkpoint is not there."""
        warn(f"checkpoint {name.text} {fault}: {detail}")
        self._events.append("checkpoint", **about(name, done=done), fault=fault, detail=detail)

    def newest(self) -> CheckpointName | None:
        """Choose the newest complete checkpoint that can be trained on from, on all ranks alike.

        Those that are not whole are passed over and told of; what an earlier program was writing
        when it was killed, or was removing, is removed.
        """
        chosen = self._choose() if self._rank == 0 else None
        kinds = list(SUFFIXES)
        mine = (
            [chosen.generation + 1, chosen.step, kinds.index(chosen.kind)] if chosen else [0, 0, 0]
        )
        generation, step, kind = self._agree(mine)
        if generation == 0:
            return None
        return CheckpointName(generation=generation - 1, step=step, kind=kinds[kind])

    def _choose(self) -> CheckpointName | None:
        for name in self._store.leftovers():
            if name.generation <= self._generation:
                self.say_fault(name, "incomplete", "the program ended while it was written")
                shutil.rmtree(self._store.staging(name), ignore_errors=True)
        self._store.finish_removals()
        for name in reversed(self._store.names()):
            if name.kind == FINAL:
                continue
            try:
                self._store.fetch(name)
            except CheckpointUnusable as error:
                self.say_fault(name, error.fault, error.detail)
            else:
                return name
        return None

    def result(self) -> StoredCheckpoint | None:
        """Return the newest complete result; the ranks do not agree on it."""
        for name in reversed(self._store.names()):
            if name.kind == FINAL:
                try:
                    return self._store.fetch(name)
                except CheckpointUnusable as error:
                    self.say_fault(name, error.fault, error.detail)
        return None

    def load(self, name: CheckpointName, *, local_rank: int) -> StoredCheckpoint:
        """Bring a checkpoint here that rank 0 has verified; once on each instance.

        Raises
        ------
        CheckpointUnusable
            What this instance sees is not what rank 0 saw: is the folder shared?
        """
        if self._rank != 0 and local_rank == 0:
            self._store.fetch(name)
        self._agree([0])
        return self._store.found(name)

    def _prune(self, newest: CheckpointName) -> None:
        # No more than what is older than this one, which has just been verified: another
        # generation's newer ones are not ours to judge.
        names = [name for name in self._store.names() if name.order <= newest.order]
        complete = []
        for name in names:
            try:
                self._store.marker(name)
                complete.append(name)
            except CheckpointUnusable:
                self._store.remove(name)
        for name in to_remove(complete):
            self._store.remove(name)


def in_numbers(stored: StoredCheckpoint) -> list[int]:
    """Say in numbers below 2^53 that a checkpoint is written, its size, and its digest."""
    digest = int(stored.sha256, 16)
    parts = [digest >> 48 * place & (1 << 48) - 1 for place in range(_NUMBERS - 2)]
    return [1, stored.size_bytes, *parts]


def about(name: CheckpointName, *, done: float) -> dict[str, Any]:
    """Return the fields of an event that say which checkpoint it is."""
    return {"step": name.step, "done": done, "checkpoint_kind": name.kind}


def is_disk(error: BaseException | None, path: Path) -> bool:
    """Tell whether a save failed for the disk, whatever the library made of that."""
    while error is not None:
        if isinstance(error, OSError):
            return True
        error = error.__cause__ or error.__context__
    try:
        return shutil.disk_usage(path).free < _FULL_BYTES
    except OSError:
        return True


def copy_into(source: Path, folder: Path, *, move: bool = False) -> None:
    """Copy (or move) a file, or what is in a folder, into a folder.

    Raises
    ------
    FileNotFoundError
        There is no such file or folder.
    """
    place = shutil.move if move else shutil.copy2
    if source.is_file():
        place(str(source), str(folder / source.name))
        return
    if not source.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such file or folder", str(source))
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.name != MARKER:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            place(str(path), str(target))
