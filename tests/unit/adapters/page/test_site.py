"""Pages over HTTP: who may see them, how one signs in, and what a form must be."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import pytest_asyncio

from spotline.adapters.page.pages import PAGES
from spotline.adapters.page.site import own_path
from spotline.application.identity.audit import DONE, Act
from spotline.contracts.access import PAGE_ACTIONS, Reach
from spotline.contracts.errors import AuditUnavailable
from spotline.domain.events.lifecycle import JobSubmitted
from tests.fakes.allocator import START_NS, job, market_opened, of_tenant, slot_opened
from tests.fakes.identities import CALLERS, OTHER, OWN, KnownTokens
from tests.fakes.page import csrf_of, running_site
from tests.fakes.web import EventReader

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_JOB = replace(of_tenant(job(), OWN), name="own-run")
RIVALS_JOB = replace(of_tenant(job(), OTHER), name="rivals-run")
EVENTS = (
    market_opened(),
    slot_opened(0),
    JobSubmitted(job=OWN_JOB, ts_event_ns=START_NS),
    JobSubmitted(job=RIVALS_JOB, ts_event_ns=START_NS),
)
STRICT = ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asking():
    """A server that asks who calls; nothing that a test does to it outlasts its browser."""
    async with running_site(authenticator=KnownTokens()) as running:
        running.feed(*EVENTS)
        yield running


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_every_page_has_its_row_of_the_same_reach(page):
    assert (PAGE_ACTIONS[f"GET {page.path}"].reach is Reach.WHOLE) is page.whole


# --- signing in -----------------------------------------------------------------------------------


async def test_who_has_not_signed_in_gets_the_form_in_the_place_of_a_page(asking):
    answer = await asking.browser().get("/jobs?phase=running")

    assert answer.status == 401
    said = answer.body.decode()
    assert 'name="next" value="/jobs?phase=running"' in said
    assert "own-run" not in said


async def test_a_session_shows_what_its_token_may_see_and_nothing_of_the_token(asking):
    browser = asking.browser()
    answer = await browser.sign_in("owner")
    shown = await browser.get("/jobs")
    everybodys = asking.browser()
    await everybodys.sign_in("operator")
    all_shown = await everybodys.get("/jobs")

    assert (answer.status, answer.headers["location"]) == (303, "/jobs")
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=strict" in kept
    assert "owner" not in kept
    assert shown.status == 200
    assert "own-run" in shown.body.decode()
    assert "rivals-run" not in shown.body.decode()
    assert "rivals-run" in all_shown.body.decode()


class HeardTrail:
    """Keeps what is written; cannot where it is `full`."""

    def __init__(self, *, full: bool = False) -> None:
        self.acts: list[Act] = []
        self._full = full

    async def write(self, act: Act) -> int:
        if self._full:
            raise AuditUnavailable("audit.jsonl: expected a file that can be written to")
        self.acts.append(act)
        return len(self.acts)


async def followed(running, path):
    """Follow a link as a browser does: its page, then the button on it."""
    browser, code = running.browser(), path.rpartition("=")[2]
    csrf = csrf_of(await browser.get(path))
    return browser, await browser.post("/sign-in", {"code": code, "csrf": csrf, "next": "/jobs"})


async def test_a_link_signs_in_once_and_that_is_audited():
    trail = HeardTrail()
    async with running_site(authenticator=KnownTokens(), trail=trail) as running:
        running.feed(*EVENTS)
        path = running.site.link("owner")
        # To look at it uses nothing up: a terminal or a mail reader may have done so.
        for _ in range(2):
            assert (await running.browser().get(path)).status == 200
        browser, signed_in = await followed(running, path)
        shown = await browser.get("/jobs")
        again = (await followed(running, path))[1]

    assert signed_in.status == 303
    assert "owner" not in path
    assert "own-run" in shown.body.decode()
    assert "rivals-run" not in shown.body.decode()
    assert again.status == 401
    assert "used before" in again.body.decode()
    assert [(act.action, act.subject, act.role, act.outcome) for act in trail.acts] == [
        ("POST /sign-in", CALLERS["owner"].subject, "owner", DONE)
    ]
    assert trail.acts[0].peer == "127.0.0.1"


async def test_a_link_whose_use_cannot_be_audited_signs_nobody_in():
    async with running_site(authenticator=KnownTokens(), trail=HeardTrail(full=True)) as running:
        browser, answer = await followed(running, running.site.link("owner"))

    assert answer.status == 503
    assert "the audit cannot be written" in answer.body.decode()
    assert not browser.cookie


async def test_over_tls_the_cookie_is_bound_to_host_and_tls():
    async with running_site(authenticator=KnownTokens(), secure=True) as running:
        answer = await running.browser().sign_in("owner")

    assert answer.headers["set-cookie"].startswith("__Host-spotline=")
    assert "; Secure" in answer.headers["set-cookie"]


async def test_a_token_that_is_revoked_ends_its_session_at_once():
    known = dict(CALLERS)
    async with running_site(authenticator=KnownTokens(known)) as running:
        browser = running.browser()
        await browser.sign_in("owner")
        before = await browser.get("/jobs")
        del known["owner"]
        after = await browser.get("/jobs")

    assert (before.status, after.status) == (200, 401)


async def test_a_bearer_token_shows_pages_too(asking):
    answer = await asking.browser().get("/jobs", Authorization="Bearer operator")

    assert answer.status == 200


async def test_signing_out_ends_the_session_for_every_copy_of_its_cookie(asking):
    browser = asking.browser()
    await browser.sign_in("owner")
    copied = browser.cookie
    csrf = csrf_of(await browser.get("/account"))
    answer = await browser.post("/sign-out", {"csrf": csrf})
    browser.cookie = copied
    after = await browser.get("/jobs")

    assert (answer.status, after.status) == (303, 401)


@pytest.mark.parametrize("token", ["", "unknown", "instance", "x" * 9_000, "tök"])
async def test_what_proves_nobody_who_may_look_opens_no_session(token):
    async with running_site(authenticator=KnownTokens()) as running:
        browser = running.browser()
        answer = await browser.sign_in(token)
        denied = sum(running.figures.denials.by_reason.values())

    assert answer.status in (401, 403)
    assert "set-cookie" not in answer.headers
    assert denied == 1


async def test_whoever_fails_too_often_waits():
    async with running_site(authenticator=KnownTokens()) as running:
        browser = running.browser()
        statuses = [(await browser.sign_in("wrong")).status for _ in range(11)]
        # Another try is refused also with a good token: nobody learns that it is one.
        right = (await browser.sign_in("owner")).status

    assert statuses == [401] * 10 + [429]
    assert right == 429


async def test_with_nobody_asked_all_is_shown():
    async with running_site() as running:
        running.feed(*EVENTS)
        answer = await running.browser().get("/jobs")
        account = await running.browser().get("/account")

    assert "rivals-run" in answer.body.decode()
    assert "asks nobody" in account.body.decode()


# --- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", None])
async def test_a_form_of_another_site_is_refused(site, asking):
    browser = asking.browser()
    csrf = csrf_of(await browser.get("/sign-in"))
    answer = await browser.post("/sign-in", {"token": "owner", "csrf": csrf}, site=site)

    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("own", 303),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:1", 403),
        ("https", 403),
    ],
)
async def test_where_a_browser_says_no_site_its_origin_counts(origin, status, asking):
    stated = {"own": "http://{}", "https": "https://{}"}.get(origin, origin)
    stated = stated.format(asking.web.address)
    browser = asking.browser()
    csrf = csrf_of(await browser.get("/sign-in"))
    fields = {"token": "owner", "csrf": csrf}
    answer = await browser.post("/sign-in", fields, site=None, Origin=stated)

    assert answer.status == status


async def test_a_form_of_another_session_is_refused(asking):
    one, other = asking.browser(), asking.browser()
    await one.sign_in("owner")
    await other.sign_in("owner")
    csrf = csrf_of(await other.get("/account"))
    refused = await one.post("/sign-out", {"csrf": csrf})
    missing = await one.post("/sign-out", {})
    still = await one.get("/jobs")

    assert (refused.status, missing.status, still.status) == (403, 403, 200)


@pytest.mark.parametrize("path", ["/jobs", "/v1/jobs", "/sign-in/", "/static/page.css", "/account"])
async def test_what_takes_no_form_refuses_every_post(path, asking):
    answer = await asking.browser().post(path, {"a": "b"})

    assert answer.status == 405


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_no_other_method_is_served_where_a_form_is_taken(method, asking):
    answer = await asyncio.to_thread(asking.web.ask, "/sign-in", method=method)

    assert answer.status == 405


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "application/json"}, b"{}", 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x--", 415),
        ({}, b"a=b", 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"a=" + b"b" * 65_536, 413),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"a=1&a=2", 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"a=%ff", 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"\xff", 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"nothing", 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"&".join([b"a=b"] * 99), 400),
    ],
)
async def test_what_is_no_form_within_bounds_is_refused(headers, body, status, asking):
    told = {"Sec-Fetch-Site": "same-origin", **headers}
    answer = await asyncio.to_thread(
        asking.web.ask, "/sign-in", method="POST", headers=told, body=body
    )

    assert answer.status == status


@pytest.mark.parametrize(
    ("stated", "onward"),
    [
        ("/jobs?at=3", "/jobs?at=3"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
        ("/a\r\nSet-Cookie: x=y", "/a%0D%0ASet-Cookie:%20x=y"),
    ],
)
async def test_one_goes_on_to_this_server_alone(stated, onward):
    assert own_path(stated) == onward


# --- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/jobs", "/sign-in", "/account", "/page/changes", "/none"])
async def test_every_answer_has_a_strict_policy(path, asking):
    browser = asking.browser()
    before = await browser.get(path)
    await browser.sign_in("operator")
    after = await browser.get(path) if path != "/page/changes" else before

    for answer in (before, after):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert all(part in policy for part in STRICT)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_files_are_kept_by_browsers_and_asked_about(asking):
    browser = asking.browser()
    own = await browser.get("/static/page.css")
    again = await browser.get("/static/page.css", If_None_Match=own.headers["etag"])
    vendored = await browser.get("/static/vendor/htmx-4.0.1.min.js")

    assert (own.status, again.status, again.body) == (200, 304, b"")
    assert own.headers["cache-control"] == "no-cache"
    assert "immutable" in vendored.headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/vendor/../../app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/..%5capp.py",
        "/static/",
        "/static/templates/base.html",
        "/templates/base.html",
    ],
)
async def test_nothing_but_the_pages_own_files_can_be_read(path, asking):
    answer = await asking.browser().get(path)

    assert answer.status in (404, 405)
    assert b"import" not in answer.body


# --- changes --------------------------------------------------------------------------------------


async def test_a_page_is_told_that_something_has_changed_and_not_what():
    async with running_site() as running:
        running.feed(market_opened())
        reader = await asyncio.to_thread(EventReader, running.web.port, "/page/changes")
        running.feed(slot_opened(0))
        told = await asyncio.to_thread(reader.next)
        reader.close()

    assert told == {"event": "change", "data": '{"seq": 2, "slot": 0}'}


async def test_a_tenants_page_is_told_nothing_of_another_tenants_changes():
    async with running_site(authenticator=KnownTokens()) as running:
        running.feed(*EVENTS[:2])
        header = {"Authorization": "Bearer owner"}
        reader = await asyncio.to_thread(EventReader, running.web.port, "/page/changes", header)
        running.feed(EVENTS[3], EVENTS[2])
        told = await asyncio.to_thread(reader.next)
        reader.close()

    # The fourth entry is its own; the third was the rival's.
    assert told["data"] == '{"seq": 4, "slot": 0}'


async def test_a_page_that_follows_ends_with_its_token():
    known = dict(CALLERS)
    async with running_site(authenticator=KnownTokens(known)) as running:
        header = {"Authorization": "Bearer owner"}
        reader = await asyncio.to_thread(EventReader, running.web.port, "/page/changes", header)
        del known["owner"]
        running.feed(*EVENTS[:2])
        told = await asyncio.to_thread(reader.next)
        reader.close()

    assert told["event"] == "end"
    assert "UNAUTHENTICATED" in told["data"]
