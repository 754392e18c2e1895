"""What the programs share: data that can be learned, and a stop in the middle of a step."""

import hashlib
import json
import os
import signal
from pathlib import Path

import torch

OUT = Path(os.environ["OUT"])
STEPS = int(os.environ.get("STEPS", "12"))
STOP_IN_STEP = int(os.environ["STOP_IN_STEP"])
KILL_IN_STEP = int(os.environ.get("KILL_IN_STEP", "0"))
ROWS, WIDTH, GLOBAL_BATCH, PER_RANK, SEED = 48, 8, 8, 2, 7


def data():
    """A noisy linear rule, the same in every process."""
    generator = torch.Generator().manual_seed(SEED)
    inputs = torch.randn(ROWS, WIDTH, generator=generator)
    rule = torch.randn(WIDTH, 1, generator=generator)
    return inputs, inputs @ rule + 0.01 * torch.randn(ROWS, 1, generator=generator)


def new_model():
    torch.manual_seed(SEED)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def stop_within(step, session):
    """Get a signal here, in the middle of a step, where this is the step and the last rank."""
    place = session.allocation
    if place.rank != place.world_size - 1:
        return
    if step == STOP_IN_STEP:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == KILL_IN_STEP:
        os.kill(os.getpid(), signal.SIGKILL)


def note_loss(step, loss, session):
    if session.allocation.rank == 0:
        with (OUT / "losses.jsonl").open("a") as file:
            file.write(json.dumps([step, float(loss)]) + "\n")


def note(name, content):
    (OUT / name).write_text(json.dumps(content))


def digest(module):
    """Of all parameters, bit for bit."""
    found = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        found.update(name.encode() + value.detach().contiguous().numpy().tobytes())
    return found.hexdigest()
