"""What each role sees and may do, in a browser that has signed in."""

import asyncio
import os
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spotline.adapters.page.acts_served import ActPages
from spotline.domain.events.lifecycle import JobSubmitted
from tests.eventually import PATIENCE_S
from tests.fakes.allocator import START_NS, job, market_opened, of_tenant, slot_opened
from tests.fakes.heard_acts import HeardActs
from tests.fakes.identities import OTHER, OWN, KnownTokens
from tests.fakes.page import running_site
from tests.web.conftest import shot
from tests.web.test_pages import violations

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("SPOTLINE_WEB_SHORT")), reason="only the main pages are asked for"
)

OWN_JOB = replace(of_tenant(job(), OWN), name="own-run")
RIVALS_JOB = replace(of_tenant(job(), OTHER), name="rivals-run")
JOB_TEXT = """name: a-run
work: {amount: 4, unit: instance_hours}
deadline: {hard: 2026-03-03T18:00:00+00:00}
instances: {allowed: [1, 2]}
throughput: {"*": {alpha_per_hour: 0.9}}
"""
EVERYBODYS = ["Now", "Jobs", "Market", "Money"]
WHOLE = [*EVERYBODYS, "Policies", "Replay", "System"]


@asynccontextmanager
async def acted_site(acts):
    def can_act(site):
        pages = ActPages(site, acts)
        site.add(pages.routes(), pages.paths())

    async with running_site(authenticator=KnownTokens(), prepare=can_act, acts=True) as running:
        running.feed(
            market_opened(),
            slot_opened(0),
            JobSubmitted(job=OWN_JOB, ts_event_ns=START_NS),
            JobSubmitted(job=RIVALS_JOB, ts_event_ns=START_NS),
        )
        yield running


@pytest.fixture(scope="module")
def site():
    """The address of a site that asks who is there, and what was asked for by it."""
    acts, told, loop = HeardActs(), threading.Event(), asyncio.new_event_loop()
    over, found = asyncio.Event(), []

    async def serve():
        async with acted_site(acts) as running:
            found.append(f"http://{running.web.address}")
            told.set()
            await over.wait()

    def run():
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            told.set()
            loop.close()

    thread = threading.Thread(target=run, name="site")
    thread.start()
    assert told.wait(PATIENCE_S)
    assert found
    yield found[0], acts
    loop.call_soon_threadsafe(over.set)
    thread.join(PATIENCE_S)


def signed_in(visits, site, token, path="/jobs"):
    """A page that this token leads to, by way of the form."""
    page = visits.open(site[0] + path)
    page.fill("input[name=token]", token)
    page.click("main form button")
    page.wait_for_load_state("load")
    return page


def destinations(page):
    return page.locator(".top nav a").all_inner_texts()


@pytest.mark.parametrize(
    ("token", "sees", "leads"),
    [
        ("owner", {"own-run"}, EVERYBODYS),
        ("rival", {"rivals-run"}, EVERYBODYS),
        ("tenant-viewer", {"own-run"}, EVERYBODYS),
        ("viewer", {"own-run", "rivals-run"}, WHOLE),
        ("operator", {"own-run", "rivals-run"}, WHOLE),
        ("service", {"own-run", "rivals-run"}, WHOLE),
    ],
)
def test_each_sees_his_own_and_what_he_may(visits, site, token, sees, leads):
    page = signed_in(visits, site, token)

    assert set(page.locator("main tbody th a").all_inner_texts()) == sees
    assert destinations(page) == leads
    assert violations(page) == []


def test_what_is_of_all_together_is_refused_to_a_tenant_with_the_reason(visits, site):
    page = signed_in(visits, site, "owner")
    page.goto(site[0] + "/system")

    assert "Forbidden" in page.inner_text("h1")
    assert violations(page) == []


def test_a_token_that_is_none_lets_nobody_in_and_says_so(visits, site):
    page = signed_in(visits, site, "stolen")

    assert "the token is unknown" in page.inner_text("main")
    assert page.locator("input[name=token]").count() == 1
    assert violations(page) == []


def test_an_owner_hands_in_a_job_after_he_has_read_its_quote(visits, site):
    address, acts = site
    page = signed_in(visits, site, "owner", "/act/submit")
    page.fill("textarea", JOB_TEXT)
    page.click("main form button")
    page.wait_for_load_state("load")
    assert "is handed in, and bought for from the next slot on" in page.inner_text("main")
    assert [heard[:2] for heard in acts.heard] == [("plan", "owner")]
    shot(page, "act-submit-quote")
    assert violations(page) == []

    page.click("main form button.main, main form button:not(.plain)")
    page.wait_for_load_state("load")
    assert ("submit", "owner") in [heard[:2] for heard in acts.heard]
    assert page.url.startswith(address)


@pytest.mark.parametrize(
    ("token", "may"), [("operator", True), ("viewer", False), ("owner", False)]
)
def test_only_an_operator_stops_buying_and_others_read_who_would(visits, site, token, may):
    page = signed_in(visits, site, token, "/act/pause")
    words = page.inner_text("main")

    assert ("takes the role operator" in words) is not may
    assert page.locator("main form button:enabled").count() == int(may)
    assert violations(page) == []


def test_who_signs_out_is_asked_again(visits, site):
    page = signed_in(visits, site, "viewer", "/account")
    page.click("main form button")
    page.wait_for_load_state("load")
    page.goto(site[0] + "/jobs")

    assert page.locator("input[name=token]").count() == 1
