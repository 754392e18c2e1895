"""Pages of whole recorded runs: what they say adds up, and the past is shown as it was."""

from __future__ import annotations

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.page.applied import Applied, applied
from spotline.application.page.book import PageBook
from spotline.application.page.spend import ChargeFilter, chosen, steps_of
from spotline.application.page.state import PageState
from spotline.application.page.waterfall import waterfall
from spotline.domain.events.market import SlotOpened
from spotline.replay.recorded import readable_events
from tests.fakes.paged import page_text
from tests.samples.stored_runs import STORED, unpack

PATHS = ("/market", "/money", "/money/charges", "/money/charges.csv", "/policies")


@pytest.fixture(scope="module", params=["demo-log", "up-log"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Applied]:
    folder = tmp_path_factory.mktemp("v0.1.0") / request.param
    unpack(STORED / f"{request.param}.tar.xz", folder)
    return [
        applied(found.event, found.envelope, found.seq, wall_ns=found.stored_ns)
        for found in readable_events(EventLogReader(folder))
    ]


@pytest.fixture(scope="module")
def book(told: list[Applied]) -> PageBook:
    made = PageBook()
    for event in told:
        made.apply(event)
    return made


@pytest.fixture(scope="module")
def half(told: list[Applied], book: PageBook) -> PageState:
    """The state of a log that ended before the slot after the middle one opened."""
    state = PageState()
    for event in told:
        if isinstance(event.event, SlotOpened) and event.event.slot > book.last_slot // 2:
            break
        state.fold(event)
    return state


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_the_past_is_that_of_a_log_that_ended_there(
    path: str, book: PageBook, half: PageState
) -> None:
    assert page_text(book.at(book.last_slot // 2), path) == page_text(half, path)


def test_an_offering_of_the_past_is_that_of_a_log_that_ended_there(
    book: PageBook, half: PageState
) -> None:
    path, name = "/market/{offering_id:path}", half.jobs.recent.offerings[0].offering_id

    then = page_text(book.at(book.last_slot // 2), path, params={"offering_id": name})
    assert then == page_text(half, path, params={"offering_id": name})


def test_every_dollar_of_a_run_follows_from_a_decision(book: PageBook) -> None:
    charges = list(book.head.money.charges())

    assert charges
    assert [charge for charge in charges if not charge.explained] == []


@pytest.mark.parametrize(("first", "last"), [(None, None), (None, 20), (10, 30)])
def test_the_bill_of_a_run_is_on_demand_alone_and_the_parts(
    book: PageBook, first: int | None, last: int | None
) -> None:
    told = book.head.money
    wanted = ChargeFilter(first_slot=first, last_slot=last)
    charges = chosen(told, wanted)

    found = waterfall(charges, steps_of(book.head, wanted), told.quoted_micro_usd, told.closed)
    changes = sum(part.micro_usd for part in found.parts)
    assert found.on_demand_micro_usd + changes == found.actual_micro_usd
    assert found.actual_micro_usd == sum(charge.cost_micro_usd for charge in charges)


def test_charges_of_a_run_are_those_that_jobs_were_billed(book: PageBook) -> None:
    billed: dict[str, int] = {}
    for charge in book.head.money.charges():
        billed[charge.job_id] = billed.get(charge.job_id, 0) + charge.cost_micro_usd

    for job_id, entry in book.head.jobs.board.entries.items():
        assert billed.get(job_id, 0) == entry.billed_micro_usd


def test_no_chapter_left_an_event_of_a_run_out(book: PageBook) -> None:
    assert list(book.head.left_out) == []
