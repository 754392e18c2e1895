"""A loop of one's own with Accelerate."""

import common
import torch
from accelerate import Accelerator

from spotline.trainer import attach
from spotline.trainer.accelerate import load_state, step_boundary


def main():
    session = attach(interval_s=3600)
    accumulation = session.accumulation(global_batch=common.GLOBAL_BATCH, per_rank=common.PER_RANK)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    model, (inputs, targets) = common.new_model(), common.data()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimiser = accelerator.prepare(model, optimiser)
    bare = accelerator.unwrap_model(model)
    found = load_state(session, accelerator)
    step = found.step if found else 0
    if found and accelerator.is_main_process:
        common.note("resumed.json", {"digest": common.digest(bare), "step": step})
    while step < common.STEPS:
        rows = session.samples(step, global_batch=common.GLOBAL_BATCH, rows=common.ROWS, seed=1)
        total = torch.zeros(1)
        for turn in range(accumulation):
            part = rows[turn * common.PER_RANK : (turn + 1) * common.PER_RANK]
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(inputs[part]), targets[part])
                accelerator.backward(loss)
                optimiser.step()
                optimiser.zero_grad()
            total += loss.detach() / accumulation
            common.stop_within(step + 1, session)
        step += 1
        common.note_loss(step, accelerator.reduce(total, "mean"), session)
        done = step * common.GLOBAL_BATCH
        before = common.digest(bare)
        if step_boundary(session, accelerator, step=step, done=done):
            if accelerator.is_main_process:
                common.note("saved.json", {"digest": before, "step": step})
            session.exit_to_resume()
    if accelerator.is_main_process:
        torch.save(bare.state_dict(), common.OUT / "model.pt")
    session.finish(common.OUT / "model.pt", step=step, done=step * common.GLOBAL_BATCH)
    accelerator.end_training()


if __name__ == "__main__":
    main()
