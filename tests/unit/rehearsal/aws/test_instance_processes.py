"""Instances as processes: started and ended with them, and nothing of them is left."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spotline.rehearsal.aws.processes import InstanceProcesses, ProcessPlan
from tests.eventually import eventually

# Says who it is, starts a child, and waits.
PROGRAM = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(0)) if sys.argv[1] == "polite" else None)
child = subprocess.Popen(["sleep", "600"])
data = open(os.environ["REHEARSAL_USER_DATA"]).read()
print(os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"], os.environ["AWS_REGION"], data, child.pid, flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def plan(tmp_path, program, manner, grace_s=30.0):
    return ProcessPlan(
        command=f"{sys.executable} -S -E {program} {manner}",
        folder=tmp_path / "instances",
        metadata_url=lambda instance_id: f"http://127.0.0.1:1/{instance_id}/",
        grace_s=grace_s,
    )


def output(tmp_path, instance_id="i-1"):
    path = tmp_path / "instances" / instance_id / "output.log"
    return path.read_text() if path.exists() else ""


def sleeping():
    return subprocess.Popen(["sleep", "600"], start_new_session=True)


def stat_of(pid):
    """What the kernel says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def alive(pid):
    try:
        return stat_of(pid)[0] != "Z"
    except FileNotFoundError:
        return False


async def begun(tmp_path, processes, instance_id="i-1"):
    """Start an instance; gives the id of its child once it says it."""
    processes.start(instance_id, "us-east-1", b"from the template")
    await eventually(lambda: "\n" in output(tmp_path, instance_id))
    return int(output(tmp_path, instance_id).split()[-1])


async def test_process_knows_its_metadata_region_and_user_data(tmp_path, program):
    processes = InstanceProcesses(plan(tmp_path, program, "polite"))
    async with processes.running():
        await begun(tmp_path, processes)

        assert output(tmp_path).startswith("http://127.0.0.1:1/i-1/ us-east-1 from the template ")


async def test_process_is_asked_to_end_and_its_children_end_with_it(tmp_path, program):
    processes = InstanceProcesses(plan(tmp_path, program, "polite"))
    async with processes.running():
        child = await begun(tmp_path, processes)

        processes.stop("i-1")

        await eventually(lambda: not alive(child))
        assert output(tmp_path).endswith("asked\n")


async def test_process_that_does_not_end_is_killed_when_the_rehearsal_ends(tmp_path, program):
    processes = InstanceProcesses(plan(tmp_path, program, "stubborn", grace_s=0.01))
    async with processes.running():
        child = await begun(tmp_path, processes)

    await eventually(lambda: not alive(child))
    assert "asked" not in output(tmp_path)


async def test_nothing_is_left_where_the_rehearsal_is_cancelled(tmp_path, program):
    processes = InstanceProcesses(plan(tmp_path, program, "stubborn", grace_s=600))
    children = []

    async def rehearse():
        async with processes.running():
            children.append(await begun(tmp_path, processes))
            await asyncio.Event().wait()

    task = asyncio.create_task(rehearse())
    await eventually(lambda: children)
    task.cancel()
    # In its grace now; cancelled again, it does not wait for the end of it.
    with pytest.raises(asyncio.CancelledError):
        await cancelled_until_done(task)

    await eventually(lambda: not alive(children[0]))


async def cancelled_until_done(task):
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    return await task


async def test_what_a_killed_rehearsal_left_is_ended_and_a_strangers_process_is_not(tmp_path):
    left, stranger = sleeping(), sleeping()
    try:
        started = stat_of(left.pid)[19]
        for name, said in (("i-1", f"{left.pid} {started}"), ("i-2", f"{stranger.pid} 1")):
            folder = tmp_path / "instances" / name
            folder.mkdir(parents=True)
            (folder / "pid").write_text(said)

        async with InstanceProcesses(plan(tmp_path, tmp_path, "polite")).running():
            assert left.wait(timeout=60) == -signal.SIGKILL
            assert stranger.poll() is None
    finally:
        for process in (left, stranger):
            process.kill()
            process.wait()


def test_command_that_is_not_there_is_refused_at_once(tmp_path):
    for command in ("", "  ", "no-such-program --here"):
        with pytest.raises(ValueError, match="--instance-command"):
            ProcessPlan(command=command, folder=tmp_path, metadata_url=str)
