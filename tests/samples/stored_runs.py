"""Runs as v0.1.0 left them behind: a demo's log, and stores whose process was killed.

To make them again, in a checkout of the commit before any change of the house:

    git worktree add ../v0.1.0 a7d2f46 && cp tests/samples/stored_runs.py ../v0.1.0/tests/samples/
    cd ../v0.1.0 && PYTHONPATH=src:. python -m tests.samples.stored_runs OUT

writes into OUT, which is then `tests/data/v0.1.0`:

- `demo-log.tar.xz`: the event log of `spotline demo`, with a draft that a platform trains.
- `up-log.tar.xz`: the event log of `spotline up` with two jobs, a draft and two pipelines.
- `up-store-STEP.tar.xz`: the whole folder of such a run without pipelines, killed with SIGKILL
  after a step of the actuator: stream, ledger, cloud, log, and the files the command was given. A
  continued store must end with the bill of the run that was not killed, `up-bill.json`. (When a
  pipeline is placed within its slot is a matter of time, so two bills would differ.)
- `actuator-stores.tar.xz`: ledger and cloud of `story`, killed between any two steps of the
  actuator, one folder per point; `story-end.json` is the ledger of the story told to its end.

The actuator's parts are made in process; all else is done by public commands. Event ids, decisions
and money come out the same each time, the times at which the broker stored events do not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.actuator import Killed, Rig, lot, opened, quote

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "data" / "v0.1.0"
COMMAND = (sys.executable, "-c", "from spotline.cli.main import app; app()")

# --- the actuator alone ---------------------------------------------------------------------------


def rig_options() -> dict[str, Any]:
    """Refusals and interruptions by chance, and caps that bind."""
    from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
    from spotline.domain.ledger.caps import Caps

    return {
        "settings": SimulatedCloudSettings(
            seed=7, refusal_probability=0.1, interruption_per_instance_hour=0.2
        ),
        "caps": Caps(
            micro_usd_per_job=12_000_000, micro_usd_per_hour=25_000_000, launches_per_minute=20
        ),
    }


async def story(rig: Rig) -> None:
    """A few slots with launches, releases, refusals, losses, moves and caps in them."""
    targets = [
        [("a", lot(spot=3)), ("b", lot(spot=2, on_demand=1))],
        [("a", lot(on_demand=2)), ("b", lot(spot=4))],
        [],
        [("c", lot(spot=9)), ("b", lot())],
    ]
    for slot, (available, slot_targets) in enumerate(zip([6, 5, 2, 8], targets, strict=True)):
        last = slot == len(targets) - 1
        await rig.run_slot(opened(slot, quote(spot=available), last=last), slot_targets)


class Dying(Rig):
    """Is not started again when it is killed."""

    async def restart(self) -> None:
        raise Killed


async def write_actuator_stores(out: Path) -> None:
    """Tell the story to its end, and once for every point at which it can be killed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rig = Rig(folder / "end", **rig_options())
        await story(rig)
        points = rig.kill.passed
        (out / "story-end.json").write_text(readable(rig.ledger.comparable()), encoding="utf-8")
        rig.close()
        stores = folder / "stores"
        for point in range(points):
            rig = Dying(folder / "dying" / str(point), **rig_options())
            rig.kill.at = {point}
            try:
                await story(rig)
            except Killed:
                # As they lie there: closing would tidy them up.
                shutil.copytree(rig.directory, stores / f"{point:03}")
            rig.close()
        pack(stores, out / "actuator-stores.tar.xz")


# --- the whole system -----------------------------------------------------------------------------

SLOTS, SLOT_S, SEED = 24, 1800, 7
FILES = {
    "geography.yaml": """\
regions:
  - {id: neo, gpus: 16, energy_usd_per_kwh: 0.1, offering: "neocloud:neo-1:a100-1x", spot: true}
  - {id: east, gpus: 8, energy_usd_per_kwh: 0.3, offering: "cloud:east-1a:a100-1x"}
links:
  - {from: neo, to: east, gbit_per_s: 8, egress_usd_per_gb: 0.02}
""",
    "first.yaml": """\
name: first
tenant: research
request_id: first
work: {amount: 18, unit: instance_hours}
deadline: {hard: 2026-01-05T10:00:00+00:00}
value_usd: 200
instances: {allowed: [1, 2, 4]}
throughput: {"*": {alpha_per_hour: 0.9, beta_per_hour: 0.05}}
checkpoint: {interval_s: 1800, save_s: 30, size_gb: 40, location: "s3://checkpoints/first"}
topology: any
start_at: 2026-01-05T01:00:00+00:00
""",
    "second.yaml": """\
name: second
tenant: product
request_id: second
work: {amount: 12, unit: instance_hours}
deadline: {soft: 2026-01-05T07:00:00+00:00, worthless_after: 2026-01-05T10:00:00+00:00}
value_usd: 90
instances: {min: 1, max: 6}
throughput: {"*": {alpha_per_hour: 0.8}}
start_at: 2026-01-05T02:00:00+00:00
""",
    "draft.yaml": """\
name: draft
tenant: research
request_id: draft
model: granite-3.1-8b
tokens: 60_000_000
deadline: {hard: 2026-01-05T11:00:00+00:00}
value_usd: 150
start_at: 2026-01-05T01:30:00+00:00
""",
    "one.yaml": """\
tenant: research
request_id: one
model: gpt-13b
iterations: 400
microbatches: 64
compute_s: 5.5
activation_bytes: 83886080
min_gpus: 8
max_gpus: 12
""",
    "two.yaml": """\
tenant: research
request_id: two
model: gpt-13b
iterations: 600
microbatches: 32
compute_s: 5.5
activation_bytes: 83886080
min_gpus: 4
max_gpus: 8
""",
}
ADDRESSES = {
    "--address": "gRPC",
    "--configurator-address": "configurator",
    "--placer-address": "placer",
    "--analytics-address": "analytics",
}
# Written again at every start, and full of this machine's paths.
LEFT_OUT = {"nats-server.conf", "nats-server.log", "ports", "spotline-analytics-0-data"}
# Steps of the actuator, and which call of each is the last one before the process dies.
KILLS = (("write_intents", 4), ("terminate", 4), ("launch", 5))

# What the killed process runs: `up`, whose second slot opens when the file `go` is there.
_UP = """
import asyncio, functools, os, pathlib, signal, sys
import spotline.bootstrap.up as up
from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.ledger.sqlite import SqlLedger
from spotline.cli.main import app

async def gate(timer):
    while timer.timer_id != "slot:0" and not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)

step, count = sys.argv[1], int(sys.argv[2])
calls = 0

def passed():
    global calls
    calls += 1
    if calls == count:
        os.killpg(0, signal.SIGKILL)

def mortal(owner):
    before = getattr(owner, step)
    if asyncio.iscoroutinefunction(before):
        async def after(*arguments):
            answer = await before(*arguments)
            passed()
            return answer
    else:
        def after(*arguments):
            before(*arguments)
            passed()
    setattr(owner, step, after)

if step:
    mortal(SqlLedger if step in ("write_intents", "record") else SimulatedCloud)
up.running_system = functools.partial(up.running_system, gate=gate)
app(sys.argv[3:])
"""


def spotline(*words: str, cwd: Path) -> str:
    """Run a command to its end."""
    done = subprocess.run([*COMMAND, *words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def run_up(
    folder: Path, step: str = "", count: int = 0, pipelines: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the system in `folder`; without `step` until all is over, and return the ledger."""
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    spotline(
        *("market", "generate", "--preset", "mixed", "--seed", str(SEED), "--slots", str(SLOTS)),
        *("--slot", str(SLOT_S), "-o", "market.parquet"),
        cwd=folder,
    )
    words = ["up", "--market", "market.parquet", "--store", "store", "--json"]
    words += ["--geography", "geography.yaml", "--log-level", "warning"]
    for option in ADDRESSES:
        words += [option, "127.0.0.1:0"]
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", _UP, step, str(count), *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        at = json.loads(process.stdout.readline())
        for name in ("first", "second", "draft"):
            spotline("submit", f"{name}.yaml", "--address", at["gRPC"], cwd=folder)
        for name in pipelines:
            spotline("pipelines", "submit", f"{name}.yaml", "--address", at["placer"], cwd=folder)
        (folder / "go").touch()
        if step:
            process.wait(timeout=300)
            time.sleep(2)  # the broker goes after its owner
            return {}
        while not over(folder / "store" / "log" / "entries.jsonl"):
            time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    from spotline.adapters.ledger.sqlite import SqlLedger, ledger_url

    ledger = SqlLedger(ledger_url(folder / "store" / "ledger.sqlite"), "default")
    try:
        return ledger.comparable()
    finally:
        ledger.close()


def over(entries: Path) -> bool:
    """Whether the market's last slot has settled."""
    for line in entries.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)["event"] if line.endswith("}") else {}
        settled = '"spotline.v1.capacity.report"' in line and event.get("settled")
        if settled and int(event.get("slot", 0)) == SLOTS - 1:
            return True
    return False


def write_system_stores(out: Path) -> None:
    """Run the system to its end, and once for every kill."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_up(folder / "placed", pipelines=("one", "two"))
        pack(folder / "placed" / "store" / "log", out / "up-log.tar.xz")
        ledger = run_up(folder / "calm")
        (out / "up-bill.json").write_text(readable(ledger["charges"]), encoding="utf-8")
        for step, count in KILLS:
            killed = folder / step
            run_up(killed, step, count)
            (killed / "said.txt").unlink()
            (killed / "go").unlink()
            pack(killed, out / f"up-store-{step}.tar.xz")


def write_demo_log(out: Path) -> None:
    """Record the demo."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spotline("demo", "--jobs", "3", "--slots", "32", "--out", "run", cwd=folder)
        pack(folder / "run" / "log", out / "demo-log.tar.xz")


# --- files ----------------------------------------------------------------------------------------


def readable(value: Any) -> str:
    """JSON with sorted names."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def pack(folder: Path, archive: Path) -> None:
    """Put the files below `folder` into an archive: equal files, equal bytes."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o700 if member.isdir() else 0o600
        return member

    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for file in sorted(folder.rglob("*")):
            if not LEFT_OUT.intersection(file.relative_to(folder).parts):
                packed.add(file, file.relative_to(folder), recursive=False, filter=plain)


def unpack(archive: Path, folder: Path) -> None:
    """Take all files out of an archive that `pack` made."""
    with tarfile.open(archive, "r:xz") as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, filter="data")
        else:
            # Python before 3.11.4, as Debian 12 has it, does not know filters; the archives are our own.
            packed.extractall(folder)


def write_metadata(out: Path) -> None:
    """Say who made these files, from what, and what their bytes hash to."""
    metadata = {
        "generator": "python -m tests.samples.stored_runs OUT, at commit a7d2f46 (v0.1.0)",
        "seed": SEED,
        "sha256": {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(out.iterdir())
            if file.name != "metadata.json"
        },
    }
    (out / "metadata.json").write_text(readable(metadata), encoding="utf-8")


def main(words: Sequence[str]) -> None:
    """Make all, or the parts named after the folder."""
    out = Path(words[0]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(words[1:]) or {"actuator", "system", "demo"}
    if "actuator" in wanted:
        asyncio.run(write_actuator_stores(out))
    if "system" in wanted:
        write_system_stores(out)
    if "demo" in wanted:
        write_demo_log(out)
    write_metadata(out)


if __name__ == "__main__":
    main(sys.argv[1:])
