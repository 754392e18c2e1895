"""The page of a running system at a past slot is that of its recorded log at the same place."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.page.asked import PageAsked
from spotline.application.page.about import About
from spotline.bootstrap.web import about_log, serve_recorded
from tests.fakes.page import running_site
from tests.samples.page_logs import applied_of, every_member, write_page_log

SLOTS = (3, 9, 15)
PATHS = (
    *("/", "/jobs", "/jobs?phase=running", "/market", "/money", "/money?by=job"),
    *("/money/charges", "/policies"),
)
# What a recorded log is worked out by, and a running system is not, says so in its own note.
_WORKED_OUT = re.compile(r'<p class="note"[^>]*>P\(on time\).*?</p>')


@asynccontextmanager
async def recorded(log: Path) -> AsyncIterator[str]:
    """The address where a recorded log is served."""
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_recorded(log, address="127.0.0.1:0", told=bound.set_result))
    try:
        await asyncio.wait((serving, bound), return_when=asyncio.FIRST_COMPLETED)
        yield bound.result()
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


def view(address: str, path: str, slot: int) -> str:
    """What a page shows of a past slot."""
    asked = f"{path}{'&' if '?' in path else '?'}at={slot}"
    with urllib.request.urlopen(f"http://{address}{asked}", timeout=30) as answer:
        text = answer.read().decode()
    shown = re.search(r'<main id="view".*?</main>', text, re.DOTALL)
    assert shown is not None, text[:1000]
    return _WORKED_OUT.sub("", re.sub(r"\s+", " ", shown.group()))


async def test_a_past_slot_of_a_running_system_is_that_of_its_log(tmp_path):
    entries, log, differ = every_member(), tmp_path / "log", {}
    write_page_log(log, entries)
    settings = about_log(EventLogReader(log))

    async def about(asked: PageAsked) -> About:
        """The settings that the log was decided by: both are told the same."""
        return settings

    async with running_site(about=about) as running, recorded(log) as address:
        for told in applied_of(entries):
            running.site.apply(told)
        for path in PATHS:
            for slot in SLOTS:
                live = await asyncio.to_thread(view, running.web.address, path, slot)
                again = await asyncio.to_thread(view, address, path, slot)
                if live != again:
                    differ[path, slot] = (live, again)

    assert differ == {}
