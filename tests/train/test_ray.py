"""Ray: a notice of Spotline is one of Ray Train's own."""

import json
import subprocess
import sys
import time

import pytest

from tests.eventually import eventually
from tests.fakes.agent_files import AgentFiles, python_environ
from tests.train.harness import PROGRAMS, TIMEOUT_S

pytestmark = pytest.mark.train("torch", "ray")


@pytest.fixture
def job(tmp_path):
    return AgentFiles(tmp_path / "run")


@pytest.fixture
def program(job, tmp_path):
    """A program in a Ray cluster of its own; what it writes is in `output`."""
    environ = job.environ(SPOTLINE_INSTANCE_ID="i-0")
    with (tmp_path / "output").open("w") as output:
        running = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "ray_notice.py")],
            env=python_environ(**environ, RAY_USAGE_STATS_ENABLED="0"),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield running
    running.kill()
    running.wait()


async def test_a_notice_drains_the_node_and_ray_train_knows_its_deadline_and_ranks(
    job, program, tmp_path
):
    job.notice({"notice_id": "n-0", "instance_ids": ["i-other"], "deadline_s": time.time() + 99})
    watching = job.folder / "watching"
    await eventually(lambda: watching.exists() or program.poll() is not None, timeout_s=TIMEOUT_S)

    deadline_s = time.time() + 3600
    job.notice({"notice_id": "n-1", "instance_ids": ["i-0"], "deadline_s": deadline_s})
    await eventually(lambda: program.poll() is not None, timeout_s=TIMEOUT_S)

    said = (tmp_path / "output").read_text()
    assert program.returncode == 0, said
    (answer,) = [line for line in said.splitlines() if line.startswith("said ")]
    assert json.loads(answer.removeprefix("said ")) == {
        "deadline_ms": int(deadline_s * 1000),
        "ranks": [0, 1],
    }
