"""Instances as processes: what they get, how they end, and that nothing of them stays."""

import asyncio
import json
import os
import pwd
import signal
import sys
import textwrap
from dataclasses import replace

import pytest

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.machine import Machine
from spotline.adapters.clouds.local.reclaims import Reclaims
from spotline.application.cloud_actuator.ports import InstanceState
from spotline.contracts.errors import ConfigError, InvariantViolation
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from tests.eventually import eventually
from tests.fakes.actuator import OWNER, launch
from tests.fakes.local_cloud import US, Clouds, below, ended, shell, started

# A session of its own, as torchrun makes one for each rank.
ESCAPES = "setsid sleep 300 & sleep 300 & wait"


@pytest.fixture
def clouds(tmp_path):
    made = Clouds(tmp_path)
    yield made
    made.end()


class Enrols:
    def user_data(self, *, instance_id, job_id, tenant):
        return {"SPOTLINE_JOIN_TOKEN": f"{instance_id}/{job_id}/{tenant}"}


def interruption_of(told, instance_id):
    (end,) = [
        event
        for event in told
        if event.state is InstanceState.ENDED and event.instance.instance_id == instance_id
    ]
    return end.interruption


async def test_a_command_gets_its_user_data_and_nothing_of_ours(clouds, tmp_path):
    script = f"env -0 > {tmp_path}/env.part && mv {tmp_path}/env.part {tmp_path}/env; sleep 300"
    secrets = {"SPOTLINE_SECRETS_DIR": "/run/secrets", "SPOTLINE_SECRET_KEY": "k"}
    cloud = clouds.open(
        command=shell(script),
        enrolment=Enrols(),
        environ={"PATH": os.environ["PATH"], "KEPT": "1", "SPOTLINE_LEDGER_URL": "x", **secrets},
    )
    (instance_id,) = await clouds.launch(cloud)

    await eventually((tmp_path / "env").exists)

    given = dict(pair.split("=", 1) for pair in (tmp_path / "env").read_text().split("\0") if pair)
    assert given["SPOTLINE_JOIN_TOKEN"] == f"{instance_id}/j/acme"
    assert (given["SPOTLINE_INSTANCE_ID"], given["KEPT"]) == (instance_id, "1")
    assert {name: given[name] for name in secrets} == secrets
    assert "SPOTLINE_LEDGER_URL" not in given
    described = json.loads((cloud.metadata(instance_id) / "instance.json").read_text())
    assert given["SPOTLINE_WORK_DIR"] == given["PWD"]
    assert given["SPOTLINE_METADATA_DIR"] == str(cloud.metadata(instance_id))
    assert (described["instance_id"], described["market_s_per_s"]) == (instance_id, 100.0)


async def test_what_holds_the_token_is_gone_once_the_instance_has_begun(clouds, tmp_path):
    cloud = clouds.open(enrolment=Enrols())
    (instance_id,) = await clouds.launch(cloud)
    await started(instance_id, 2)

    control = clouds.folder / "local" / "control" / instance_id
    assert not (control / "spec.json").exists()
    assert control.stat().st_mode & 0o077 == 0
    assert cloud.metadata(instance_id).parent.stat().st_mode & 0o077 == 0


async def test_without_an_agent_to_run_a_launch_is_refused_with_what_to_set(clouds):
    cloud = clouds.open(command="")

    grant = await cloud.launch(launch("t", 1))

    assert grant.refusal.refusal_class is RefusalClass.UNSUPPORTED
    assert "SPOTLINE_CLOUD_LOCAL_COMMAND" in grant.refusal.detail


def test_a_command_that_cannot_be_run_is_refused_at_once(clouds):
    with pytest.raises(ConfigError, match="SPOTLINE_CLOUD_LOCAL_COMMAND must begin with a program"):
        clouds.open(command="no-such-program --now")


# --- ends -------------------------------------------------------------------------------------


async def test_asked_to_end_the_command_is_told_and_nothing_below_it_stays(clouds, tmp_path):
    said = tmp_path / "said"
    script = f"trap 'echo term > {said}; exit 0' TERM; {ESCAPES}"
    cloud = clouds.open(command=shell(script))
    (instance_id,) = await clouds.launch(cloud)
    await started(instance_id, 4)

    await cloud.terminate(US, [instance_id])
    (shown,) = await cloud.list(OWNER)
    told = await ended(cloud, instance_id)

    assert shown.state in (InstanceState.STOPPING, InstanceState.ENDED)
    assert interruption_of(told, instance_id) is None
    assert said.read_text() == "term\n"
    assert below(instance_id) == []
    # Its disk goes with it; what it wrote to its console stays.
    assert not cloud.metadata(instance_id).exists()
    assert cloud.console(instance_id).exists()


async def test_what_does_not_end_within_its_grace_is_killed(clouds, tmp_path):
    ready = tmp_path / "ready"
    cloud = clouds.open(
        command=shell(f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"), stop_grace_s=0.2
    )
    (instance_id,) = await clouds.launch(cloud)
    await eventually(ready.exists)

    await cloud.terminate(US, [instance_id])

    assert interruption_of(await ended(cloud, instance_id), instance_id) is None
    assert below(instance_id) == []
    end = json.loads((clouds.folder / "local/control" / instance_id / "end.json").read_text())
    assert end["how"] == "killed"


async def test_with_its_first_process_all_of_an_instance_dies_and_it_counts_as_failed(clouds):
    cloud = clouds.open(command=shell(ESCAPES))
    (instance_id,) = await clouds.launch(cloud)
    await started(instance_id, 4)

    processes.send(cloud.first_process(instance_id), signal.SIGKILL)

    told = await ended(cloud, instance_id)
    assert interruption_of(told, instance_id) is InterruptionKind.INSTANCE_FAILED
    assert below(instance_id) == []


@pytest.mark.parametrize(
    ("script", "interruption"),
    [("exit 0", None), ("exit 3", InterruptionKind.INSTANCE_FAILED)],
)
async def test_a_command_that_ends_shuts_its_instance_down(clouds, script, interruption):
    cloud = clouds.open(command=shell(f"setsid sleep 300 & echo words; {script}"))
    (instance_id,) = await clouds.launch(cloud)

    told = await ended(cloud, instance_id)

    assert interruption_of(told, instance_id) is interruption
    assert below(instance_id) == []
    assert cloud.console(instance_id).read_text() == "words\n"


async def test_what_a_command_writes_is_bounded_and_its_first_and_last_words_are_kept(clouds):
    script = "echo first; yes filler | head -c 21000000; echo last >&2"
    cloud = clouds.open(command=shell(script))
    (instance_id,) = await clouds.launch(cloud)

    await ended(cloud, instance_id)

    said = cloud.console(instance_id).read_bytes()
    assert said.startswith(b"first\nfiller\n")
    assert said.endswith(b"filler\nlast\n")
    assert b"bytes were left out here]\nfiller\n" in said
    assert len(said) < 4_000_000


async def test_a_command_does_not_ignore_the_signals_that_python_ignores(clouds):
    cloud = clouds.open(command=shell("grep SigIgn /proc/self/status"))
    (instance_id,) = await clouds.launch(cloud)

    await ended(cloud, instance_id)

    ignored = int(cloud.console(instance_id).read_text().split()[-1], 16)
    assert [n.name for n in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (n - 1) & 1] == []


# --- deaths of the process that launched ------------------------------------------------------

LAUNCHES = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from spotline.adapters.clouds.local.cloud import LocalCloud
    from spotline.adapters.clouds.local.machine import Machine
    from spotline.adapters.clouds.local.settings import LocalCloudSettings
    from spotline.application.cloud_actuator.messages import Moment
    from spotline.application.cloud_actuator.ports import LaunchRequest, Owner
    from spotline.domain.market.offering import UNKNOWN_COUNT, CapacityType, Quote
    if {before_start}:
        Machine.start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    cloud = LocalCloud(Path({folder!r}), LocalCloudSettings(command="sleep 300"))
    at = Moment(slot=0, slot_s=3600, offset_s=0, ts_ns=0)
    quote = Quote(
        offering_id="a", ts_event_ns=0, spot_price_micro_usd=1, on_demand_price_micro_usd=1,
        spot_available=UNKNOWN_COUNT, on_demand_available=UNKNOWN_COUNT,
    )
    cloud.open_slot(at, [quote])
    request = LaunchRequest(
        token="t", owner=Owner(name={owner!r}, epoch=1), job_id="j", tenant="acme",
        quota_pool="pool", offering_id="a", capacity_type=CapacityType.SPOT, instances=1, at=at,
    )
    asyncio.run(cloud.launch(request))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before_start", [False, True])
async def test_instances_survive_a_kill_of_who_launched_and_those_written_are_started(
    clouds, before_start
):
    program = LAUNCHES.format(
        before_start=before_start, folder=str(clouds.folder / "local"), owner=OWNER
    )
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", textwrap.dedent(program))
    assert await died.wait() == -signal.SIGKILL

    cloud = clouds.open()

    (instance,) = cloud.alive()
    clouds.ids.add(instance.instance_id)
    await started(instance.instance_id, 2)
    assert processes.runs(cloud.first_process(instance.instance_id))
    assert len(below(instance.instance_id)) == 2
    await cloud.terminate(US, [instance.instance_id])
    assert interruption_of(await ended(cloud, instance.instance_id), instance.instance_id) is None


async def test_what_ended_while_nobody_looked_is_told_to_who_opens_the_cloud_next(clouds):
    cloud = clouds.open()
    (instance_id,) = await clouds.launch(cloud)
    first = cloud.first_process(instance_id)
    clouds.close(cloud)
    processes.send(first, signal.SIGKILL)

    told = await ended(clouds.open(), instance_id)

    assert interruption_of(told, instance_id) is InterruptionKind.INSTANCE_FAILED
    assert below(instance_id) == []


def test_a_signal_reaches_no_process_that_has_the_pid_by_now():
    pid, began = processes.process_of(os.getpid())

    assert not processes.send((pid, began - 1), signal.SIGKILL)
    assert processes.open_process((pid, began - 1)) is None
    # To the kernel, 0 and -1 are not processes but many.
    for many in (0, -1):
        assert not processes.send((many, 0), signal.SIGKILL)
        assert processes.descendants((many, 0)) == []


async def test_below_a_pid_that_is_anothers_by_now_nothing_is_found():
    child = await asyncio.create_subprocess_exec("sleep", "300")
    try:
        pid, began = processes.process_of(os.getpid())

        assert child.pid in {found for found, _ in processes.descendants((pid, began))}
        assert processes.descendants((pid, began - 1)) == []
    finally:
        child.kill()
        await child.wait()


async def test_an_instance_that_the_machine_cannot_start_has_failed(clouds, monkeypatch):
    cloud = clouds.open()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Machine, "start", full)
    (instance_id,) = await clouds.launch(cloud)

    told = await ended(cloud, instance_id)

    assert interruption_of(told, instance_id) is InterruptionKind.INSTANCE_FAILED
    end = json.loads((clouds.folder / "local/control" / instance_id / "end.json").read_text())
    assert "No space left on device" in end["problem"]


async def test_who_waits_fails_with_the_thread_that_sees_to_instances(clouds, monkeypatch):
    cloud = clouds.open()
    monkeypatch.setattr(Reclaims, "advance", lambda _: 1 / 0)

    with pytest.raises(InvariantViolation, match="thread ended"):
        async with asyncio.timeout(60):
            await cloud.pushed()
    monkeypatch.undo()


# --- what an instance has ---------------------------------------------------------------------


async def test_gpus_are_disjoint_and_come_back_when_an_instance_has_ended(clouds, tmp_path):
    cloud = clouds.open(
        command=shell(f"echo $CUDA_VISIBLE_DEVICES >> {tmp_path}/gpus; sleep 300"),
        gpus_per_instance=2,
        gpu_devices="0,1,2,3,4",
    )
    first, _ = await clouds.launch(cloud, 2)
    short = await cloud.launch(launch("u", 1))

    assert short.refusal.refusal_class is RefusalClass.NO_CAPACITY
    assert "GPU" in short.refusal.detail
    await eventually(lambda: (tmp_path / "gpus").exists() and len(_lines(tmp_path / "gpus")) == 2)
    assert sorted(_lines(tmp_path / "gpus")) == ["0,1", "2,3"]
    await cloud.terminate(US, [first])
    await ended(cloud, first)
    assert len((await cloud.launch(launch("v", 1))).instances) == 1


def _lines(file):
    return file.read_text().split()


def test_more_gpus_than_there_are_is_refused_at_once(clouds):
    with pytest.raises(ConfigError, match="at least 2 devices"):
        clouds.open(gpus_per_instance=2, gpu_devices="0")


async def test_the_machine_holds_no_more_than_its_settings_say(clouds):
    cloud = clouds.open(most_instances=2)
    await clouds.launch(cloud, 2)

    grant = await cloud.launch(launch("u", 1))

    assert grant.refusal.refusal_class is RefusalClass.NO_CAPACITY
    assert grant.refusal.detail == "0 of 1: the machine holds no more"


# --- whose they are ---------------------------------------------------------------------------


async def test_it_runs_the_jobs_of_one_tenant_and_remembers_whose(clouds):
    first = clouds.open()
    await clouds.launch(first)
    clouds.close(first)
    cloud = clouds.open()

    grant = await cloud.launch(replace(launch("u", 1), tenant="other"))

    assert grant.refusal.refusal_class is RefusalClass.LIMIT
    assert "jobs of tenant acme, this is one of other" in grant.refusal.detail
    assert "SPOTLINE_CLOUD_LOCAL_RUN_AS" in grant.refusal.detail


def test_a_user_that_there_is_not_is_refused(clouds):
    with pytest.raises(ConfigError, match="'no-such-user' is none"):
        clouds.open(run_as="no-such-user")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may run instances as others")
def test_another_user_takes_root(clouds):
    with pytest.raises(ConfigError, match="takes root"):
        clouds.open(run_as="root")


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
async def test_an_instance_of_another_user_is_theirs_and_reaches_nothing_of_ours(tmp_path):
    nobody = pwd.getpwnam("nobody")
    folder = tmp_path
    while folder.stat().st_uid == 0 and str(folder) != "/":
        folder.chmod(folder.stat().st_mode | 0o011)
        folder = folder.parent
    clouds = Clouds(tmp_path)
    try:
        script = "id -u; ls ../../../control; cat ../metadata/instance.json; echo w > own; cat own"
        cloud = clouds.open(command=shell(f"{script}; sleep 300"), run_as="acme=nobody")
        (instance_id,) = await clouds.launch(cloud)
        await eventually(lambda: "w\n" in cloud.console(instance_id).read_text())

        said = cloud.console(instance_id).read_text()
        assert said.splitlines()[0] == str(nobody.pw_uid)
        assert "Permission denied" in said
        assert '"job_id": "j"' in said
        refused = await cloud.launch(replace(launch("u", 1), tenant="other"))
        assert refused.refusal.refusal_class is RefusalClass.LIMIT
        # It may not signal the first process, which is ours.
        assert os.stat(f"/proc/{cloud.first_process(instance_id)[0]}").st_uid == 0
    finally:
        clouds.end()
