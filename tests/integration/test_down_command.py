"""`spotline up` and `spotline down` as their user starts them: what goes on costing, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spotline.adapters.market.parquet import write_market
from spotline.client import AsyncClient
from spotline.domain.market.generate import generate
from tests.eventually import PATIENCE_S
from tests.fakes.placer import START_NS

pytestmark = pytest.mark.integration

SPOTLINE = (sys.executable, "-c", "from spotline.cli.main import app; app()")
JOB = {
    "tenant": "research",
    # A minute and a half of work at two slots a second; a plan of weeks would take a minute itself.
    "work": {"amount": 160, "unit": "instance_hours"},
    "deadline": {"soft": "2026-01-06T00:00:00Z", "worthless_after": "2026-01-07T00:00:00Z"},
    "value_usd": 90000,
    "instances": {"min": 2, "max": 2},
    "throughput": {"*": {"alpha_per_hour": 1}},
}


def down(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPOTLINE, "down", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


async def eventually_known(spotline: AsyncClient) -> None:
    """Wait until there is a market to submit to."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while (await spotline.market()).clock is None:
        assert asyncio.get_running_loop().time() < deadline, "no market was opened"
        await asyncio.sleep(0.1)


async def started_up(folder: Path) -> asyncio.subprocess.Process:
    """Start `spotline up` on a market of the folder, on ports of its own."""
    market = generate("mixed", seed=11, slots=300, slot_s=1800, start_ns=START_NS)
    # The same in every slot: the job holds as much whenever it is that the system ends.
    market = replace(
        market,
        spot_available=np.full_like(market.spot_available, 16),
        spot_price_micro_usd=np.full_like(
            market.spot_price_micro_usd, market.spot_price_micro_usd.min()
        ),
    )
    write_market(market, folder / "market.parquet")
    free = "127.0.0.1:0"
    return await asyncio.create_subprocess_exec(
        *(*SPOTLINE, "up", "--market", "market.parquet", "--wait-for-work", "--json"),
        *("--slots-per-s", "2", "--address", free, "--configurator-address", free),
        *("--placer-address", free, "--analytics-address", free, "--agents-address", free),
        *("--http-address", free, "--store", "spotline-store"),
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_what_goes_on_costing_is_said_and_ended(tmp_path: Path) -> None:
    up = await started_up(tmp_path)
    assert up.stdout is not None
    assert up.stderr is not None
    try:
        async with asyncio.timeout(200):
            line = await up.stdout.readline()
            assert line, (await up.stderr.read()).decode()
            addresses = json.loads(line)
            async with AsyncClient(addresses["gRPC"]) as spotline:
                await eventually_known(spotline)
                job_id = (await spotline.submit(JOB)).job_id
                async for update in spotline.watch(job_id):
                    if update.status.cost_micro_usd:
                        break
        kept = await asyncio.to_thread(down, tmp_path, "--keep", "--store", "spotline-store")
        async with asyncio.timeout(60):
            _, said = await up.communicate()
    finally:
        if up.returncode is None:
            up.kill()
            await up.wait()
    released = await asyncio.to_thread(down, tmp_path, "--release")
    again = await asyncio.to_thread(down, tmp_path, "--keep")
    unsaid = await asyncio.to_thread(down, tmp_path)

    assert up.returncode == 0, said.decode()
    assert kept.returncode == 0, kept.stderr
    for text in (said.decode(), kept.stderr):
        assert "2 instances go on running, and costing:" in text
        assert job_id[:12] in text
        assert "spotline down --release --store spotline-store" in text
    assert released.returncode == 0, released.stderr
    assert released.stdout == "released 2 instances\n"
    assert "no instance goes on costing" in again.stderr
    assert unsaid.returncode == 2
    assert "expected --keep or --release, found neither" in unsaid.stderr
