"""Plain torch, with DistributedDataParallel where there are several ranks."""

import os

import common
import torch
import torch.distributed as dist

from spotline.trainer import attach


def main():
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    session = attach(interval_s=3600)
    ranks = session.allocation.world_size
    model, (inputs, targets) = common.new_model(), common.data()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    step = 0
    if (found := session.resume()) is not None:
        state = torch.load(found.path / "state.pt")
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        step = found.step
        if session.allocation.rank == 0:
            common.note("resumed.json", {"digest": common.digest(model), "step": step})
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    accumulation = session.accumulation(global_batch=common.GLOBAL_BATCH, per_rank=common.PER_RANK)
    while step < common.STEPS:
        rows = session.samples(step, global_batch=common.GLOBAL_BATCH, rows=common.ROWS, seed=1)
        total = torch.zeros(1)
        for turn in range(accumulation):
            part = rows[turn * common.PER_RANK : (turn + 1) * common.PER_RANK]
            loss = torch.nn.functional.mse_loss(wrapped(inputs[part]), targets[part])
            (loss / accumulation).backward()
            total += loss.detach() / accumulation
            common.stop_within(step + 1, session)
        if ranks > 1:
            dist.all_reduce(total)
        optimiser.step()
        optimiser.zero_grad()
        step += 1
        common.note_loss(step, total / ranks, session)
        session.report(step=step, done=step * common.GLOBAL_BATCH)
        if session.should_checkpoint(step):
            with session.checkpoint(step=step, done=step * common.GLOBAL_BATCH) as saving:
                if saving.writes:
                    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
                    torch.save(state, saving.path / "state.pt")
                    common.note("saved.json", {"digest": common.digest(model), "step": step})
        if session.should_stop:
            session.exit_to_resume()
    if session.allocation.rank == 0:
        torch.save(model.state_dict(), common.OUT / "model.pt")
        common.note("final.json", {"digest": common.digest(model)})
    session.finish(common.OUT / "model.pt", step=step, done=step * common.GLOBAL_BATCH)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
