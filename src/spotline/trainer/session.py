"""The session of a training program: what it tells Spotline, and what Spotline tells it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from spotline.trainer.agreement import Agreement, TorchAgreement
from spotline.trainer.checkpoints import FINAL, PERIODIC, PREEMPTION, StoredCheckpoint
from spotline.trainer.elastic import DataOrder, accumulation_steps
from spotline.trainer.environment import EXIT_TO_RESUME, RankAllocation, RankEnvironment
from spotline.trainer.events import RunEvents
from spotline.trainer.notices import NoticeBoard, PreemptionInfo
from spotline.trainer.saving import CheckpointInProgress, CheckpointWriter, copy_into
from spotline.trainer.stores import open_store

# Agents pass progress on every few seconds; a step may take a millisecond.
_REPORT_EVERY_S = 0.2
_NEVER_MS = 1 << 52


def attach(
    *,
    agreement: Agreement | None = None,
    agree_every: int = 1,
    checkpoint_uri: str | None = None,
    interval_s: float | None = None,
    environ: Mapping[str, str] | None = None,
) -> TrainingSession:
    """Attach to the agent of this instance; outside Spotline the session does nothing.

    Call it once, in the main thread, before training: it takes over SIGTERM, whose handler only
    sets a flag.

    Parameters
    ----------
    agreement
        Agrees on integers over the ranks; None: over torch.distributed where the program uses it.
    agree_every
        Steps between two agreements, >= 1: they cost an all-reduce of five integers each.
    checkpoint_uri
        A folder or fsspec URL for checkpoints; None: as the environment says. With it, programs
        keep and resume checkpoints outside Spotline, too.
    interval_s
        Wall seconds between periodic checkpoints, > 0; None: SPOTLINE_CHECKPOINT_INTERVAL_S, or 600.
    environ
        Variables; None: those of the process.

    Raises
    ------
    ValueError
        A variable or parameter is not what it should be; the message names it.
    """
    if agree_every < 1:
        raise ValueError(f"agree_every must be >= 1, was {agree_every}")
    environment = RankEnvironment.read(os.environ if environ is None else environ)
    if checkpoint_uri is not None:
        environment = replace(environment, checkpoint_uri=checkpoint_uri)
    if interval_s is not None:
        environment = replace(environment, interval_s=interval_s)
    if not environment.interval_s > 0:
        raise ValueError(f"interval_s must be > 0, was {environment.interval_s}")
    return TrainingSession(environment, agreement=agreement, agree_every=agree_every)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreed:
    """What the ranks know at a boundary: the largest of what each says."""

    stop: bool
    notice: int
    due: bool
    left_s: float
    p95_s: float

    def encode(self) -> list[int]:
        left_ms = min(_NEVER_MS, max(-_NEVER_MS, self.left_s * 1000))
        return [int(self.stop), self.notice, int(self.due), -int(left_ms), int(self.p95_s * 1000)]

    @classmethod
    def decode(cls, values: list[int]) -> _Agreed:
        return cls(
            stop=bool(values[0]),
            notice=values[1],
            due=bool(values[2]),
            left_s=-values[3] / 1000,
            p95_s=values[4] / 1000,
        )


class TrainingSession:
    """A program's side of the contract of ADR 0031. Made by `attach`.

    Ranks agree in `should_checkpoint`, `checkpoint`, `resume` and `finish`: all of them call these,
    equally often. Nothing else communicates.
    """

    def __init__(
        self, environment: RankEnvironment, *, agreement: Agreement | None, agree_every: int
    ) -> None:
        self._environment = environment
        self._place = environment.allocation
        self._agree = agreement or TorchAgreement(self._place.world_size)
        self._agree_every = agree_every
        self._board = NoticeBoard(environment)
        self._events = RunEvents(
            environment.run_dir, rank=self._place.rank, generation=self._place.generation
        )
        self._writer: CheckpointWriter | None = None
        if environment.checkpoint_uri:
            self._writer = CheckpointWriter(
                open_store(environment.checkpoint_uri, environment.scratch()),
                self._events,
                self._agree,
                rank=self._place.rank,
                generation=self._place.generation,
            )
        if self.inside:
            self._board.stop.install()
        self._saved_s = time.monotonic()
        self._saved_step: int | None = None
        self._kind = PERIODIC
        self._asked = False
        self._stop_agreed = False
        self._stop_dealt_with = False
        self._reported_s = -_REPORT_EVERY_S
        self._unreported: dict[str, Any] | None = None
        self._done = 0.0

    # --- state ----------------------------------------------------------------------------------

    @property
    def inside(self) -> bool:
        """Whether an agent of Spotline started this program."""
        return self._environment.run_dir is not None

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether there is a place for checkpoints; else what is written in one is thrown away."""
        return self._writer is not None

    def take_sigterm(self) -> bool:
        """Take SIGTERM back from a library that took it; False outside the main thread."""
        return self.inside and self._board.stop.install()

    @property
    def allocation(self) -> RankAllocation:
        """Where this process stands among the ranks of its generation."""
        self._board.look()
        return replace(self._place, instance_ids=self._board.instance_ids)

    def get_preemption_info(self) -> PreemptionInfo | None:
        """Return what is taken back, and when; None without a notice. Ranks do not agree on it."""
        self._board.look(now=True)
        return self._board.preemption()

    @property
    def should_stop(self) -> bool:
        """Whether the program is to end at this boundary, as the ranks agreed at the last step.

        A program that never calls `should_checkpoint` learns here what this rank was told.
        """
        if not self._asked:
            self._board.look()
            return self._board.stop.since_s is not None
        return self._stop_agreed

    # --- checkpoints ----------------------------------------------------------------------------

    def should_checkpoint(self, step: int) -> bool:
        """Agree whether to save now. Call it on every rank after every step of the optimiser.

        True when the interval is over, once for a notice, and once when told to stop. Where the
        95th percentile of saves is longer than the time left, none is tried, and that is reported.

        Raises
        ------
        ValueError
            A file of the agent does not hold what it should.
        """
        self._asked = True
        if step % self._agree_every or not (self.inside or self._writer):
            return False
        self._board.look()
        agreed = _Agreed.decode(list(self._agree(self._proposal().encode())))
        self._stop_agreed |= agreed.stop
        if agreed.notice:
            self._board.handled(agreed.notice)
        if self._writer is None or step == self._saved_step:
            return False
        if agreed.notice or (agreed.stop and not self._stop_dealt_with):
            self._stop_dealt_with |= agreed.stop
            if agreed.left_s <= agreed.p95_s:
                self._writer.skip(step, left_s=agreed.left_s, p95_s=agreed.p95_s, done=self._done)
                self._saved_s = time.monotonic()
                return False
            self._kind = PREEMPTION
            return True
        self._kind = PERIODIC
        return agreed.due and not self._stop_agreed

    def _proposal(self) -> _Agreed:
        board, left_s = self._board, []
        if board.stop.since_s is not None and not self._stop_dealt_with:
            left_s.append(board.stop.since_s + self._environment.grace_s - time.time())
        left_s += [notice.deadline_s - time.time() for notice in board.unhandled]
        first = self._place.rank == 0
        writer = self._writer if first else None
        return _Agreed(
            stop=board.stop.since_s is not None,
            notice=max((notice.key for notice in board.unhandled), default=0),
            due=first and time.monotonic() - self._saved_s >= self._environment.interval_s,
            left_s=min(left_s, default=float(_NEVER_MS)),
            p95_s=writer.times.p95_s if writer else 0.0,
        )

    @contextlib.contextmanager
    def checkpoint(
        self,
        *,
        step: int,
        done: float,
        position: Any = None,
        began_s: float | None = None,
    ) -> Iterator[CheckpointInProgress]:
        """Write a checkpoint together: every rank enters, and leaves when it is complete.

        Parameters
        ----------
        step
            Steps of the optimiser that it holds.
        done
            Work that it holds, in the job's own unit.
        position
            Of the program in its data, where `step` does not say it: anything that JSON holds.
        began_s
            By `time.monotonic`, where saving began before this call.

        Raises
        ------
        Exception
            What the program raised within. A disk that is full or fails is not raised: it is told,
            the checkpoint before stands, and training goes on.
        """
        with self._saving(self._kind, step, done, position, began_s) as saving:
            yield saving
        self._saved_s = time.monotonic()
        self._saved_step = step
        self._kind = PERIODIC

    @contextlib.contextmanager
    def _saving(
        self, kind: str, step: int, done: float, position: Any, began_s: float | None
    ) -> Iterator[CheckpointInProgress]:
        self._flush()
        if self._writer is None:  # nowhere to keep it: the program may write all the same
            with tempfile.TemporaryDirectory(prefix="spotline-") as folder:
                yield CheckpointInProgress(
                    path=Path(folder), writes=self._place.rank == 0, step=step, done=done, kind=kind
                )
            return
        saving = self._writer.begin(kind, step=step, done=done, position=position, began_s=began_s)
        error: Exception | None = None
        try:
            yield saving
        except Exception as raised:  # noqa: BLE001 - told, and raised again unless it is the disk's
            error = raised
        self._writer.end(saving, error)

    def resume(self) -> StoredCheckpoint | None:
        """Return the newest complete checkpoint, verified and in a local folder; None: begin.

        Raises
        ------
        CheckpointUnusable
            This instance does not see what rank 0 sees: the folder is not shared.
        """
        if self._writer is None:
            return None
        began_s = time.monotonic()
        if (name := self._writer.newest()) is None:
            return None
        found = self._writer.load(name, local_rank=self._place.local_rank)
        self._done = found.done
        if self._place.rank == 0:
            load_s = time.monotonic() - began_s
            self._events.append(
                "resumed", sha256=found.sha256, load_s=load_s, done=found.done, step=found.step
            )
        return found

    def finish(
        self, path: str | os.PathLike[str], *, step: int, done: float, position: Any = None
    ) -> StoredCheckpoint | None:
        """Commit a file or folder of rank 0 as the result of the job; None: there is no store.

        Raises
        ------
        OSError
            It could not be written.
        """
        if self._writer is None:
            self._flush()
            return None
        failed: OSError | None = None
        with self._saving(FINAL, step, done, position, None) as saving:
            if saving.writes:
                try:
                    copy_into(Path(path), saving.path)
                except OSError as error:
                    failed = error
                    raise
        if saving.committed is None:
            raise failed or OSError(f"the result at {path} could not be written")
        return saving.committed

    def result(self) -> StoredCheckpoint | None:
        """Return the result that an earlier start of the program committed, verified."""
        return self._writer.result() if self._writer else None

    # --- progress and ends ----------------------------------------------------------------------

    def report(self, *, step: int, done: float, tokens_per_s: float | None = None) -> None:
        """Tell what is done by now, in the job's own unit; rank 0 writes it, five times a second."""
        self._done = done
        if self._place.rank != 0:
            return
        self._unreported = {"step": step, "done": done}
        if tokens_per_s is not None:
            self._unreported["tokens_per_s"] = tokens_per_s
        if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._flush()

    def _flush(self) -> None:
        if self._unreported is not None:
            self._events.append("progress", **self._unreported)
            self._unreported = None
            self._reported_s = time.monotonic()

    def exit_if_stopped(self) -> None:
        """End with exit code 75 where the ranks were told to stop."""
        if self.should_stop:
            self.exit_to_resume()

    def exit_to_resume(self) -> NoReturn:
        """End with exit code 75: saved, wants to go on."""
        self._flush()
        raise SystemExit(EXIT_TO_RESUME)

    # --- elastic --------------------------------------------------------------------------------

    def accumulation(self, *, global_batch: int, per_rank: int) -> int:
        """Return the steps of accumulation that keep the global batch with these ranks.

        Raises
        ------
        ValueError
            The global batch is no multiple; the message names the counts that would do.
        """
        return accumulation_steps(
            global_batch=global_batch, per_rank=per_rank, ranks=self._place.world_size
        )

    def samples(
        self, step: int, *, global_batch: int, rows: int, seed: int | None = None
    ) -> list[int]:
        """Return the rows that this rank trains in a step (from 0), whatever the world size.

        Over all ranks a step has the same rows, and each epoch has every row once. With `seed`,
        each epoch is in an order of its own.
        """
        order = DataOrder(rows=rows, global_batch=global_batch, seed=seed)
        return order.of_rank(step, rank=self._place.rank, ranks=self._place.world_size)
