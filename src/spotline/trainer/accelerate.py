"""Accelerate on Spotline: its `save_state` and `load_state`, in checkpoints that are verified."""

from __future__ import annotations

from typing import Any

from spotline.trainer.checkpoints import StoredCheckpoint
from spotline.trainer.saving import CheckpointInProgress
from spotline.trainer.session import TrainingSession


def load_state(session: TrainingSession, accelerator: Any) -> StoredCheckpoint | None:
    """Load the newest complete checkpoint into what was prepared; None: there is none.

    Call it on all ranks, after `accelerator.prepare`.
    """
    if (found := session.resume()) is not None:
        accelerator.load_state(str(found.path))
    return found


def save_state(
    session: TrainingSession, accelerator: Any, *, step: int, done: float, position: Any = None
) -> CheckpointInProgress:
    """Save what was prepared as a checkpoint. Call it on all ranks: each has a state of its own."""
    with session.checkpoint(step=step, done=done, position=position) as saving:
        accelerator.save_state(str(saving.path))
    return saving


def step_boundary(
    session: TrainingSession, accelerator: Any, *, step: int, done: float, position: Any = None
) -> bool:
    """Report and save where that is due. True: stop now, with `session.exit_to_resume()`."""
    session.report(step=step, done=done)
    if session.should_checkpoint(step):
        save_state(session, accelerator, step=step, done=done, position=position)
    return session.should_stop
