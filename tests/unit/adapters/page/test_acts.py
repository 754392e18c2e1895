"""Acts over HTTP: what follows is said first, it is done in the caller's own name, and once."""

from __future__ import annotations

import html as html_text
import re
from dataclasses import dataclass

import pytest
import pytest_asyncio

from spotline.adapters.page.acts_served import ACTS, ActPages, act_path
from spotline.adapters.page.job_text import job_of_text
from spotline.application.page.acts import ActRefused
from spotline.contracts.access import FORM_ACTIONS, GRPC_ACTIONS, PAGE_ACTIONS
from spotline.contracts.reasons import Reason
from tests.fakes.allocator import market_opened, slot_opened
from tests.fakes.heard_acts import HeardActs
from tests.fakes.identities import KnownTokens
from tests.fakes.page import Browser, RunningSite, csrf_of, running_site
from tests.fakes.web import Answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB_TEXT = """
name: a-run
work: {amount: 4, unit: instance_hours}
deadline: {hard: 2026-03-03T18:00:00+00:00}
instances: {allowed: [1, 2]}
throughput: {"*": {alpha_per_hour: 0.9}}
"""
EVENTS = (market_opened(), slot_opened(0), slot_opened(1))
SAVED = "checkpoint: {interval_s: 60, save_s: 1, size_gb: 1, location: here}\n"


@dataclass(slots=True)
class Acted:
    """A site on which people can act, and what was heard of them."""

    running: RunningSite
    acts: HeardActs

    async def signed_in(self, token: str) -> Browser:
        browser = self.running.browser()
        await browser.sign_in(token)
        return browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site():
    acts = HeardActs()

    def add(site):
        pages = ActPages(site, acts)
        site.add(pages.routes(), pages.paths())

    async with running_site(authenticator=KnownTokens(), acts=True, prepare=add) as running:
        yield Acted(running, acts)


@pytest.fixture(autouse=True)
def nothing_heard(site):
    site.acts.heard.clear()
    site.acts.refuses = None


def fields_of(answer: Answer) -> dict[str, str]:
    """What a confirmation carries on."""
    text = answer.body.decode()
    inputs = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text))
    areas = dict(re.findall(r'<textarea name="(\w+)" hidden>\n(.*?)</textarea>', text, re.DOTALL))
    return {name: html_text.unescape(value) for name, value in {**inputs, **areas}.items()}


async def asked(browser: Browser, path: str, **fields: str) -> Answer:
    csrf = csrf_of(await browser.get(path))
    return await browser.post(path, {"csrf": csrf, "step": "ask", **fields})


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
async def test_an_act_is_for_whom_its_method_is(act):
    method = {
        "submit": "JobService/Submit",
        "update": "JobService/UpdateJob",
        "cancel": "JobService/Cancel",
        "pause": "OperationsService/Pause",
        "resume": "OperationsService/Resume",
        "promote": "OperationsService/SetAccountMode",
        "limit": "OperationsService/SetLimit",
        "retry": "OperationsService/RetryParked",
        "drop": "OperationsService/DropParked",
        "reap": "OperationsService/ReapOrphans",
    }[act.name]
    row, own = GRPC_ACTIONS[f"/spotline.api.v1.{method}"], FORM_ACTIONS[f"POST {act_path(act)}"]

    assert (own.roles, own.reach, own.does) == (row.roles, row.reach, row.does)
    assert f"GET {act_path(act)}" in PAGE_ACTIONS


# --- an act ---------------------------------------------------------------------------------------


async def test_what_follows_is_said_before_anything_is_done(site):
    browser = await site.signed_in("operator")
    answer = await asked(browser, "/act/pause", scope="tenant", key="research", detail="why not")
    before = list(site.acts.heard)
    carried = fields_of(answer)
    done = await browser.post("/act/pause", {**carried, "step": "do"})

    assert "Nothing more is bought for tenant research" in answer.body.decode()
    assert before == []
    assert "Buying stops for tenant research" in done.body.decode()
    ((name, token, pause),) = site.acts.heard
    # In the caller's own name, by the id that his page drew.
    assert (name, token) == ("pause", "operator")
    assert (pause.key, pause.detail) == ("research", "why not")
    assert pause.request_id == carried["request_id"] != ""


LIMIT = {"what": "tenant", "key": "research", "span": "day", "most": "600", "reason": "month end"}


async def test_a_limit_is_raised_once_it_was_said_from_what_and_what_is_used(site):
    browser = await site.signed_in("operator")
    answer = await asked(browser, "/act/limit", **LIMIT)
    done = await browser.post("/act/limit", {**fields_of(answer), "step": "do"})

    said = answer.body.decode()
    assert "USD per day, tenant research: $400.00 becomes $600.00" in said
    assert "Used of it by now: $390.00" in said
    assert "in the next slot" in said
    ((name, token, wanted),) = site.acts.heard
    assert (name, token, wanted.most, wanted.span_s) == (
        "set_limit",
        "operator",
        600 * 10**6,
        86400,
    )
    assert "$400.00 became $600.00" in done.body.decode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"span": "no time"}, "span: expected hour, day or month"),
        ({"what": "job"}, "span: expected no time"),
        ({"key": ""}, "key: expected which tenant"),
        ({"what": "total"}, "key: expected nothing"),
        ({"most": "much"}, "most: expected an amount in USD"),
        ({"most": ""}, "most: expected something"),
        ({"what": "quota", "span": "no time", "most": "1.5"}, "a whole number of instances"),
        ({"reason": " "}, "reason: expected something"),
    ],
)
async def test_a_limit_that_is_none_is_told_with_its_field(site, changed, said):
    browser = await site.signed_in("operator")
    answer = await asked(browser, "/act/limit", **{**LIMIT, **changed})

    assert said in html_text.unescape(answer.body.decode())


async def test_a_limit_that_nobody_stated_cannot_be_raised(site):
    browser = await site.signed_in("operator")
    answer = await asked(browser, "/act/limit", **{**LIMIT, "span": "hour"})

    assert "A limit must be stated first" in answer.body.decode()
    assert 'value="do"' not in answer.body.decode()


async def test_the_same_form_twice_is_the_same_request(site):
    browser = await site.signed_in("operator")
    carried = fields_of(await asked(browser, "/act/pause", scope="system"))
    for _ in range(2):
        await browser.post("/act/pause", {**carried, "step": "do"})
    again = fields_of(await asked(browser, "/act/pause", scope="system"))

    assert len({pause.request_id for _, _, pause in site.acts.heard}) == 1
    assert again["request_id"] != carried["request_id"]


async def test_a_job_is_quoted_and_handed_in_as_it_was_pasted(site):
    browser = await site.signed_in("owner")
    answer = await asked(browser, "/act/submit", file=JOB_TEXT)
    done = await browser.post("/act/submit", {**fields_of(answer), "step": "do"})

    assert "a-run of tenant research is handed in" in answer.body.decode()
    planned, submitted = site.acts.heard
    assert (planned[0], submitted[0]) == ("plan", "submit")
    # The tenant is the token's.
    assert submitted[2] == planned[2].job
    assert submitted[2].tenant == "research"
    assert f"/jobs/{submitted[2].job_id}" in done.body.decode()


@pytest.mark.parametrize(
    ("token", "path"),
    [
        ("viewer", "/act/submit"),
        ("operator", "/act/submit"),
        ("owner", "/act/pause"),
        ("service", "/act/reap"),
        ("tenant-viewer", "/act/cancel"),
    ],
)
async def test_who_may_not_reads_which_role_would_and_does_nothing(site, token, path):
    browser = await site.signed_in(token)
    form = await browser.get(path)
    csrf = csrf_of(form)
    answer = await browser.post(path, {"csrf": csrf, "step": "do", "request_id": "r"})

    assert "This takes the role" in form.body.decode()
    assert '<button class="button main" disabled>' in form.body.decode()
    assert answer.status == 403
    assert site.acts.heard == []


@pytest.mark.parametrize("token", [None, "owner"])
async def test_nothing_is_done_without_a_session_or_its_form(site, token):
    browser = site.running.browser() if token is None else await site.signed_in(token)
    answers = [
        await browser.post("/act/submit", {"step": "do", "file": JOB_TEXT, "request_id": "r"}),
        await browser.post(
            "/act/submit", {"step": "do", "csrf": "0" * 64, "request_id": "r"}, site="cross-site"
        ),
    ]

    assert all(answer.status in (401, 403) for answer in answers)
    assert site.acts.heard == []


async def test_a_refusal_is_told_on_the_form_with_what_was_typed(site):
    site.acts.refuses = ActRefused(Reason.JOB_OVER, "the job is over", ("one", "two"))
    browser = await site.signed_in("operator")
    carried = fields_of(await asked(browser, "/act/pause", scope="job", key="<b>x</b>"))
    answer = await browser.post("/act/pause", {**carried, "step": "do"})

    said = answer.body.decode()
    assert answer.status == 409
    assert "the job is over" in said
    assert "<li>two</li>" in said
    assert "&lt;b&gt;x&lt;/b&gt;" in said
    assert "<b>x</b>" not in said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scope": "everything"}, "scope: expected one of system"),
        ({"scope": "tenant"}, "key: expected which tenant"),
        ({"scope": "system", "key": "x"}, "key: expected nothing"),
        ({"scope": "system", "detail": "x" * 501}, "detail: expected at most 500"),
        ({"scope": "system", "step": "now"}, "step: expected edit or ask or do"),
        ({"scope": "system", "step": "do"}, "request_id: expected something"),
    ],
)
async def test_what_is_wrong_in_a_form_is_named(site, fields, said):
    browser = await site.signed_in("operator")
    answer = await asked(browser, "/act/pause", **fields)

    assert answer.status == 400
    assert said in html_text.unescape(answer.body.decode())
    assert site.acts.heard == []


async def test_the_list_of_acts_says_what_each_takes(site):
    browser = await site.signed_in("viewer")
    said = (await browser.get("/act")).body.decode()

    assert all(act_path(act) in said for act in ACTS)
    assert said.count("This takes the role") == len(ACTS)


async def test_a_page_of_now_leads_to_acts_and_one_of_then_to_none(site):
    browser = await site.signed_in("owner")
    site.running.feed(*EVENTS)
    now, then = await browser.get("/jobs"), await browser.get("/jobs?at=0")

    assert 'href="/act/submit"' in now.body.decode()
    assert 'href="/act/submit"' not in then.body.decode()


# --- a job file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "line"),
        (f"{JOB_TEXT}run: {{command: [a], workdir: /etc}}\n{SAVED}", "run.workdir"),
        (f"{JOB_TEXT}run: {{command: [a]}}\n{SAVED}", "checkpoint.location"),
        ("work: 3", "things are wrong"),
        ("", "a mapping of fields"),
    ],
)
async def test_a_file_that_is_wrong_or_names_files_here_is_refused(text, said):
    with pytest.raises(ActRefused, match=said):
        job_of_text(text, "research", None)
