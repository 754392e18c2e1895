"""What is kept of offers gives the same what-ifs as the selector's own feedback."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocator.handler import SPEC, JobsHandler
from spotline.application.board import offers as module
from spotline.application.board.offers import OFFER_WIDTH, OfferBook
from spotline.application.board.otherwise import OtherCosts, other_costs, other_lives
from spotline.application.market_view import MarketFold
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.build import event_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported, RefusalClass
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.policies.answer import DecisionReason
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from spotline.replay.report import report_run
from tests.fakes.allocator import EAST, SLOT_NS, START_NS, WEST, job, market_opened, slot_opened
from tests.fakes.board import NO_LOTS, BoardStory, spot
from tests.fakes.recorded_run import SETTINGS, play, recorded_run, small_market


@pytest.fixture(scope="module")
def run():
    market = small_market(slots=96)
    return recorded_run(market, generated_jobs(market, 8, 5))


def folded(entries):
    handler = JobsHandler()
    state = handler.initial()
    for entry in entries:
        event = event_of(entry)
        if type(event) in SPEC.consumes:
            handler.evolve(state, event)
    return state


def costs_in(state, job_id) -> OtherCosts | None:
    lives = other_lives(
        state.board.offers.jobs.get(job_id), state.statuses[job_id].job, state.recent
    )
    return None if lives is None else other_costs(lives)


def test_other_rules_cost_what_the_report_of_the_run_says(run):
    state = folded(run)
    report = report_run(run, SelectorOptions(rehearsals=SETTINGS["selector"]["rehearsals"]))

    compared = [told for told in report.jobs if told.otherwise]
    assert len(compared) == 8
    for told in compared:
        assert costs_in(state, told.job.job_id) == OtherCosts(
            on_demand_micro_usd=told.otherwise["on_demand_only"].cost_micro_usd,
            msu_micro_usd=told.otherwise["msu"].cost_micro_usd,
        )


@pytest.mark.slow
def test_other_rules_cost_what_the_report_says_where_bids_are_cleared():
    market = small_market(slots=48)
    selector = {**SETTINGS["selector"], "clearing": True}
    log = []
    handlers = [*handlers_of({**SETTINGS, "selector": selector}), ExactCloud()]
    play(handlers, market, generated_jobs(market, 8, 5), record=log.append)

    state, report = folded(log), report_run(log, SelectorOptions(**selector))

    assert state.board.offers.cleared
    # What a job that yielded was offered after its end the report does not know: it teaches nothing.
    decided = [event for event in map(event_of, log) if isinstance(event, AllocationDecided)]
    yielded = {event.job_id for event in decided if event.yielded is not None}
    compared = [told for told in report.jobs if told.job.job_id not in yielded]
    assert 0 < len(compared) < 8
    for told in compared:
        assert costs_in(state, told.job.job_id) == OtherCosts(
            on_demand_micro_usd=told.otherwise["on_demand_only"].cost_micro_usd,
            msu_micro_usd=told.otherwise["msu"].cost_micro_usd,
        )


def test_what_other_rules_cost_grows_with_the_slots(run):
    costs = []
    for share in (4, 6, 8, 10):
        state = folded(run[: len(run) * share // 10])
        # The first job to begin.
        job_id = min(
            state.board.offers.live,
            key=lambda one: state.board.offers.jobs[one].first_slot,
            default=None,
        )
        if job_id is not None and (told := costs_in(state, job_id)) is not None:
            costs.append((job_id, told.on_demand_micro_usd))
    first = [cost for job_id, cost in costs if job_id == costs[0][0]]

    assert first == sorted(first)


def test_spot_of_jobs_that_are_served_before_is_not_offered():
    first, second = BoardStory(job("first")), BoardStory(job("second"))
    second.board = first.board
    second.market = first.market
    first.tell(market_opened())
    for story in (first, second):
        story.submitted()
    first.opened(0, spot=4).admitted()
    second.admitted()
    first.decided(spot(3))
    second.decided(spot(1)).opened(1)

    rows = [first.board.offers.jobs[story.job.job_id].rows for story in (first, second)]

    assert [row[2] for row in rows] == [4, 1]


def test_where_bids_are_cleared_each_job_is_offered_what_all_others_leave():
    first, second = BoardStory(job("first")), BoardStory(job("second"))
    second.board = first.board
    second.market = first.market
    first.tell(market_opened())
    for story in (first, second):
        story.submitted()
    first.opened(0, spot=4).admitted()
    second.admitted()
    first.decided(spot(2), cleared=True)
    second.decided(spot(1), cleared=True).opened(1)

    rows = [first.board.offers.jobs[story.job.job_id].rows for story in (first, second)]

    assert [row[2] for row in rows] == [3, 2]


def test_a_refusal_shows_that_there_is_no_more():
    story = BoardStory().running(2).opened(1).decided(spot(4)).refused(RefusalClass.NO_CAPACITY)
    story.tell(
        CapacityReported(
            slot=1,
            revision=0,
            offset_s=30,
            settled=False,
            holdings=(),
        )
    )
    story.decided(NO_LOTS, DecisionReason.LAUNCH_REFUSED, offset_s=30).opened(2)

    assert story.board.offers.jobs[story.job.job_id].rows[OFFER_WIDTH + 2] == 0


def test_a_job_that_moved_to_other_rates_has_no_what_if():
    stated = job()
    rate = stated.throughputs[0]
    west = replace(rate, offering="p3.16xlarge", alpha=2.0)
    stated = replace(stated, throughputs=(rate, west))
    story = BoardStory(stated).running(2).opened(1).decided(spot(2, WEST), move_from=EAST).opened(2)

    assert story.board.offers.jobs[stated.job_id].homes == (EAST, WEST)
    assert other_lives(story.board.offers.jobs[stated.job_id], stated, story.market) is None


def test_one_that_moved_to_equal_rates_has():
    story = BoardStory().running(2).opened(1).decided(spot(2, WEST), move_from=EAST).opened(2)

    lives = other_lives(story.board.offers.jobs[story.job.job_id], story.job, story.market)

    assert len(lives.records) == 2
    # A slot of 2 instances to launch and one to go on; MSU takes all four.
    assert other_costs(lives) == OtherCosts(
        on_demand_micro_usd=2 * 10_000_000 * 2 // 6, msu_micro_usd=2 * 4 * 3_000_000 // 6
    )


def test_of_jobs_that_are_over_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "MOST_CLOSED", 2)
    book, market = OfferBook(), MarketFold()
    stories = [BoardStory(job(f"r{number}")) for number in range(4)]
    for event in (market_opened(), slot_opened(0)):
        market.fold(event)
        book.fold(event)
    for story in stories:
        story.board.offers, story.market, story.slot = book, market, 1
        story.submitted().admitted().closed(JobOutcome.COMPLETED)

    assert list(book.jobs) == [story.job.job_id for story in stories[2:]]


def test_what_was_offered_is_kept_until_the_deadline_of_a_job_that_is_over():
    story = BoardStory(job(instance_hours=1.0, deadline_slots=5)).running(4)
    story.opened(1).advanced(600_000, spot(4)).opened(2).closed(JobOutcome.COMPLETED)
    for slot in range(3, 60):
        story.opened(slot)

    offers = story.board.offers.jobs[story.job.job_id]
    assert not story.board.offers.live
    assert offers.first_slot_start_ns == START_NS
    # The deadline slot that the story's admission names is 29.
    assert offers.slots == 30
    assert story.market.now_ns == START_NS + 59 * SLOT_NS
