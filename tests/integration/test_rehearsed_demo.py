"""The main job on a rehearsal of AWS where calls fail: nothing is left, and the bill is ours.

Slow: a rehearsal's slots take seconds of wall time each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.market.parquet import write_market
from spotline.bootstrap.system import LEDGER_OWNER
from spotline.demo.rehearsed.process import credentials_of, rehearsed_aws
from spotline.demo.rehearsed.run import Rehearsing, run_rehearsed
from spotline.demo.setup import demo_market
from spotline.demo.submission import submit_until_taken
from spotline.replay.jobs import generated_jobs

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEED, FAIL = 7, 0.10
SLOT_WALL_S = 4.0


def small(slots: int):
    return demo_market(None, seed=SEED, slot_s=0, most_slots=slots)


@pytest.mark.parametrize("plan_instances", [0, 3])
async def test_what_is_settled_is_what_the_rehearsal_bills(
    tmp_path: Path, plan_instances: int
) -> None:
    market = small(24)

    ended = await run_rehearsed(
        Rehearsing(
            market=market,
            jobs=generated_jobs(market, 3, SEED),
            folder=tmp_path,
            run_id="test",
            seed=SEED,
            fail=FAIL,
            slot_wall_s=SLOT_WALL_S,
            plan_instances=plan_instances,
        )
    )

    assert ended.cloud_billed_micro_usd > 0
    assert ended.settled_micro_usd == ended.cloud_billed_micro_usd
    assert 0 < ended.disk_micro_usd < ended.settled_micro_usd
    assert (ended.orphans, ended.unsettled) == ((), ())
    assert ended.calls["failed"]


# --- killed -----------------------------------------------------------------------------------

UP = "from spotline.cli.main import app; app()"
KILLED_AFTER_S = (9.0, 4.0, 2.0)
GIVE_UP_S = 420.0


@asynccontextmanager
async def up(config: Path, store: Path):
    """`spotline up` as a process of its own, killed at the end of the block as by a power cut."""
    ports = ("agents-address", "configurator-address", "placer-address", "analytics-address")
    with (store.parent / "up.stderr").open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", UP, "up", "--json", "--no-identity", f"--config={config}"),
            *(f"--store={store}", "--address=127.0.0.1:0", "--http-address="),
            *(f"--{name}=127.0.0.1:0" for name in ports),
            *("--reap=reap", "--reap-accounts=*", "--compare-every=1"),
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = b"{}"
        while b"gRPC" not in line:
            line = await asyncio.wait_for(process.stdout.readline(), 90)
            assert line, (store.parent / "up.stderr").read_text()[-2000:]
        yield json.loads(line)["gRPC"]
    finally:
        # Its broker with it: nobody says goodbye.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def settled_in(store: Path) -> dict[str, int]:
    ledger = SqlLedger.looked_at(ledger_url(store / "ledger.sqlite"), LEDGER_OWNER)
    try:
        return {bill.instance_id: bill.settled.micro_usd for bill in ledger.bills() if bill.settled}
    finally:
        ledger.close()


async def test_killed_at_any_time_nothing_is_bought_twice_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    market = small(24)
    jobs = generated_jobs(market, 3, SEED)
    file, store = tmp_path / "market.parquet", tmp_path / "store"
    write_market(market, file)
    speed = market.slot_s / SLOT_WALL_S
    async with rehearsed_aws(
        file, tmp_path / "rehearsal", fail=FAIL, seed=SEED, speed=speed
    ) as cloud:
        with credentials_of(cloud):
            async with up(cloud.config, store) as address, JobClient(address) as client:
                for job in jobs:
                    await submit_until_taken(client, job)
                while not (await cloud.bill())["lines"]:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.2)
            for after_s in KILLED_AFTER_S:
                async with up(cloud.config, store):
                    await asyncio.sleep(after_s)
            async with up(cloud.config, store):
                settled, lines = await until_settled(cloud, store, market)

    assert {line["instance_id"]: line["micro_usd"] for line in lines} == {
        one: settled[one] for one in settled.keys() & {line["instance_id"] for line in lines}
    }
    # What never ran is settled at nothing, and is not billed.
    assert sum(settled.values()) == sum(line["micro_usd"] for line in lines)


async def until_settled(cloud, store, market):
    """Wait until no job is left to hold anything, and all is settled."""
    give_up_s = time.monotonic() + GIVE_UP_S
    over_ns = market.start_ns + (market.slots + 2) * market.slot_s * 10**9
    while time.monotonic() < give_up_s:
        await asyncio.sleep(1.0)
        bill, now_ns = await cloud.bill(), (await cloud.state())["now_ns"]
        lines = [line for line in bill["lines"] if not line["foreign"]]
        settled = await asyncio.to_thread(settled_in, store)
        ended = not any(line["open"] for line in lines)
        if now_ns > over_ns and ended and settled.keys() >= {one["instance_id"] for one in lines}:
            return settled, lines
    raise AssertionError(f"not settled: {lines}")
