"""An instance gets its share of the CPU and no more, whatever keeps it to it."""

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
BURN = "while :; do :; done"


def cgroups_work():
    groups = cgroups_for("test", required=False)
    if groups is not None:
        groups.close()
    return groups is not None


@pytest.fixture
def clouds(tmp_path):
    made = Clouds(tmp_path)
    yield made
    made.end()


async def used_cores(instance_id):
    """CPU seconds in a second of wall time that an instance uses, over `MEASURED_S`."""
    running = await started(instance_id, 2)

    def used_s():
        return sum(processes.cpu_s(process) for process in running)

    # What was saved up at the start is spent.
    await eventually(lambda: used_s() > 0.2)
    began_s, before_s = time.monotonic(), used_s()
    await eventually(lambda: time.monotonic() - began_s >= MEASURED_S, every_s=0.1)
    return (used_s() - before_s) / (time.monotonic() - began_s)


@pytest.mark.parametrize("by", ["turns", "cgroup"])
async def test_what_burns_gets_its_share(clouds, by):
    if by == "cgroup" and not cgroups_work():
        pytest.skip("no cgroup with a CPU quota can be made here")
    cloud = clouds.open(command=shell(BURN), cpu_share=SHARE, cpu_share_by=by)
    (instance_id,) = await clouds.launch(cloud)

    # Busy machines give less, and none may give much more.
    assert SHARE / 4 < await used_cores(instance_id) < SHARE * 1.5


@pytest.mark.parametrize("by", ["turns", "cgroup"])
async def test_the_agent_itself_has_no_share_and_never_stands_still(clouds, tmp_path, by):
    if by == "cgroup" and not cgroups_work():
        pytest.skip("no cgroup with a CPU quota can be made here")
    groups = cgroups_for("spared", required=True) if by == "cgroup" else None
    machine = Machine(tmp_path / "machine", {"PATH": "/bin:/usr/bin"}, groups)
    script = tmp_path / "agent"
    script.write_text(f"#!/bin/sh\nsetsid sh -c '{BURN}' &\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o700)
    clouds.ids.add("spared-1")
    machine.start(
        Body(
            instance_id="spared-1",
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
        running = await started("spared-1", 3)
        agent = next(process for process in running if str(script) in command_of(process))
        states = []

        def measured():
            states.append(Path(f"/proc/{agent[0]}/stat").read_text().rpartition(")")[2].split()[0])
            return len(states) >= 20

        await eventually(measured, every_s=0.05)
        assert await used_cores("spared-1") < SHARE * 1.5
        assert "T" not in states
        if groups is not None:
            assert agent[0] not in groups.pids("spared-1")
            assert groups.pids("spared-1")
    finally:
        machine.kill("spared-1", None)
        machine.clear("spared-1")
        machine.close()
    assert below("spared-1") == []


def cgroups_of(instance_id):
    return list(Path("/sys/fs/cgroup").glob(f"**/{instance_id}"))


def command_of(process):
    words = Path(f"/proc/{process[0]}/cmdline").read_bytes().split(b"\0")
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
