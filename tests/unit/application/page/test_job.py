"""A job's page adds up to what the log says, and its lines and bars stay where they belong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.page.applied import Applied
from spotline.application.page.gantt import LEFT, RIGHT, WIDTH, Span, gantt
from spotline.application.page.holdings import JobPast, JobSign, LotSpan, SignKind
from spotline.application.page.job import (
    MOST_POINTS,
    Expected,
    at_moments,
    begins_ns,
    billed_course,
    fan_of,
    lives_of,
    moments_of,
    otherwise,
    progress_lines,
    whole_id,
)
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import ViewRefused
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook, OutlookStep
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.page_log import small_log

HOUR_NS = 3_600 * NS_PER_S


@pytest.fixture(scope="module")
def told() -> list[Applied]:
    return list(small_log())


@pytest.fixture(scope="module")
def state(told: list[Applied]) -> PageState:
    folded = PageState()
    for event in told:
        folded.fold(event)
    assert not folded.left_out
    return folded


def jobs_of(state: PageState) -> list[str]:
    return list(state.jobs.statuses)


charges = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["spot", "on-demand"]),
        st.integers(0, 3),
        st.integers(0, 10**9),
    ),
    min_size=1,
    max_size=30,
).map(sorted)


@given(charges)
def test_the_bill_is_all_that_was_charged(charged: list[tuple[int, str, str, int, int]]) -> None:
    past = JobPast()
    for slot, offering_id, paid, instances, cost in charged:
        event = CostAccrued(
            job_id="j",
            tenant="t",
            offering_id=offering_id,
            quota_pool="",
            capacity_type=CapacityType.SPOT,
            slot=slot,
            instances=instances,
            held_s=60,
            price_micro_usd=1,
            cost_micro_usd=cost,
        )
        past.charge((slot + 1) * HOUR_NS, paid, event)
    course = list(past.billed())
    drawn = billed_course(past, 0, HOUR_NS)

    assert sum(line.cost_micro_usd for line in past.bill()) == sum(row[4] for row in charged)
    assert sum(line.instance_s for line in past.bill()) == 60 * sum(row[3] for row in charged)
    assert sum(line.bills for line in past.bill()) == len(charged)
    assert course[-1][1] == sum(row[4] for row in charged)
    assert all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(course))
    assert all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(drawn))


def test_the_standings_are_what_the_slots_ended_with(told: list[Applied], state: PageState) -> None:
    for job_id in jobs_of(state):
        said = [
            (each.event.slot, each.event.progress_ppm, each.event.cost_micro_usd)
            for each in told
            if isinstance(each.event, JobAdvanced) and each.event.job_id == job_id
        ]
        kept = [
            (each.slot, each.progress_ppm, each.spent_micro_usd)
            for each in state.holdings.of_job[job_id].standings()
        ]
        assert kept == said


def test_the_spans_are_what_the_cloud_reported(told: list[Applied]) -> None:
    folded = PageState()
    for event in told:
        folded.fold(event)
        if not isinstance(event.event, CapacityReported):
            continue
        for holding in event.event.holdings:
            spans = folded.holdings.of_job[holding.job_id].open_spans.values()
            held = sorted((span.offering_id, span.instances) for span in spans)
            assert held == sorted(counts_of(holding.lots))


def counts_of(lots: tuple[Lot, ...]) -> list[tuple[str, int]]:
    counts = [(lot.offering_id, count) for lot in lots for count in (lot.spot, lot.on_demand)]
    return [(offering_id, count) for offering_id, count in counts if count]


def test_losses_are_counted_as_the_board_counts_them(state: PageState) -> None:
    for job_id in jobs_of(state):
        past, counts = state.holdings.of_job[job_id], state.jobs.board.entries[job_id].counts
        assert sum(loss.instances for loss in past.losses) == counts.interruptions
        assert sum(loss.noticed for loss in past.losses) == counts.noticed
        assert sum(mark.kind is SignKind.MOVED for mark in past.marks) <= counts.moves
        assert sum(mark.kind is SignKind.REFUSED for mark in past.marks) == counts.refusals


def test_no_rule_earns_more_than_the_bound(state: PageState) -> None:
    compared = 0
    for job_id in jobs_of(state):
        lives = lives_of(state, job_id)
        over = state.jobs.board.entries[job_id].over
        if lives is None or not over:
            continue
        found = otherwise(lives, begins_ns(state, job_id), over=True)
        assert found.bound_micro_usd is not None
        assert max(rule.utility_micro_usd for rule in found.rules) <= found.bound_micro_usd
        for rule in found.rules:
            assert rule.cost[-1][1] == pytest.approx(rule.cost_micro_usd / 1e6)
        compared += 1
    assert compared


def test_an_ids_beginning_is_enough_where_no_other_begins_so(state: PageState) -> None:
    job_id = jobs_of(state)[0]
    tenant = state.jobs.statuses[job_id].job.tenant

    assert whole_id(state, job_id[:10], "") == whole_id(state, job_id, tenant) == job_id
    for name, whose in (("", ""), ("zz", ""), (job_id, "somebody-else")):
        with pytest.raises(ViewRefused):
            whole_id(state, name, whose)


def test_a_fan_begins_with_what_is_done_and_ends_with_all(state: PageState) -> None:
    job_id = jobs_of(state)[0]
    at_ns = begins_ns(state, job_id) + HOUR_NS
    outlook = JobOutlook(
        slot=3,
        futures=10,
        on_time_probability_ppm=900_000,
        expected_cost_micro_usd=5,
        cost_p10_micro_usd=4,
        cost_p50_micro_usd=5,
        cost_p90_micro_usd=6,
        finish_p10_ns=at_ns + HOUR_NS,
        finish_p50_ns=at_ns + 2 * HOUR_NS,
        finish_p90_ns=0,
        expected_utility_micro_usd=1,
    )
    lines = progress_lines(
        state, job_id, Expected(outlook=outlook, from_ns=at_ns, done_ppm=250_000), None, 0
    )

    assert lines.now is not None
    assert not lines.now.by_slot
    assert lines.now.high == [(at_ns, 25.0), (at_ns + HOUR_NS, 100.0)]
    assert lines.now.middle == [(at_ns, 25.0), (at_ns + 2 * HOUR_NS, 100.0)]
    assert [value for _, value in lines.now.low] == [25.0, 25.0]
    assert not lines.latest

    stepped = replace(
        outlook,
        progress=(
            OutlookStep(at_ns=at_ns, low_ppm=0, middle_ppm=0, high_ppm=0),
            OutlookStep(at_ns=at_ns + HOUR_NS, low_ppm=300_000, middle_ppm=450_000, high_ppm=10**6),
        ),
    )
    fan = fan_of(Expected(outlook=stepped, from_ns=at_ns, done_ppm=250_000), at_ns + HOUR_NS)

    assert fan.by_slot
    assert fan.low == [(at_ns, 25.0), (at_ns + HOUR_NS, 30.0)]
    assert fan.middle == [(at_ns, 25.0), (at_ns + HOUR_NS, 45.0)]
    assert fan.high == [(at_ns, 25.0), (at_ns + HOUR_NS, 100.0)]


courses = st.lists(
    st.tuples(st.integers(0, 10**6), st.floats(-100, 100)), max_size=60, unique_by=lambda at: at[0]
).map(sorted)


@given(courses, st.lists(st.integers(0, 10**6), max_size=60).map(sorted))
def test_between_two_points_lies_the_line_between_them(
    course: list[tuple[int, float]], moments: list[int]
) -> None:
    values = at_moments(course, moments)

    assert len(values) == len(moments)
    for at, value in zip(moments, values, strict=True):
        if not course or not course[0][0] <= at <= course[-1][0]:
            assert value is None
            continue
        before = max(point for point in course if point[0] <= at)
        after = min(point for point in course if point[0] >= at)
        assert value is not None
        assert min(before[1], after[1]) - 1e-6 <= value <= max(before[1], after[1]) + 1e-6


@given(st.lists(courses, max_size=4))
def test_a_chart_has_no_more_points_than_it_may(several: list[list[tuple[int, float]]]) -> None:
    moments = moments_of(*several, most=20)

    assert moments == sorted(set(moments))
    assert len(moments) <= 20 + 1
    assert {course[at][0] for course in several if course for at in (0, -1)} <= set(moments)
    assert len(moments_of([(at, 0.0) for at in range(5_000)])) <= MOST_POINTS + 1


spans = st.builds(
    lambda offering, paid, instances, at, length: LotSpan(
        offering_id=offering,
        paid=paid,
        instances=instances,
        from_ns=at * NS_PER_S,
        until_ns=(at + length) * NS_PER_S,
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["spot", "on-demand"]),
    st.integers(1, 9),
    st.integers(1, 10_000),
    st.integers(1, 5_000),
)
marks = st.builds(
    lambda kind, at: JobSign(at_ns=at * NS_PER_S, kind=kind, slot=0, seq=1),
    st.sampled_from(list(SignKind)),
    st.integers(1, 10_000),
)


@given(st.lists(spans, max_size=20), st.lists(marks, max_size=20))
def test_bars_and_signs_stay_inside_their_drawing(
    held: list[LotSpan], happened: list[JobSign]
) -> None:
    span = Span(begin_ns=NS_PER_S, end_ns=12_000 * NS_PER_S, now_ns=9_000 * NS_PER_S, deadline_ns=0)
    drawn = gantt(held, happened, span, {})

    assert len(drawn.lanes) == len({(each.offering_id, each.paid) for each in held}) + len(
        {mark.kind for mark in happened}
    )
    assert len(drawn.bars) == len(held)
    assert len(drawn.signs) == len(happened)
    for bar in drawn.bars:
        assert LEFT <= bar.x <= bar.x + bar.width <= WIDTH - RIGHT + 1.5
        assert 0 <= bar.y <= bar.y + bar.height <= drawn.height
    assert all(LEFT <= sign.x <= WIDTH - RIGHT for sign in drawn.signs)
    assert drawn.deadline_x is None
    assert drawn.now_x is not None


def test_a_lane_is_closed_where_a_count_changes() -> None:
    past = JobPast()
    past.hold(1, {("a", "spot"): 2})
    past.hold(5, {("a", "spot"): 3})
    past.hold(9, {})

    assert [(span.instances, span.from_ns, span.until_ns) for span in past.all_spans()] == [
        (2, 1, 5),
        (3, 5, 9),
    ]
