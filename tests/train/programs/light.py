"""Lightning's Trainer, with rows chosen by their steps."""

import common
import lightning.pytorch as pl
import torch

from spotline.trainer import DataOrder, StepBatches, attach
from spotline.trainer.lightning import SpotlineLightningCallback


class Model(pl.LightningModule):
    def __init__(self, session):
        super().__init__()
        self.inner = common.new_model()
        self.session = session
        self.total = 0.0

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.inner(inputs), targets)
        self.total += float(loss.detach()) / self.trainer.accumulate_grad_batches
        common.stop_within(self.trainer.global_step + 1, self.session)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0:
            mean = self.trainer.strategy.reduce(torch.tensor(self.total))
            common.note_loss(self.trainer.global_step, mean, self.session)
            self.total = 0.0

    def on_train_start(self):
        if self.trainer.global_step and self.session.allocation.rank == 0:
            note = {"digest": common.digest(self.inner), "step": self.trainer.global_step}
            common.note("resumed.json", note)

    def on_save_checkpoint(self, checkpoint):
        if self.session.allocation.rank == 0:
            note = {"digest": common.digest(self.inner), "step": self.trainer.global_step}
            common.note("saved.json", note)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.inner.parameters(), lr=0.02)


def main():
    session = attach(interval_s=3600)
    place = session.allocation
    callback = SpotlineLightningCallback(session, done=lambda step: step * common.GLOBAL_BATCH)
    accumulation = session.accumulation(global_batch=common.GLOBAL_BATCH, per_rank=common.PER_RANK)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=place.world_size,
        strategy="ddp" if place.world_size > 1 else "auto",
        max_steps=common.STEPS,
        accumulate_grad_batches=accumulation,
        callbacks=[callback],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    if (
        place.world_size > 1
    ):  # the ranks agree on what to resume from before Lightning connects them
        torch.distributed.init_process_group("gloo")
    found = callback.resume()
    batches = StepBatches(
        order=DataOrder(rows=common.ROWS, global_batch=common.GLOBAL_BATCH, seed=1),
        per_rank=common.PER_RANK,
        rank=place.rank,
        ranks=place.world_size,
        first_step=callback.step,
    )
    rows = torch.utils.data.TensorDataset(*common.data())
    model = Model(session)
    loader = torch.utils.data.DataLoader(rows, batch_sampler=batches)
    trainer.fit(model, loader, ckpt_path=found, weights_only=False)
    session.exit_if_stopped()
    if place.rank == 0:
        torch.save(model.inner.state_dict(), common.OUT / "model.pt")
    step = trainer.global_step
    session.finish(common.OUT / "model.pt", step=step, done=step * common.GLOBAL_BATCH)


if __name__ == "__main__":
    main()
