"""The page of a running system at a past slot is that of its log at the same place."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.bootstrap.system import FREE_ADDRESS
from spotline.bootstrap.web import serve_recorded
from tests.fakes.whole_system import JOBS, log_in, options, until_slot
from tests.samples.page_logs import write_page_log

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SLOTS, LAST = (0, 1, 2), 3
PATHS = ("/", "/jobs", "/market", "/money", "/money/charges", "/policies")


@asynccontextmanager
async def recorded(log: Path) -> AsyncIterator[str]:
    """The address where a recorded log is served."""
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_recorded(log, address=FREE_ADDRESS, told=bound.set_result))
    try:
        await asyncio.wait((serving, bound), return_when=asyncio.FIRST_COMPLETED)
        yield bound.result()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def views(address: str) -> dict[str, str]:
    """What pages show at past slots, by path."""

    def view(path: str) -> str:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            text = answer.read().decode()
        shown = re.search(r'<main id="view".*?</main>', text, re.DOTALL)
        assert shown is not None, text[:2000]
        return re.sub(r"\s+", " ", shown.group())

    paths = [f"{path}?at={slot}" for path in PATHS for slot in SLOTS]
    paths += [f"/jobs/{job.job_id}/decisions/{slot}?at={slot}" for job in JOBS for slot in SLOTS]
    return {path: await asyncio.to_thread(view, path) for path in paths}


async def test_a_past_slot_of_a_running_system_is_that_of_its_log(tmp_path):
    store, log = tmp_path / "store", tmp_path / "log"
    given = replace(options(store), http_address=FREE_ADDRESS)
    async with until_slot(store, LAST, JOBS, given=given) as system:
        live = await views(system.http_address)
    write_page_log(log, await log_in(store))
    async with recorded(log) as address:
        again = await views(address)

    assert JOBS[0].job_id[:8] in live[f"/jobs?at={SLOTS[-1]}"]
    assert live == again
