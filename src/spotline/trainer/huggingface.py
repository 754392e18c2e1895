"""Hugging Face Trainer on Spotline: saves, resumes, reports and stops at the boundary of a step."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from spotline.trainer.checkpoints import StoredCheckpoint
from spotline.trainer.saving import copy_into
from spotline.trainer.session import TrainingSession, attach

# On CPU with several ranks the Trainer asks for an optimiser's state at "cpu:0", which torch does not
# know: without this such a job cannot be resumed (transformers 5.17 with torch 2.13).
torch.serialization.register_package(
    100,
    lambda storage: None,
    lambda storage, location: storage if location.startswith("cpu:") else None,
)

UNITS = ("steps", "samples", "tokens")


class SpotlineCallback(TrainerCallback):
    """Has the Trainer save when Spotline wants it, and commits every checkpoint that it writes.

    The Trainer writes as it always does, `checkpoint-N` in its output folder; what it wrote is moved
    into a checkpoint of Spotline. `save_strategy="no"` leaves the choice of when to Spotline.

    Parameters
    ----------
    session
        None: `attach()`.
    unit
        In which the job counts its work: `steps` of the optimiser, `samples`, `tokens`.
    tokens_per_sample
        For `tokens`, where the Trainer does not count them (`include_num_input_tokens_seen`).
    global_batch
        Samples of a step over all ranks; given, a Trainer that does not keep it is refused.
    """

    def __init__(
        self,
        session: TrainingSession | None = None,
        *,
        unit: str = "steps",
        tokens_per_sample: int | None = None,
        global_batch: int | None = None,
    ) -> None:
        if unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, was {unit!r}")
        self.session = session or attach()
        self._unit = unit
        self._tokens_per_sample = tokens_per_sample
        self._global_batch = global_batch
        self._began_s: float | None = None
        self._reached = (0, 0.0)

    def resume(self) -> str | None:
        """Return what `Trainer.train(resume_from_checkpoint=...)` takes; call it on all ranks."""
        found = self.session.resume()
        return None if found is None else str(found.path)

    def finish(self, trainer: Any) -> StoredCheckpoint | None:
        """Commit the trained model as the result, or exit with 75 where the job was told to stop."""
        self.exit_if_stopped()
        folder = Path(trainer.args.output_dir) / "result"
        trainer.save_model(str(folder))
        step, done = self._reached
        return self.session.finish(folder, step=step, done=done)

    def exit_if_stopped(self) -> None:
        """Exit with 75 where training ended because the job was told to stop."""
        self.session.exit_if_stopped()

    def exit_to_resume(self) -> NoReturn:
        """Exit with 75."""
        self.session.exit_to_resume()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Check that the global batch is kept, and that work can be counted.

        Raises
        ------
        ValueError
            It is not, or it cannot; the message says which argument to change.
        """
        del control
        batch = self._batch(args)
        if self._global_batch is not None and batch != self._global_batch:
            steps = self.session.accumulation(
                global_batch=self._global_batch, per_rank=args.train_batch_size
            )
            raise ValueError(
                f"gradient_accumulation_steps must be {steps} to keep global_batch "
                f"{self._global_batch}, was {args.gradient_accumulation_steps}: set it to "
                "session.accumulation(...)"
            )
        self._reached = (state.global_step, self._done(args, state))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report, and agree with the other ranks on saving and stopping."""
        self._reached = (state.global_step, self._done(args, state))
        self.session.report(step=state.global_step, done=self._reached[1])
        if self.session.should_checkpoint(state.global_step):
            control.should_save = True
            self._began_s = time.monotonic()
        if self.session.should_stop:
            control.should_training_stop = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Commit what the Trainer wrote."""
        del control
        began_s, self._began_s = self._began_s, None
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # The best one stays where the Trainer will look for it.
        keep = bool(args.load_best_model_at_end) or not self.session.keeps_checkpoints
        with self.session.checkpoint(
            step=state.global_step, done=self._done(args, state), began_s=began_s
        ) as saving:
            if saving.writes:
                copy_into(written, saving.path, move=not keep)
        if saving.writes and not keep:
            shutil.rmtree(written, ignore_errors=True)

    def _batch(self, args: TrainingArguments) -> int:
        return int(args.train_batch_size * args.world_size * args.gradient_accumulation_steps)

    def _done(self, args: TrainingArguments, state: TrainerState) -> float:
        if self._unit == "steps":
            return float(state.global_step)
        samples = float(state.global_step * self._batch(args))
        if self._unit == "samples":
            return samples
        if self._tokens_per_sample is not None:
            return samples * self._tokens_per_sample
        if str(args.include_num_input_tokens_seen).lower() in ("no", "false"):
            raise ValueError(
                "unit tokens needs tokens_per_sample, or include_num_input_tokens_seen of the Trainer"
            )
        return float(state.num_input_tokens_seen)
