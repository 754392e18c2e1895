"""The page's state at any slot before is that of a log that ended there."""

from __future__ import annotations

import pytest

from spotline.application.page import book as book_module
from spotline.application.page.applied import Applied, applied
from spotline.application.page.book import PageBook
from spotline.application.page.feed import FeedChapter
from spotline.application.page.state import PageState
from spotline.domain.events.market import SlotOpened
from spotline.replay.recorded import readable_events
from tests.fakes.recorded_run import small_run


@pytest.fixture(scope="module")
def told() -> list[Applied]:
    return [
        applied(found.event, found.envelope, found.seq, wall_ns=found.stored_ns)
        for found in readable_events(small_run())
    ]


def folded(told: list[Applied]) -> PageState:
    state = PageState()
    for event in told:
        state.fold(event)
    return state


def until(told: list[Applied], slot: int) -> list[Applied]:
    """What is told before a later slot opens."""
    for place, event in enumerate(told):
        if isinstance(event.event, SlotOpened) and event.event.slot > slot:
            return told[:place]
    return told


def looks(state: PageState) -> object:
    """What pages are made of, as a value that can be compared."""
    return (
        state.seq,
        state.slot,
        state.wall_ns,
        state.jobs.statuses,
        state.jobs.board.entries,
        {job: list(lines) for job, lines in state.feed.of_job.items()},
        state.jobs.recent.opened,
    )


@pytest.mark.parametrize("events_a_copy", [1, 40, 100_000])
def test_the_state_at_a_slot_is_that_of_a_log_that_ended_there(
    told: list[Applied], events_a_copy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "_EVENTS_A_COPY", events_a_copy)
    book = PageBook()
    for event in told:
        book.apply(event)
    last = book.last_slot

    for slot in (0, last // 3, last // 2, last - 1, last, 1):
        assert looks(book.at(slot)) == looks(folded(until(told, slot)))
    assert looks(book.at(None)) == looks(folded(told))


def test_before_the_first_slot_and_beyond_the_last_there_are_states_as_well(
    told: list[Applied],
) -> None:
    book = PageBook()
    assert (book.first_slot, book.last_slot, book.at(3).seq) == (-1, -1, 0)
    for event in told:
        book.apply(event)

    assert book.at(book.last_slot + 5) is book.head
    assert book.first_slot == 0


def test_opening_the_past_does_not_change_the_head(told: list[Applied]) -> None:
    book = PageBook()
    half = len(told) // 2
    for event in told[:half]:
        book.apply(event)
    book.at(max(0, book.last_slot - 1))
    for event in told[half:]:
        book.apply(event)

    assert looks(book.head) == looks(folded(told))


def test_what_a_chapter_cannot_take_is_told_and_the_others_go_on(
    told: list[Applied], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: FeedChapter, told: Applied, jobs: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(FeedChapter, "fold", broken)
    state = folded(told[:5])

    assert [(left.seq, left.error) for left in state.left_out] == [
        (event.seq, "ZeroDivisionError: no") for event in told[:5]
    ]
    assert state.seq == told[4].seq


def test_a_decision_that_changes_nothing_is_in_the_full_feed_alone(told: list[Applied]) -> None:
    state = folded(told)
    job_id = next(iter(state.feed.of_job))
    changes = list(state.feed.newest_first(job_id))
    everything = list(state.feed.newest_first(job_id, with_unchanged=True))

    assert 0 < len(changes) <= len(everything)
    assert [line.seq for line in everything] == sorted(
        (line.seq for line in everything), reverse=True
    )
    assert all(line.market_ns > 0 for line in everything)
