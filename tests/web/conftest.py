"""A browser, and servers of recorded logs for it.

Chromium is the machine's own; `CHROMIUM` names another one. Nothing is fetched: every address but
that of the server is refused.
"""

import asyncio
import lzma
import os
import shutil
import threading
from pathlib import Path

import pytest

from spotline.bootstrap.web import serve_recorded
from tests.eventually import PATIENCE_S
from tests.fakes.recorded_run import small_run, write_log
from tests.samples.page_logs import (
    empty_market,
    ended_market,
    every_member,
    large,
    until_slot,
    write_page_log,
)
from tests.web.cases import CUT, CUT_AT, EMPTY, ENDED, EVERY, LEARNED, RECORDED

SHOTS = Path(__file__).parent / "shots"
RUN = Path(__file__).parent.parent / "data" / "page" / "rehearsed-aws"


def _made(entries):
    return lambda directory: write_page_log(directory, entries())


def _cut():
    return list(until_slot(every_member(), CUT_AT))


def _learned(directory):
    write_log(directory, small_run())
    return directory


def _recorded(directory):
    directory.mkdir()
    shutil.copy(RUN / "manifest.json", directory)
    for packed in RUN.glob("*.xz"):
        (directory / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return directory


LOGS = {
    EVERY: _made(every_member),
    ENDED: _made(ended_market),
    EMPTY: _made(empty_market),
    CUT: _made(_cut),
    "large": _made(large),
    RECORDED: _recorded,
    LEARNED: _learned,
}

_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def chromium():
    """The browser's path, None where there is none."""
    named = os.environ.get("CHROMIUM", "")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.web)


class Served:
    """A server of a recorded log, in a thread of its own."""

    def __init__(self, log):
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._bound = threading.Event()
        self._log = log
        self._thread = threading.Thread(target=self._run, name=f"serve {log.name}")
        self._thread.start()
        # A large log is folded first.
        if not self._bound.wait(8 * PATIENCE_S):
            raise TimeoutError(f"{log} was not served")

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(
            serve_recorded(self._log, address="127.0.0.1:0", told=self._tell)
        )
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._bound.set()
            self._loop.close()

    def _tell(self, bound):
        self.address = f"http://{bound}"
        self._bound.set()

    def close(self):
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE_S)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The address of a log's server by the log's name."""
    running = {}

    def address_of(name):
        if name not in running:
            directory = tmp_path_factory.mktemp("logs") / str(len(running))
            running[name] = Served(LOGS[name](directory))
        return running[name].address

    yield address_of
    for server in running.values():
        server.close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all tests."""
    path = chromium()
    if path is None:
        pytest.fail("Chromium is needed: `make test-web` says how to get it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield launched
        launched.close()


class Visits:
    """Opens pages, and notes all that the browser complains of."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []
        self.complaints = []

    def open(self, address, *, dark=False, width=1280, height=900):
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", self._note_failure)
        page.goto(address, wait_until="load")
        return page

    def _note(self, message):
        # A page that refuses answers 4xx, which the browser tells as an error.
        if message.type in ("error", "warning") and "status of 4" not in message.text:
            self.complaints.append(message.text)

    def _note_failure(self, request):
        # What was still under way when another page was opened is not wanted any more.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def close(self):
        for context in self._contexts:
            context.close()


@pytest.fixture
def visits(browser):
    """Pages of one test; there must be no complaint at its end."""
    opened = Visits(browser)
    yield opened
    opened.close()
    assert opened.complaints == []


def shot(page, name):
    """Keep a picture of the whole page, to be looked at."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
