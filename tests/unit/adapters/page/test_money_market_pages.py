"""The pages of market, money and policies as they are sent: whose they are, and what they say."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from spotline.application.page.about import About
from spotline.application.read_model.ports import ViewRefused
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.offering import UNKNOWN_COUNT, CapacityType
from tests.fakes.allocator import EAST, forecast_issued, job, slot_opened
from tests.fakes.paged import PageStory, of_tenant, page_text, paid_story

PATHS = ("/market", "/money", "/money/charges", "/policies")


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_state_says_what_to_do_next(path: str) -> None:
    text = page_text(PageStory().state, path)

    assert 'class="empty"' in text
    assert 'class="next"' in text


@pytest.mark.parametrize("path", PATHS)
def test_the_same_place_of_the_log_gives_the_same_page(path: str) -> None:
    assert page_text(paid_story().state, path) == page_text(paid_story().state, path)


@pytest.mark.parametrize("path", PATHS)
def test_no_page_has_style_or_script_of_its_own(path: str) -> None:
    text = page_text(paid_story().state, path)

    assert " style=" not in text
    assert "onclick" not in text
    assert "<script>" not in text


def test_a_tenant_sees_its_own_money_alone() -> None:
    state = paid_story().other(job("r2", tenant="rival")).charged(6).state

    own = page_text(state, "/money", {"by": "tenant"}, caller=of_tenant("research"))
    assert "research" in own
    assert "rival" not in own
    assert "rival" in page_text(state, "/money", {"by": "tenant"})


def test_a_tenant_cannot_ask_for_the_charges_of_another() -> None:
    story = paid_story().other(job("r2", tenant="rival")).charged(6)

    for path in ("/money/charges", "/money/charges.csv"):
        asked = {"tenant": "rival"}
        assert story.job.job_id in page_text(story.state, path, asked)
        own = page_text(story.state, path, asked, caller=of_tenant("research"))
        assert story.job.job_id not in own


def test_a_charge_links_to_the_decision_that_spent_it() -> None:
    story = paid_story()

    text = page_text(story.state, "/money/charges")
    assert f'href="/jobs/{story.job.job_id}/decisions/0"' in text
    assert "no decision" not in text


def test_charges_without_a_decision_are_shown_as_such() -> None:
    state = paid_story().charged(1, kind=CapacityType.ON_DEMAND).state

    assert "No decision stands behind 1 charges" in page_text(state, "/money")
    text = page_text(state, "/money/charges", {"unexplained": "yes"})
    assert "1 charges, $1.67" in text


def test_the_file_of_charges_has_whole_micro_dollars_and_no_formulas() -> None:
    story = PageStory(job(tenant="=cmd()")).submitted().opened(0).charged(2)

    rows = list(csv.DictReader(io.StringIO(page_text(story.state, "/money/charges.csv"))))
    assert [row["cost_micro_usd"] for row in rows] == ["1000000"]
    assert rows[0]["tenant"] == "'=cmd()"
    assert rows[0]["decision_slot"] == ""


def test_the_parts_of_the_bill_are_told_in_words_and_dollars() -> None:
    text = page_text(paid_story().state, "/money")

    assert "spot discount" in text
    assert "-$2.33" in text


def test_limits_that_are_known_are_shown_with_their_use() -> None:
    options = SelectorOptions(spending='{"total": {"micro_usd_per_day": 1100000}}')
    state = paid_story().state

    text = page_text(state, "/money", found={"about": About(selector=options)})
    assert "$1.10" in text
    assert "90.9 %" in text


def test_more_than_a_page_of_charges_is_told_in_pages() -> None:
    story = paid_story()
    for slot in range(1, 130):
        story.charged(1, slot=slot)

    first = page_text(story.state, "/money/charges")
    last = page_text(story.state, "/money/charges", {"page": "2"})
    assert first.count('<tr id="charge-') == 100
    assert last.count('<tr id="charge-') == 30


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/money", {"by": "weather"}, "by"),
        ("/money", {"from": "-1"}, "from"),
        ("/money/charges", {"kind": "gold"}, "kind"),
        ("/money/charges", {"page": "0"}, "page"),
        ("/market", {"page": "x"}, "page"),
    ],
)
def test_a_bad_question_is_answered_with_its_field(
    path: str, query: dict[str, str], field: str
) -> None:
    with pytest.raises(ViewRefused) as refused:
        page_text(paid_story().state, path, query)

    assert [problem.field for problem in refused.value.problems] == [field]


def test_an_offering_has_a_page_of_its_own() -> None:
    state = paid_story().tell(forecast_issued(1)).state

    text = page_text(state, "/market/{offering_id:path}", params={"offering_id": EAST})
    assert 'id="chart-fan"' in text
    assert "$3.0000/h" in text


def test_an_offering_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ViewRefused, match="nowhere"):
        page_text(
            paid_story().state, "/market/{offering_id:path}", params={"offering_id": "nowhere"}
        )


def test_names_are_shown_as_text() -> None:
    story = PageStory(job(tenant="<b>bold</b>")).submitted().opened(0).charged(2)

    text = page_text(story.state, "/money")
    assert "<b>bold" not in text
    assert "&lt;b&gt;bold" in text


def uncounted(slot: int) -> SlotOpened:
    """A slot in which nobody says how much spot there is."""
    event = slot_opened(slot)
    quotes = tuple(
        replace(quoted, quote=replace(quoted.quote, spot_available=UNKNOWN_COUNT))
        for quoted in event.quotes
    )
    return replace(event, quotes=quotes)


@pytest.mark.parametrize("opened", [slot_opened, uncounted])
def test_losses_are_marked_whether_spot_is_counted_or_not(
    opened: Callable[[int], SlotOpened],
) -> None:
    story = PageStory().submitted()
    story.tell(opened(0)).holds("a", "b").taken("a", offset_s=60).holds("b", offset_s=60)
    story.tell(opened(1))
    text = page_text(story.state, "/market/{offering_id:path}", params={"offering_id": EAST})

    assert text.count('"name":"lost"') == 1
    assert ("Nobody tells" in text) == (opened is uncounted)
    assert ('id="chart-counts"' in text) == (opened is slot_opened)
