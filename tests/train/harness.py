"""Generations of a real training program on loopback, as an agent starts and stops them."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

from tests.fakes.agent_files import AgentFiles, python_environ

PROGRAMS = Path(__file__).with_name("programs")
# As torchrun tells which exit code the first rank that failed had; its own is always 1.
FIRST_EXIT = re.compile(r"first observed failure\):.*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
TIMEOUT_S = 240


class TrainingJob:
    """A job whose program is one of `programs/`; every run of it is a generation."""

    def __init__(self, folder, program):
        self.folder = folder
        self.program = PROGRAMS / program
        self.files = AgentFiles(folder / "run")
        self.files.generation = 0

    def run(self, *, ranks=1, stop_in_step=0, torchrun=False, **more):
        """Run a generation to its end, and return its exit code.

        With `stop_in_step` the last rank, and no other, gets SIGTERM in the middle of that step.
        """
        self.files.generation += 1
        self.files.allocate("i-0")
        environ = {
            **self.files.environ(),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OUT": str(self.folder),
            "STOP_IN_STEP": str(stop_in_step),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **{name: str(value) for name, value in more.items()},
        }
        words = [sys.executable, str(self.program)]
        if ranks > 1 or torchrun:
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
                environ.pop(name)  # torchrun's to say
            words = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1"),
                *(f"--nproc-per-node={ranks}", "--standalone", "--local-addr=127.0.0.1"),
                str(self.program),
            ]
        ended = subprocess.run(
            words,
            env=python_environ(**environ),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.output = ended.stdout + ended.stderr
        if (ranks > 1 or torchrun) and (said := FIRST_EXIT.search(self.output)):
            return int(said[1])
        return ended.returncode

    def losses(self):
        """Loss by step; a step that was trained twice counts as it was trained last."""
        lines = (self.folder / "losses.jsonl").read_text().splitlines()
        return dict(json.loads(line) for line in lines)

    def steps(self):
        """Every step that was trained, in order."""
        lines = (self.folder / "losses.jsonl").read_text().splitlines()
        return [json.loads(line)[0] for line in lines]

    def said(self, name):
        """A JSON file that the program wrote."""
        return json.loads((self.folder / name).read_text())

    def checkpoints(self):
        """Committed checkpoints as the agent is told of them."""
        return [event for event in self.files.events("checkpoint") if "fault" not in event]


def free_port():
    """A port of this machine that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def assert_same_curve(losses, undisturbed, *, relative):
    """Every step was trained, and each loss is that of the undisturbed run."""
    assert sorted(losses) == sorted(undisturbed)
    apart = {
        step: (loss, undisturbed[step])
        for step, loss in losses.items()
        if abs(loss - undisturbed[step]) > relative * abs(undisturbed[step])
    }
    assert apart == {}
    first, last = min(losses), max(losses)
    assert losses[last] < losses[first]  # it learns: curves of a model that does not say nothing
