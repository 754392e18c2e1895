"""Every page in a browser: it shows what it should, to everybody, in any light and width."""

import os
import re

import pytest

from spotline.application.board.messages import JobPhase
from spotline.application.page.trouble import TroubleKind
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.limits.freezes import FreezeReason
from tests.web.cases import (
    CASES,
    CUT,
    CUT_AT,
    ENDED,
    EVERY,
    INTERRUPTED_JOB,
    LEARNED,
    RECORDED,
    SHORT,
)
from tests.web.conftest import shot

SHORT_ONLY = bool(os.environ.get("SPOTLINE_WEB_SHORT"))
VISITED = [case for case in CASES if not SHORT_ONLY or case.name in SHORT]
full_only = pytest.mark.skipif(SHORT_ONLY, reason="only the main pages are asked for")
COMPILED_MS = 280_000
by_name = pytest.mark.parametrize("case", VISITED, ids=lambda case: case.name)

# The widest that a page may be beyond its window: a body that scrolls sideways is a page that breaks.
_SCROLLS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
_UNDRAWN = """() => [...document.querySelectorAll('figure.chart')]
    .filter((figure) => figure.querySelector('.plot') && !figure.querySelector('canvas'))
    .map((figure) => figure.id)"""


def violations(page):
    """What axe says against a page, a line each."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


@by_name
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_is_sound(served, visits, case, dark):
    page = visits.open(served(case.log) + case.path, dark=dark)
    text = page.inner_text("body")
    for words in case.says:
        assert words in text
    assert page.evaluate(_UNDRAWN) == []
    assert page.evaluate(_SCROLLS) <= 0
    shot(page, f"{case.name}-{'dark' if dark else 'light'}")
    assert violations(page) == []


@by_name
def test_page_fits_a_telephone(served, visits, case):
    page = visits.open(served(case.log) + case.path, width=390, height=844)
    assert page.evaluate(_SCROLLS) <= 0
    shot(page, f"{case.name}-390")


@full_only
@pytest.mark.parametrize("phase", JobPhase, ids=lambda phase: phase.value)
def test_every_phase_is_shown(served, visits, phase):
    log = ENDED if phase is JobPhase.MARKET_ENDED else EVERY
    page = visits.open(f"{served(log)}/jobs?phase={phase.value}")
    shown = page.locator("tbody .phase")
    assert shown.count() >= 1
    assert set(shown.all_inner_texts()) == {phase.value.replace("_", " ")}


@full_only
def test_everything_that_needs_a_look_is_shown(served, visits):
    page = visits.open(served(EVERY) + "/")
    kinds = {text.partition(" ")[2] for text in page.locator(".trouble").all_inner_texts()}
    assert kinds == {kind.value for kind in TroubleKind}
    text = page.inner_text(".red-list")
    for member in (*RefusalClass, *FreezeReason):
        assert member.value.replace("_", " ") in text


@full_only
@pytest.mark.parametrize("flag", ["at_risk", "stalled"])
def test_every_flag_is_shown(served, visits, flag):
    page = visits.open(f"{served(EVERY)}/jobs?flag={flag}")
    assert flag.replace("_", " ") in page.locator("tbody .flag").all_inner_texts()


@full_only
@pytest.mark.parametrize("path", ["/", "/jobs", "/system"])
def test_a_past_slot_is_the_log_that_ended_there(served, visits, path):
    past = visits.open(f"{served(EVERY)}{path}?at={CUT_AT}")
    ended = visits.open(served(CUT) + path)
    assert _view(past) == _view(ended)


def _view(page):
    """What a page shows, whichever place its links lead on from."""
    html = page.inner_html("#view")
    html = re.sub(r'<input type="hidden" name="at"[^>]*>', "", html)
    html = re.sub(r"<dl class=\"facts\">.*", "", html, flags=re.S)
    html = re.sub(r"(\?|&amp;)at=\d+(&amp;)?", r"\1", html)
    return re.sub(r"\?(?=\")", "", re.sub(r"\s+", " ", html))


@full_only
def test_the_same_place_gives_the_same_page_twice(served, visits):
    address = f"{served(EVERY)}/?at=7"
    assert visits.open(address).content() == visits.open(address).content()


@full_only
def test_a_recorded_run_is_verified_on_its_page(served, visits):
    page = visits.open(served(RECORDED) + "/replay")
    page.get_by_role("link", name="Verify this log").click()
    # Planners may have to be compiled first; the page looks again by itself.
    page.wait_for_selector("text=every recorded decision was made again", timeout=COMPILED_MS)
    assert page.locator("text=diverged at").count() == 0
    shot(page, "replay-verified")


@full_only
def test_a_what_if_stands_beside_what_was(served, visits):
    page = visits.open(served(RECORDED) + "/replay?run=what-if&rule=on_demand_only")
    page.wait_for_selector("text=As it was, and under on_demand_only", timeout=COMPILED_MS)
    assert page.locator("tr[id^=beside-]").count() == 20
    shot(page, "replay-what-if")


@full_only
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_job_whose_home_was_gone_stands_side_by_side(served, visits, dark):
    asked = "run=what-if&rule=on_demand_only&gone=aws:default:neo-1:a100-1x&gone_to=40"
    page = visits.open(f"{served(RECORDED)}/replay?{asked}&job={INTERRUPTED_JOB}", dark=dark)
    page.wait_for_selector("#drawn", timeout=COMPILED_MS)
    assert page.locator("#drawn svg.drawn").count() == 2
    assert page.locator("#drawn canvas").count() == 2
    assert page.locator("#chart-fleet-cost canvas").count() == 1
    assert "gone to slot 40" in page.inner_text("#view")
    assert page.evaluate(_SCROLLS) <= 0
    shot(page, f"replay-side-by-side-{'dark' if dark else 'light'}")
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(_SCROLLS) <= 0
    shot(page, "replay-side-by-side-390")


@full_only
def test_simple_rules_are_lines_on_money(served, visits):
    page = visits.open(served(RECORDED) + "/money")
    page.wait_for_selector("#rules-msu", timeout=COMPILED_MS)
    assert page.locator("#chart-rules canvas").count() == 1
    assert page.locator("#chart-rules th[scope=col]", has_text="Uniform Progress").count() == 1
    shot(page, "money-rules")
    assert violations(page) == []


@full_only
def test_jobs_are_held_against_the_certified_bound(served, visits):
    page = visits.open(served(LEARNED) + "/policies")
    page.wait_for_selector("#how-far", timeout=COMPILED_MS)
    assert "does not know the future" in page.inner_text("#how-far")
    shot(page, "policies-bound")
    assert violations(page) == []
    page.locator("tr[id^=bound-] a").first.click()
    page.wait_for_selector("#rule-certified", timeout=COMPILED_MS)
    assert "certified bound" in page.inner_text("#how-far")
    shot(page, "job-bound")


@full_only
def test_what_cannot_be_worked_out_says_so_and_how_to_ask_again(served, visits):
    page = visits.open("about:blank")
    page.route("**/policies/bound*", lambda route: route.abort())
    page.goto(served(LEARNED) + "/policies")
    page.wait_for_selector("text=could not be worked out")
    assert page.get_by_role("link", name="Ask for it by itself").count() == 1
    # The browser complains of the answer that was held back, and of nothing else.
    held_back = ("htmx: htmx:error: Failed to fetch", "Failed to load", "failed: http")
    assert all(said.startswith(held_back) for said in visits.complaints)
    visits.complaints.clear()


@full_only
def test_the_chance_of_listed_jobs_is_filled_in(served, visits):
    page = visits.open(served(RECORDED) + "/jobs?at=46")
    page.wait_for_selector("text=worked out from the log, job by job", timeout=COMPILED_MS)
    shown = page.locator("tbody span[id^=p-]").all_inner_texts()
    assert sum("%" in text for text in shown) == 5
    assert page.locator("[hx-get*=expected]").count() == 0


@full_only
def test_what_came_lies_over_the_fan_of_what_was_expected(served, visits):
    page = visits.open(f"{served(RECORDED)}/jobs/{INTERRUPTED_JOB}")
    page.wait_for_selector("#expected-as-it-began", timeout=COMPILED_MS)
    names = page.locator("#chart-progress th").all_inner_texts()
    assert "expected as it began, 1 in 10 has less" in names
    assert page.locator("#chart-progress canvas").count() == 1
    shot(page, "job-fan")


@full_only
def test_keys_and_tabs_reach_everything(served, visits):
    page = visits.open(served(EVERY) + "/jobs")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    wanted = page.evaluate(_FOCUSABLE)
    reached = set()
    page.evaluate("() => document.activeElement.blur()")
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(_FOCUSED))
    assert set(wanted) <= reached
    page.keyboard.press("[")
    page.wait_for_url(re.compile(r"at=\d+"))
    page.keyboard.press("g")
    page.keyboard.press("1")
    page.wait_for_url(re.compile(r"/\?at=\d+$"))


_NAMES = """window.nameOf ??= (element) => {
  const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')];
  return all.indexOf(element);
};"""
_FOCUSABLE = f"""() => {{ {_NAMES}
  return [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')]
    .filter((element) => element.checkVisibility()).map(nameOf); }}"""
_FOCUSED = f"() => {{ {_NAMES} return nameOf(document.activeElement); }}"
