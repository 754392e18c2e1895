"""A training program as a user has one: a small Llama, LoRA-tuned with peft by the Trainer.

Every update trains the samples whose positions follow from its number, whatever the number of ranks;
what a rank contributes is noted in its diary before it is added to that of the others.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Much of the time that transformers takes to load goes into scikit-learn and SciPy, which it uses for
# generating and for losses that this training does not need, and into looking for garbage while
# there is none: every restart pays for it.
sys.modules["sklearn"] = sys.modules["scipy"] = None  # type: ignore[assignment]
gc.disable()

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import (
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from spotline.demo.train.diary import Diary
from spotline.demo.train.tokens import TokenSource
from spotline.trainer import TrainingSession, attach
from spotline.trainer.elastic import DataOrder, StepBatches
from spotline.trainer.huggingface import SpotlineCallback

gc.enable()

_HELD_OUT = 64
_LEARNING_RATE = 4e-3
_LORA = LoraConfig(
    r=8,
    lora_alpha=16,
    task_type="CAUSAL_LM",
    target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRun:
    """What is tuned: `base` is the folder of the model, `batch` the samples of an update."""

    base: Path
    diary: Path
    work: Path
    steps: int
    batch: int
    per_rank: int
    task: int
    seed: int
    interval_s: float | None
    judged_at: tuple[int, ...]


class Positions(Dataset[dict[str, torch.Tensor]]):
    """The samples of a source by their position."""

    def __init__(self, source: TokenSource, rows: int) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, position: int) -> dict[str, torch.Tensor]:
        tokens = torch.from_numpy(self._source.sequence(position))
        return {"input_ids": tokens, "labels": tokens, "position": torch.tensor(position)}


class NotingTrainer(Trainer):
    """Takes its batches from the number of the update, and notes what it contributes.

    `plan` are the batches of this rank from the step on that it resumes at.
    """

    def __init__(self, *, plan: StepBatches, diary: Diary, **rest: Any) -> None:
        super().__init__(**rest)
        self._plan = plan
        self._diary = diary
        self._pending: list[list[int]] = []

    def get_train_dataloader(self) -> DataLoader[dict[str, torch.Tensor]]:
        """Load this rank's own batches: they are not to be divided once more."""
        return DataLoader(self.train_dataset, batch_sampler=self._plan)

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], *rest: Any, **named: Any
    ) -> torch.Tensor:
        """Note the samples of an update before its last batch, whose gradients are exchanged."""
        self._pending.append(inputs.pop("position").tolist())
        if len(self._pending) == self.args.gradient_accumulation_steps:
            positions = [position for batch in self._pending for position in batch]
            self._diary.contributes(self.state.global_step + 1, positions)
            self._pending.clear()
        return super().training_step(model, inputs, *rest, **named)


class NotingCallback(TrainerCallback):
    """Notes where the training stands, before anything of it is saved."""

    def __init__(
        self,
        diary: Diary,
        model: PeftModel,
        session: TrainingSession,
        *,
        source: TokenSource,
        judged_at: tuple[int, ...],
    ) -> None:
        self._diary = diary
        self._model = model
        self._source = source
        self._judged_at = judged_at
        self._world = session.allocation.world_size
        self._first = session.allocation.rank == 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """What was loaded."""
        self._diary.began(
            step=state.global_step, world=self._world, parameters=digest_of(self._model)
        )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """What an update led to."""
        if self._first:
            self._diary.reached(state.global_step, digest_of(self._model))
            if state.global_step in self._judged_at:
                loss = held_out_loss(self._model, self._source)
                self._model.train()
                self._diary.judged(state.global_step, loss)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Its loss."""
        if self._first and logs and "loss" in logs:
            self._diary.lost(state.global_step, logs["loss"])


def digest_of(model: torch.nn.Module) -> str:
    """SHA-256 over the parameters that are trained, by name."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad:
            digest.update(name.encode())
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def held_out_loss(model: torch.nn.Module, source: TokenSource) -> float:
    """Mean loss per token, in nats, on text that no run trains on."""
    model.eval()
    tokens = torch.from_numpy(source.held_out(_HELD_OUT))
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)


def train(settings: TuningRun) -> None:
    """Tune to the last step, or exit with 75 when told to stop."""
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    session = attach(interval_s=settings.interval_s)
    place = session.allocation
    # These connect the ranks: nothing can be agreed on before.
    arguments = _arguments(settings, session)
    if arguments.world_size != place.world_size:
        raise RuntimeError(f"{place.world_size} ranks expected, {arguments.world_size} connected")
    if session.result() is not None:
        # Killed after it was done, before that was known.
        return
    source = TokenSource(task=settings.task, seed=settings.seed)
    model = get_peft_model(LlamaForCausalLM.from_pretrained(settings.base), _LORA)
    found = session.resume()
    diary = Diary(settings.diary, generation=place.generation, rank=place.rank)
    rows = settings.steps * settings.batch
    trainer = NotingTrainer(
        model=model,
        args=arguments,
        train_dataset=Positions(source, rows),
        plan=StepBatches(
            order=DataOrder(rows=rows, global_batch=settings.batch),
            per_rank=settings.per_rank,
            rank=place.rank,
            ranks=place.world_size,
            first_step=0 if found is None else found.step,
            last_step=settings.steps,
        ),
        diary=diary,
        # Notes first: what is saved was noted.
        callbacks=[
            NotingCallback(diary, model, session, source=source, judged_at=settings.judged_at),
            SpotlineCallback(
                session, unit="tokens", tokens_per_sample=source.length, global_batch=settings.batch
            ),
        ],
    )
    trainer.train(resume_from_checkpoint=None if found is None else str(found.path))
    step = trainer.state.global_step
    if step < settings.steps:
        session.exit_to_resume()
    if place.rank == 0:
        loss = held_out_loss(model, source)
        diary.ended(step, held_out_loss=loss, parameters=digest_of(model))
        model.save_pretrained(settings.work / "result")
        sys.stdout.write(json.dumps({"held_out_loss": loss}) + "\n")
    session.finish(settings.work / "result", step=step, done=step * settings.batch * source.length)


def _arguments(settings: TuningRun, session: TrainingSession) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(settings.work),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.per_rank,
        gradient_accumulation_steps=session.accumulation(
            global_batch=settings.batch, per_rank=settings.per_rank
        ),
        learning_rate=_LEARNING_RATE,
        lr_scheduler_type="constant",
        use_cpu=True,
        ddp_backend="gloo" if session.allocation.world_size > 1 else None,
        ddp_find_unused_parameters=False,
        # The plan begins where the checkpoint ends.
        ignore_data_skip=True,
        remove_unused_columns=False,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        seed=settings.seed,
    )


def main(arguments: Sequence[str]) -> None:
    """Read the command line and tune."""
    parser = argparse.ArgumentParser(prog="train_tiny.py", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--diary", type=Path, required=True, help="folder of the diaries")
    parser.add_argument("--work", type=Path, default=Path("out"), help="folder of the Trainer")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8, help="samples of an update, over all ranks")
    parser.add_argument("--per-rank", type=int, default=4, help="samples of a batch of one rank")
    parser.add_argument("--task", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interval-s", type=float, default=None)
    parser.add_argument(
        "--judged-at", type=int, nargs="*", default=[], help="steps whose held-out loss is noted"
    )
    stated = vars(parser.parse_args(arguments))
    train(TuningRun(**{**stated, "judged_at": tuple(stated["judged_at"])}))


if __name__ == "__main__":
    main(sys.argv[1:])
