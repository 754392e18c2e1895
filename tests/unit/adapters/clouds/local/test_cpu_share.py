"""An instance gets its share of the CPU and no more, whatever keeps it to it."""

import os
import time
from pathlib import Path

import pytest

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.cgroups import cgroups_for
from spotline.adapters.clouds.local.machine import Body, Machine
from spotline.contracts.errors import ConfigError
from tests.eventually import eventually
from tests.fakes.local_cloud import Clouds, below, shell, started

SHARE, MEASURED_S = 0.3, 1.2
# Two test runs of one machine must not take each other's.
OWN = f"test-{os.getpid()}"
BURN = "while :; do :; done"


def cgroups_work():
    groups = cgroups_for(OWN, required=False)
    if groups is not None:
        groups.close()
    return groups is not None


@pytest.fixture
def clouds(tmp_path):
    made = Clouds(tmp_path)
    yield made
    made.end()


async def settles(instance_id, least, most):
    """Wait until an instance has used so many CPU seconds in a second of wall time on average.

    Whoever keeps it to its share comes late on a busy machine, and makes up for it afterwards: no
    moment is like the average, to which it all comes in the end.
    """
    running = await started(instance_id, 2)

    def used_s():
        return sum(processes.cpu_s(process) for process in running)

    # What was saved up at the start is spent.
    await eventually(lambda: used_s() > 0.2, timeout_s=60)
    began_s, before_s = time.monotonic(), used_s()
    cores = []

    def has_settled():
        passed_s = time.monotonic() - began_s
        cores.append((used_s() - before_s) / passed_s)
        return passed_s >= MEASURED_S and least < cores[-1] < most

    try:
        await eventually(has_settled, timeout_s=30, every_s=0.1)
    except AssertionError:
        pytest.fail(f"on average it used {cores[-1]:.2f} cores, not {least} to {most}")


@pytest.mark.parametrize("by", ["turns", "cgroup"])
async def test_what_burns_gets_its_share(clouds, by):
    if by == "cgroup" and not cgroups_work():
        pytest.skip("no cgroup with a CPU quota can be made here")
    cloud = clouds.open(command=shell(BURN), cpu_share=SHARE, cpu_share_by=by)
    (instance_id,) = await clouds.launch(cloud)

    # Busy machines give less, and none may give much more.
    await settles(instance_id, SHARE / 4, SHARE * 1.5)


@pytest.mark.parametrize("by", ["turns", "cgroup"])
async def test_the_agent_itself_has_no_share_and_never_stands_still(clouds, tmp_path, by):
    if by == "cgroup" and not cgroups_work():
        pytest.skip("no cgroup with a CPU quota can be made here")
    groups = cgroups_for(f"{OWN}-spared", required=True) if by == "cgroup" else None
    machine = Machine(tmp_path / "machine", {"PATH": "/bin:/usr/bin"}, groups)
    script, spared = tmp_path / "agent", f"{OWN}-{by}"
    script.write_text(f"#!/bin/sh\nsetsid sh -c '{BURN}' &\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o700)
    clouds.ids.add(spared)
    machine.start(
        Body(
            instance_id=spared,
            argv=(str(script),),
            variables={},
            metadata={},
            user="",
            cpu_share=SHARE,
            spare_command=True,
            stop_grace_s=1.0,
        )
    )
    try:
        running = await started(spared, 3)
        agent = next(process for process in running if str(script) in command_of(process))
        states = []

        def measured():
            states.append(Path(f"/proc/{agent[0]}/stat").read_text().rpartition(")")[2].split()[0])
            return len(states) >= 20

        await eventually(measured, every_s=0.05)
        await settles(spared, 0, SHARE * 1.5)
        assert "T" not in states
        if groups is not None:
            assert agent[0] not in groups.pids(spared)
            assert groups.pids(spared)
    finally:
        machine.kill(spared, None)
        machine.clear(spared)
        machine.close()
    assert below(spared) == []


def cgroups_of(instance_id):
    # Others come and go meanwhile, which this passes over.
    return [
        Path(base, instance_id)
        for base, folders, _ in os.walk("/sys/fs/cgroup")
        if instance_id in folders
    ]


def command_of(process):
    try:
        words = Path(f"/proc/{process[0]}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has just ended
    return [word.decode() for word in words]


async def test_its_cgroup_goes_with_the_instance(clouds):
    if not cgroups_work():
        pytest.skip("no cgroup with a CPU quota can be made here")
    cloud = clouds.open(cpu_share=SHARE, cpu_share_by="cgroup")
    (instance_id,) = await clouds.launch(cloud)
    assert cgroups_of(instance_id)

    cloud.take_back([instance_id])

    assert not cgroups_of(instance_id)


def test_cgroups_that_cannot_be_made_are_refused_where_they_are_required(monkeypatch):
    def refused(*_, **__):
        raise PermissionError("Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)

    with pytest.raises(ConfigError, match="cpu_share_by is cgroup, and no cgroup"):
        cgroups_for("test", required=True)
    assert cgroups_for("test", required=False) is None
