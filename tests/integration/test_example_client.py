"""The client in docs/examples against a running system, as somebody would start it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.identity import IdentityAt
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.domain.market.generate import generate
from tests.eventually import eventually
from tests.fakes.placer import START_NS

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "client.py"
MARKET = generate("mixed", seed=3, slots=400, slot_s=1800, start_ns=START_NS)


async def ran(address: str, example: Path, *shown: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(example),
        address,
        *map(str, shown),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_it_submits_changes_follows_withdraws_and_explains_a_refusal(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    text = EXAMPLE.read_text()
    wrong.write_text(
        text.replace('"instance_hours"', '"parsecs"').replace('tenant="research", ', "")
    )
    options = SystemOptions(
        market=MARKET,
        store=tmp_path / "store",
        identity=IdentityAt(store=tmp_path / "store"),
        # Slow enough that the job is not over before it is changed and followed.
        ingest=IngestOptions(wait_for_work=True, slot_interval_s=2.0),
        selector=SelectorOptions(rehearsals=2),
    )

    async with running_system(options) as system:
        probes = system.probes
        await eventually(lambda: "market_ingest" in probes.hosts)
        await eventually(lambda: probes.hosts["market_ingest"].state.slot >= 0, timeout_s=60)
        keys = tmp_path / "store" / "identity"
        shown = (keys / "ca.pem", keys / "tokens" / "owner.key")
        code, said = await ran(system.allocator_address, EXAMPLE, *shown)
        bad_code, bad = await ran(system.allocator_address, wrong, *shown)
        clear_code, clear = await ran(system.allocator_address, EXAMPLE)

    lines = said.splitlines()
    assert code == 0, said
    assert any(line.startswith("plan: ") for line in lines)
    assert "decision JOB_STATE_RUNNING" in said
    assert lines[-1].endswith("job.closed JOB_STATE_CANCELLED")
    assert (clear_code, clear.split()[0]) == (1, "UNAVAILABLE"), clear
    assert bad_code == 1
    assert bad.startswith("INVALID_ARGUMENT")
    assert "field: job.tenant must not be empty" in bad
    assert "field: job.work.unit must be one of" in bad
