"""Lightning on Spotline: saves, reports and stops at the boundary of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.pytorch.callbacks import Callback

from spotline.trainer.session import TrainingSession, attach

FILE = "lightning.ckpt"


class SpotlineLightningCallback(Callback):
    """Has the Trainer save when Spotline wants it, and stop when the job is told to.

    Lightning's own handler of SIGTERM talks to other ranks and raises within a step; while it
    trains, this one stands in for it, which sets a flag. Data comes from a loader whose batch
    sampler is a `StepBatches` that begins at `step` and has no end; the Trainer's `max_steps` ends it.

    Parameters
    ----------
    session
        None: `attach()`.
    done
        Work done after n steps of the optimiser, in the job's own unit; None: n.
    """

    def __init__(
        self,
        session: TrainingSession | None = None,
        *,
        done: Callable[[int], float] | None = None,
    ) -> None:
        self.session = session or attach()
        self._done = done or float
        self._step = 0
        self.step = 0
        """Steps that the checkpoint found by `resume` holds; 0: there is none."""

    def resume(self) -> str | None:
        """Return what `Trainer.fit(ckpt_path=...)` takes; call it on all ranks."""
        if (found := self.session.resume()) is None:
            return None
        self.step = self._step = found.step
        return str(found.path / FILE)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Count the batches of the epoch as these ranks would have had them."""
        del pl_module
        batches = checkpoint["global_step"] * trainer.accumulate_grad_batches
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            for name in ("ready", "started", "processed", "completed"):
                counts[name] = batches

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM over from Lightning, which takes it back when it has trained."""
        del trainer, pl_module
        self.session.take_sigterm()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report, and agree with the other ranks on saving and stopping."""
        del pl_module, outputs, batch, batch_idx
        step = int(trainer.global_step)
        if step == self._step:  # within the accumulation of a step
            return
        self._step = step
        self.session.report(step=step, done=self._done(step))
        if self.session.should_checkpoint(step):
            with self.session.checkpoint(step=step, done=self._done(step)) as saving:
                trainer.save_checkpoint(saving.path / FILE)  # all ranks: it has barriers of its own
        if self.session.should_stop:
            trainer.should_stop = True
