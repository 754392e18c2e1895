"""The real `spotline agent` beside a program, against a control plane that follows a script."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from google.protobuf import json_format

from spotline.api.v1 import agent_service_pb2 as api
from spotline.api.v1 import job_pb2, run_pb2, training_pb2
from tests.eventually import eventually
from tests.fakes.agent_control import FakeAgentControl, Instance, make_certificates, whole

pytestmark = pytest.mark.integration

JOB = "job-1"
SECRET = "hunter2-and-more"

# It needs no library: SIGTERM sets a flag, the next step saves and ends with 75.
TRAINER = """
import json, os, signal, subprocess, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
rank = os.environ.get("RANK", "?")
print("rank", rank, "of", os.environ.get("WORLD_SIZE"), "at", os.getcwd(), flush=True)
print("left over:", sorted(n for n in os.environ if "TOKEN" in n or "CONTROL" in n), flush=True)
secret = os.environ.get("API_KEY", "")
os.write(1, b"key=" + secret[:5].encode())
time.sleep(0.05)
os.write(1, secret[5:].encode() + b" sent\\n")
mode = sys.argv[1]
run_dir = os.environ["SPOTLINE_RUN_DIR"]
generation = int(os.environ["SPOTLINE_GENERATION"])

def event(kind, **fields):
    with open(os.path.join(run_dir, "events.jsonl"), "a") as file:
        line = {"kind": kind, "rank": 0, "generation": generation, "at_s": time.time(), **fields}
        file.write(json.dumps(line) + "\\n")

def checkpoint(suffix, step):
    uri = f"{os.environ['SPOTLINE_CHECKPOINT_URI']}/checkpoints/{generation:08}-{step:010}{suffix}"
    event("checkpoint", step=step, done=1000.0 * step, uri=uri, sha256="ab" * 32, save_s=0.5,
          files={"model": {"bytes": 7, "sha256": "cd" * 32}})

if mode == "sdk" and rank == "0":
    event("resumed", sha256="ee" * 32, load_s=0.25, done=500.0)
saved = False
for step in range(1, 100_000):
    time.sleep(0.02)
    if rank == "0":
        if mode == "output":
            print(f"step {step} | tokens {1000 + step:,}k | loss 2.0", flush=True)
        elif mode == "file":
            with open("metrics.jsonl", "a") as file:
                file.write(json.dumps({"loss": 1.0, "train": {"tokens": step * 10}}) + "\\n")
        elif mode == "sdk":
            event("progress", step=step, done=1000.0 * step)
            if step == 5:
                checkpoint("", step)
            notices = json.load(open(os.environ["SPOTLINE_NOTICE_FILE"]))
            if notices and not saved:
                saved = True
                checkpoint("-p", step)
    if mode == "fail" and os.path.exists("fail"):
        sys.exit("it went wrong")
    if mode == "deep" and step == 1:
        child = subprocess.Popen(
            [sys.executable, "-c",
             "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
            start_new_session=True)
        with open(f"child-{generation}.pid", "w") as file:
            file.write(str(child.pid))
    if stop and mode != "deep":
        with open(f"saved-{rank}", "w") as file:
            file.write(str(step))
        sys.exit(75)
"""


@pytest.fixture(scope="module")
def certificates():
    return make_certificates()


@pytest.fixture
async def control(certificates):
    serving = FakeAgentControl(certificates)
    await serving.start()
    yield serving
    await serving.stop()


def run_of(trainer: Path, mode: str, **fields) -> run_pb2.Run:
    return run_pb2.Run(command=["python", str(trainer), mode], grace_s=20, **fields)


def job_of(run: run_pb2.Run, location: str = "") -> job_pb2.Job:
    return job_pb2.Job(
        job_id=JOB, tenant="acme", run=run, checkpoint=job_pb2.Checkpoint(location=location)
    )


def allocation(generation: int, state: str, *ids: str, notices=()) -> api.TrainingAllocation:
    return api.TrainingAllocation(
        job_id=JOB,
        generation=generation,
        state=api.AllocationState.Value(f"ALLOCATION_STATE_{state}"),
        members=[
            api.TrainingMember(instance_id=member, node_rank=rank, host="127.0.0.1")
            for rank, member in enumerate(ids)
        ],
        notices=notices,
    )


class AgentProcess:
    """A `spotline agent`, and the folder of its instance."""

    def __init__(self, folder: Path, instance_id: str, address: str, ca: bytes, **environ) -> None:
        self.folder = folder / instance_id
        self.folder.mkdir()
        self.log = (self.folder / "agent.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from spotline.cli.main import app; app()", "agent"],
            env={
                **os.environ,
                "SPOTLINE_CONTROL": address,
                "SPOTLINE_CONTROL_CA": ca.decode(),
                "SPOTLINE_INSTANCE_ID": instance_id,
                "SPOTLINE_JOB_ID": JOB,
                "SPOTLINE_JOIN_TOKEN": f"token-{instance_id}",
                "SPOTLINE_METADATA_DIR": str(self.folder),
                **environ,
            },
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    @property
    def work_dir(self) -> Path:
        return self.folder / "agent" / "work"

    async def ended(self) -> int:
        await eventually(lambda: self.process.poll() is not None)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture
def agents(tmp_path, control):
    """Starts agents of the control plane, and leaves none behind."""
    started = []

    def start(instance_id: str, **environ) -> AgentProcess:
        ca = control.certificates.ca
        started.append(AgentProcess(tmp_path, instance_id, control.address, ca, **environ))
        return started[-1]

    yield start
    for agent in started:
        agent.close()


@pytest.fixture
def trainer(tmp_path) -> Path:
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    return script


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ended(instance: Instance, generation: int) -> list:
    return [
        message
        for message in instance.of(api.ReportRanksRequest)
        if message.generation == generation and message.state == api.RANKS_STATE_ENDED
    ]


def package_of(folder: Path, **files: str) -> run_pb2.RunPackage:
    archive = folder / "package.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{name}.py")
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    content = archive.read_bytes()
    return run_pb2.RunPackage(
        sha256=hashlib.sha256(content).hexdigest(), uri=str(archive), size_bytes=len(content)
    )


def serve_apart(folder: Path) -> subprocess.Popen:
    """A control plane that can be killed."""
    return subprocess.Popen([sys.executable, "-m", "tests.fakes.agent_control", str(folder), "0"])


async def test_two_ranks_of_a_package_run_save_and_leave(control, agents, tmp_path):
    control.instances["i-1"] = instance = Instance(
        job=job_of(
            run_pb2.Run(
                command=["python", "train.py", "output"],
                setup="echo setting up with $API_KEY > made; cat made",
                package=package_of(tmp_path, train=TRAINER),
                secrets=["API_KEY"],
                ranks_per_instance=2,
                grace_s=20,
                progress=run_pb2.ProgressReading(
                    source=run_pb2.PROGRESS_SOURCE_OUTPUT, pattern=r"tokens (?P<done>\S+)"
                ),
            )
        )
    )
    agent = agents("i-1", SPOTLINE_SECRET_API_KEY=SECRET)
    await control.order("i-1", allocation(1, "RUN", "i-1"))

    def work():
        return instance.of(api.ReportWorkRequest)

    await eventually(lambda: len(work()) >= 4 and work()[-1].rate_per_hour > 0)
    # What has not got so far ends at SIGTERM as any program does.
    await eventually(lambda: instance.text.count(" sent\n") == 2)
    await control.order("i-1", allocation(1, "STOP", "i-1"))
    (end,) = await eventually(lambda: ended(instance, 1))
    await control.order("i-1", allocation(1, "LEAVE"))

    assert await agent.ended() == 0
    assert end.exit_code == 75
    assert (agent.work_dir / "saved-0").exists()
    assert (agent.work_dir / "saved-1").exists()
    first, *_, last = work()
    assert first.restart_s > 0
    assert last.done > first.done >= 1_001_000
    assert last.step == 0
    text = instance.text
    assert "setting up with ***\n" in text
    assert "rank 0 of 2 at" in text
    assert "rank 1 of 2 at" in text
    assert text.count("key=*** sent\n") == 2
    assert "left over: []" in text
    assert SECRET not in text
    for kept in (agent.folder / "agent" / "output").iterdir():
        assert SECRET not in kept.read_text()
    assert {1} <= set(instance.heartbeats)


async def test_library_and_file_say_progress_notices_and_checkpoints(
    control, agents, trainer, tmp_path
):
    reading = run_pb2.ProgressReading(
        source=run_pb2.PROGRESS_SOURCE_FILE, pattern="train.tokens", path="metrics.jsonl"
    )
    sdk = control.instances["i-sdk"] = Instance(
        job=job_of(run_of(trainer, "sdk"), location=str(tmp_path / "store"))
    )
    file = control.instances["i-file"] = Instance(
        job=job_of(run_of(trainer, "file", progress=reading))
    )
    agent, other = agents("i-sdk"), agents("i-file")
    for name in ("i-sdk", "i-file"):
        await control.order(name, allocation(1, "RUN", name))

    await eventually(lambda: len(file.of(api.ReportWorkRequest)) >= 3)
    await eventually(lambda: sdk.of(api.ReportCheckpointRequest))
    notice = {"notice_id": "n-1", "kind": "interruption", "deadline_s": time.time() + 60}
    (agent.folder / "notice.json").write_text(json.dumps(notice))
    told = api.OpenNotice(
        notice_id="n-1", instance_ids=["i-sdk"], deadline_ns=10**18 + 3600 * 10**9
    )
    await control.order("i-sdk", allocation(1, "RUN", "i-sdk", notices=[told]))
    await eventually(lambda: len(sdk.of(api.AcknowledgeNoticeRequest)) == 2)
    (agent.folder / "notice.json").unlink()
    await control.order("i-sdk", allocation(1, "RUN", "i-sdk"))
    notices = agent.folder / "agent" / "run" / "notice.json"
    await eventually(lambda: json.loads(notices.read_text()) == [])
    for name in ("i-sdk", "i-file"):
        await control.order(name, allocation(1, "OVER"))

    assert (await agent.ended(), await other.ended()) == (0, 0)
    assert all(message.done % 10 == 0 for message in file.of(api.ReportWorkRequest))
    periodic, preemption = sdk.of(api.ReportCheckpointRequest)
    assert (periodic.step, periodic.done, periodic.size_bytes) == (5, 5000.0, 7)
    assert periodic.save_s == 30  # half a second, at 60 market seconds in one
    assert periodic.uri == f"{tmp_path}/store/{JOB}/checkpoints/00000001-0000000005"
    assert periodic.kind == training_pb2.CHECKPOINT_KIND_PERIODIC
    assert preemption.kind == training_pb2.CHECKPOINT_KIND_PREEMPTION
    assert [said.action for said in sdk.of(api.AcknowledgeNoticeRequest)] == [
        training_pb2.NOTICE_ACTION_FORWARDED,
        training_pb2.NOTICE_ACTION_SAVED,
    ]
    first, *_, last = sdk.of(api.ReportWorkRequest)
    assert (first.load_s, first.resumed_done, first.resumed_sha256) == (15, 500.0, "ee" * 32)
    assert first.restart_s > 0
    assert last.checkpointed == preemption.done
    assert last.step > 5
    (end,) = ended(sdk, 1)
    assert end.exit_code == -signal.SIGKILL


async def test_abort_and_a_killed_agent_leave_no_process_behind(control, agents, trainer, tmp_path):
    instance = control.instances["i-1"] = Instance(job=job_of(run_of(trainer, "deep")))
    shut = tmp_path / "shut"
    agent = agents("i-1", SPOTLINE_SHUTDOWN_COMMAND=f"touch {shut}")

    async def deep_child(generation: int) -> int:
        await control.order("i-1", allocation(generation, "RUN", "i-1"))
        file = agent.work_dir / f"child-{generation}.pid"
        await eventually(lambda: file.exists() and file.read_text())
        return int(file.read_text())

    first = await deep_child(1)
    await control.order("i-1", allocation(1, "ABORT", "i-1"))
    (end,) = await eventually(lambda: ended(instance, 1))
    assert end.exit_code == -signal.SIGKILL
    assert not alive(first)
    assert agent.process.poll() is None

    second = await deep_child(2)
    agent.process.kill()
    await eventually(lambda: not alive(second) and shut.exists())


async def test_reports_wait_for_a_control_plane_that_is_started_again(control, agents, trainer):
    instance = control.instances["i-1"] = Instance(job=job_of(run_of(trainer, "fail")))
    agent = agents("i-1")
    await control.order("i-1", allocation(1, "WAIT"))
    await eventually(lambda: instance.heartbeats)
    await control.order("i-1", allocation(1, "RUN", "i-1"))
    await eventually(lambda: instance.of(api.ReportRanksRequest))

    await control.stop()
    (agent.work_dir / "fail").touch()
    log = agent.folder / "agent.log"
    await eventually(lambda: "generation_ended" in log.read_text())
    assert not ended(instance, 1)
    await control.start()
    (end,) = await eventually(lambda: ended(instance, 1))
    await eventually(lambda: "rank 0 of 1" in instance.text)
    await control.order("i-1", allocation(1, "OVER"))

    assert await agent.ended() == 0
    assert end.exit_code == 1
    assert end.detail.endswith("it went wrong")
    # Twice told, where the answer was lost, it is the same news.
    assert len(instance.of(api.ReportRanksRequest)) == 2
    assert control.joins == 1


async def test_killed_control_plane_ends_the_lease_and_the_instance(
    certificates, trainer, tmp_path
):
    folder = tmp_path / "control"
    folder.mkdir()
    for name in ("ca", "chain", "key"):
        (folder / f"{name}.pem").write_bytes(getattr(certificates, name))
    job = json_format.MessageToDict(job_of(run_of(trainer, "output")))
    # Long enough that a machine which stops for a while does not end it.
    terms = {"lease_s": 8, "heartbeat_s": 0.2}
    (folder / "instance.json").write_text(
        json.dumps({"instance_id": "i-1", "job": job, "terms": terms})
    )
    serving = serve_apart(folder)
    shut = tmp_path / "shut"
    agent = None
    try:
        port = folder / "port"
        await eventually(lambda: port.exists() and port.read_text())
        agent = AgentProcess(
            tmp_path,
            "i-1",
            f"localhost:{port.read_text()}",
            certificates.ca,
            SPOTLINE_SHUTDOWN_COMMAND=f"touch {shut}",
        )
        order = json_format.MessageToJson(allocation(1, "RUN", "i-1"))
        whole(folder / "order.json", order)
        started = [[1, api.RANKS_STATE_STARTED]]
        ranks = folder / "ranks.json"
        await eventually(lambda: ranks.exists() and json.loads(ranks.read_text()) == started)
        output = agent.folder / "agent" / "output" / "1-0.log"
        await eventually(lambda: "tokens" in output.read_text())

        serving.kill()
        assert await agent.ended() == 4
    finally:
        serving.kill()
        serving.wait()
        if agent is not None:
            agent.close()

    assert "lease_over" in (agent.folder / "agent.log").read_text()
    assert (agent.work_dir / "saved-0").exists()
    assert shut.exists()


async def test_an_instance_with_a_wrong_environment_shuts_down(agents, tmp_path):
    agent = agents(
        "i-1", SPOTLINE_CONTROL="nowhere", SPOTLINE_SHUTDOWN_COMMAND=f"touch {tmp_path}/shut"
    )

    assert await agent.ended() == 2
    said = (agent.folder / "agent.log").read_text()
    assert said == "spotline: SPOTLINE_CONTROL: expected HOST:PORT, found 'nowhere'\n"
    assert (tmp_path / "shut").exists()


async def test_refused_token_and_terminated_agent(control, agents, trainer, tmp_path):
    instance = control.instances["i-1"] = Instance(job=job_of(run_of(trainer, "output")))
    refused = agents("i-2", SPOTLINE_SHUTDOWN_COMMAND=f"touch {tmp_path / 'shut'}")
    agent = agents("i-1")
    await control.order("i-1", allocation(1, "RUN", "i-1"))
    await eventually(lambda: "tokens" in instance.text)

    agent.process.send_signal(signal.SIGTERM)

    assert await agent.ended() == 0
    assert (agent.work_dir / "saved-0").exists()
    assert ended(instance, 1)[0].exit_code == 75
    assert await refused.ended() == 3
    assert (tmp_path / "shut").exists()
