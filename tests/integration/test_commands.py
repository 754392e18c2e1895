"""The commands as a user types them: demo, up, verify, and what they say when something is off."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from spotline.adapters.market.parquet import write_market
from spotline.bootstrap.running_process import RunningProcess
from spotline.domain.market.generate import generate
from tests.fakes.processes import ROOT

START_NS = 1_767_571_200_000_000_000
HANDLED = 'spotline_messages_handled_total{spotline_service="selector"}'
SPOTLINE = (sys.executable, "-c", "from spotline.cli.main import app; app()")


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPOTLINE_")}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **more}


def spotline(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPOTLINE, *words],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """A demo of four jobs on a short generated market, through broker, gRPC and cloud."""
    folder = tmp_path_factory.mktemp("demo")
    market = generate("mixed", seed=11, slots=72, slot_s=1800, start_ns=START_NS)
    write_market(market, folder / "market.parquet")
    done = spotline(
        *("demo", "--market", "market.parquet", "--jobs", "4", "--out", "run"),
        *("--json", "result.json", "--seed", "11"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "result.json").read_text())


def test_the_demo_completes_every_job_and_its_books_agree(
    small_demo: tuple[Path, dict[str, object]],
) -> None:
    folder, result = small_demo

    assert result["jobs"] == result["completed"] == 4
    assert result["missed_deadlines"] == 0
    assert result["ledger_usd"] == result["decided_usd"]
    assert float(str(result["mean_cost_usd"])) < float(str(result["on_demand_cost_usd"]))
    assert 0 < float(str(result["percent_of_clairvoyant"])) <= 100
    assert (folder / str(result["picture"])).read_bytes().startswith(b"\x89PNG")


def test_the_accounts_of_a_demo_agree_to_the_micro_dollar(
    small_demo: tuple[Path, dict[str, object]],
) -> None:
    folder, result = small_demo
    ledger = folder / "run" / "store" / "ledger.sqlite"

    done = spotline(
        *("simulate", "--log", str(result["log"]), "--reconcile", "--ledger", str(ledger)),
        *("--json", "-"),
        cwd=folder,
    )

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for name in said["recorded"].keys() - {"configured"}:
        assert said["recorded"][name] == result[name]
    # The same rules on the same market: what the log lacks is in the file beside it.
    for name in ("counted", "left_out", "by_itself", "reconciliation"):
        assert said[name] == result[name]
    accounts = {step["name"]: step["micro_usd"] for step in said["reconciliation"]}
    spent = accounts["spent by the decisions, all jobs"]
    assert spent == round(float(str(result["decided_usd"])) * 1e6)
    assert spent == accounts["sum of JobAdvanced"] == accounts["sum of CostAccrued"]
    assert spent == accounts["charges in the ledger"]
    bills = spent + accounts["copies of checkpoints, which are no instance's"]
    assert bills == accounts["bills of the ledger's instances"]
    (left_out,) = said["left_out"]
    assert left_out["reason"] == "its own reports say how fast it ran"
    counted = said["policies"]["recorded"]["mean_cost_usd"] * said["counted"]
    assert round(counted * 1e6) == accounts["cost of the jobs in the headline"]
    assert spent - accounts["jobs that the headline leaves out"] == round(counted * 1e6)


@pytest.mark.parametrize(
    # tests/replay has the short form: a smaller log.
    "hash_seed",
    [pytest.param(seed, marks=pytest.mark.slow) for seed in ("0", "1", "2")],
)
def test_the_demos_log_verifies_under_any_hash_seed(
    small_demo: tuple[Path, dict[str, object]], hash_seed: str
) -> None:
    folder, result = small_demo

    done = spotline("replay", "verify", str(result["log"]), cwd=folder, PYTHONHASHSEED=hash_seed)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # tests/replay has the short form: a smaller log, in this process
def test_an_altered_decision_is_found_and_named(
    small_demo: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    folder, result = small_demo
    log = folder / str(result["log"])
    altered = tmp_path / "altered"
    shutil.copytree(log, altered)
    lines = (log / "entries.jsonl").read_text().splitlines()
    # A line is an event, or a batch of them.
    at, entry, event = next(
        (at, entry, said["event"])
        for at, line in enumerate(lines)
        for entry in [json.loads(line)]
        for said in entry.get("events", [{**entry, "kind": entry["headers"].get("ce-type")}])
        if said["kind"] in ("decision", "spotline.v1.decision") and said["event"].get("lots")
    )
    lot = event["lots"][0]
    lot["spot"] = str(int(lot.get("spot", "0")) + 1)
    lines[at] = json.dumps(entry)
    (altered / "entries.jsonl").write_text("\n".join(lines) + "\n")

    done = spotline("replay", "verify", str(altered), cwd=tmp_path)

    assert done.returncode == 1
    assert str(entry["seq"]) in done.stdout + done.stderr


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


async def test_up_refuses_a_store_in_use_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    market = generate("mixed", seed=11, slots=30, slot_s=1800, start_ns=START_NS)
    write_market(market, tmp_path / "market.parquet")
    words = (
        *("up", "--market", "market.parquet", "--store", "store"),
        *("--address", "127.0.0.1:0", "--configurator-address", "127.0.0.1:0"),
        *("--placer-address", "127.0.0.1:0", "--agents-address", "127.0.0.1:0"),
        *("--analytics-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"),
    )
    first = await asyncio.create_subprocess_exec(
        *SPOTLINE,
        *words,
        cwd=tmp_path,
        env=environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    assert first.stderr is not None
    try:
        async with asyncio.timeout(90):
            # The last line of the opening: everything is there.
            said: dict[str, str] = {}
            while "log" not in said:
                line = (await first.stderr.readline()).decode()
                assert line, f"it has ended: {said}"
                name, value = line.removeprefix("ready:").split()[:2]
                said[name] = value.rstrip(",")
        # The selector counts a message when it has handled the first.
        async with asyncio.timeout(60):
            while HANDLED not in (metrics := await asyncio.to_thread(fetched, said["metrics"])):
                assert first.returncode is None
        second = await asyncio.to_thread(spotline, *words, cwd=tmp_path)
        # Nor does it lose the store to whom was refused: not its word, and not its ledger.
        running = RunningProcess.of(tmp_path / "store")
        assert first.returncode is None, (await first.stderr.read()).decode()
        first.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            code = await first.wait()
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()

    assert HANDLED in metrics
    assert int(said["agents"].removeprefix("127.0.0.1:")) > 0
    assert second.returncode == 2
    assert running is not None
    assert running.pid == first.pid
    assert f"process {first.pid}" in second.stderr
    assert code == 0
    manifest = json.loads((tmp_path / "store" / "log" / "manifest.json").read_text())
    assert manifest["status"] == "ended"


def test_up_asks_as_what_agents_are_to_reach_it(tmp_path: Path) -> None:
    market = generate("mixed", seed=11, slots=4, slot_s=1800, start_ns=START_NS)
    write_market(market, tmp_path / "market.parquet")
    words = (
        *("up", "--market", "market.parquet", "--store", "store"),
        *("--agents-address", "0.0.0.0:0", "--http-address", ""),
        *("--address", "127.0.0.1:0", "--configurator-address", "127.0.0.1:0"),
        *("--placer-address", "127.0.0.1:0", "--analytics-address", "127.0.0.1:0"),
    )

    done = spotline(*words, cwd=tmp_path)

    assert done.returncode == 2
    assert "state as which HOST:PORT instances reach it (--advertise" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_market_file_is_named(tmp_path: Path) -> None:
    done = spotline("up", "--market", "nowhere.parquet", cwd=tmp_path)

    assert done.returncode == 2
    assert "nowhere.parquet" in done.stderr
    assert "Traceback" not in done.stderr
