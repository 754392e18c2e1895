"""A tiny Llama, trained by Hugging Face's Trainer."""

import common
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from spotline.trainer import attach
from spotline.trainer.huggingface import SpotlineCallback

LENGTH = 12


class Rows(torch.utils.data.Dataset):
    """Sequences that count up by a step of their own: the next token follows from two."""

    def __len__(self):
        return common.ROWS

    def __getitem__(self, row):
        tokens = torch.tensor([(row + turn * (1 + row % 3)) % 32 for turn in range(LENGTH)])
        return {"input_ids": tokens, "labels": tokens}


class NotedTrainer(Trainer):
    """Gets its signal in the middle of a step."""

    def training_step(self, *words, **more):
        loss = super().training_step(*words, **more)
        common.stop_within(self.state.global_step + 1, SESSION)
        return loss


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            common.note_loss(state.global_step, logs["loss"], SESSION)

    def on_train_begin(self, args, state, control, model=None, **_):
        if state.global_step and SESSION.allocation.rank == 0:
            note = {"digest": common.digest(model), "step": state.global_step}
            common.note("resumed.json", note)

    def on_save(self, args, state, control, model=None, **_):
        if SESSION.allocation.rank == 0:
            common.note("saved.json", {"digest": common.digest(model), "step": state.global_step})


SESSION = attach(interval_s=3600)


def main():
    torch.manual_seed(common.SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    callback = SpotlineCallback(
        SESSION, unit="tokens", tokens_per_sample=LENGTH, global_batch=common.GLOBAL_BATCH
    )
    trainer = NotedTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(common.OUT / "hf"),
            max_steps=common.STEPS,
            per_device_train_batch_size=common.PER_RANK,
            gradient_accumulation_steps=SESSION.accumulation(
                global_batch=common.GLOBAL_BATCH, per_rank=common.PER_RANK
            ),
            learning_rate=5e-3,
            lr_scheduler_type="linear",
            logging_steps=1,
            logging_strategy="steps",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=common.SEED,
            ddp_backend="gloo",
        ),
        train_dataset=Rows(),
        callbacks=[Losses(), callback],
    )
    trainer.train(resume_from_checkpoint=callback.resume())
    callback.finish(trainer)


if __name__ == "__main__":
    main()
