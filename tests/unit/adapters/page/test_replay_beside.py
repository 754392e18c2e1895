"""What was stands beside what would have been: on one axis, held as long, and at the same sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.making.replay import replay_asked
from spotline.adapters.page.making.replay_beside import fleet_cost_chart, job_beside, spans_of
from spotline.application.page.about import About
from spotline.application.page.replaying import (
    JobBeside,
    ReplayShown,
    RunBeside,
    SlotLived,
    WhatIfAsked,
)
from spotline.application.page.state import PageState
from spotline.domain.jobs.lot import Lot
from spotline.domain.units import NS_PER_S
from tests.fakes.paged import EAST, START_NS, page_text, paid_story

WEST = "aws:west"


def slot(number: int, *lots: Lot, cost: int = 0, done: int = 0) -> SlotLived:
    return SlotLived(slot=number, lots=lots, cost_micro_usd=cost, progress_ppm=done)


def beside(**changes: object) -> JobBeside:
    made = JobBeside(
        job_id="a",
        name="job a",
        deadline_ns=START_NS + 36_000 * NS_PER_S,
        cost_micro_usd=3_000_000,
        on_time=True,
        other_cost_micro_usd=5_000_000,
        other_on_time=False,
        other_deadline_ns=START_NS + 36_000 * NS_PER_S,
        slots=(
            slot(0, Lot(offering_id=EAST, spot=2), cost=1_000_000, done=300_000),
            slot(1, Lot(offering_id=EAST, spot=2), cost=3_000_000, done=1_000_000),
        ),
        other_slots=(slot(2, Lot(offering_id=EAST, on_demand=1), cost=5_000_000, done=1_000_000),),
    )
    return replace(made, **changes)


@pytest.fixture(scope="module")
def state() -> PageState:
    return paid_story().state


lots = st.lists(
    st.builds(
        Lot,
        offering_id=st.sampled_from((EAST, WEST)),
        spot=st.integers(0, 3),
        on_demand=st.integers(0, 2),
    ),
    max_size=2,
    unique_by=lambda lot: lot.offering_id,
)


@given(st.lists(lots, max_size=12), st.sets(st.integers(0, 20), min_size=12, max_size=12))
def test_spans_hold_as_many_instances_as_long_as_the_slots_do(
    held: list[list[Lot]], numbers: set[int]
) -> None:
    state = paid_story().state
    lived = [slot(at, *lots) for at, lots in zip(sorted(numbers), held, strict=False)]

    spans = spans_of(state, lived)

    slot_ns = state.slot_s * NS_PER_S
    of_slots = sum(lot.spot + lot.on_demand for lots in held for lot in lots) * slot_ns
    assert sum(span.instances * (span.until_ns - span.from_ns) for span in spans) == of_slots
    # What goes on unchanged is one span.
    ends = {(span.offering_id, span.paid, span.instances, span.until_ns) for span in spans}
    begins = {(span.offering_id, span.paid, span.instances, span.from_ns) for span in spans}
    assert not ends & begins


def test_both_lie_on_one_axis_and_end_at_their_costs(state: PageState) -> None:
    found = RunBeside(rule="msu", jobs=(beside(), beside(job_id="b", cost_micro_usd=4_900_000)))

    drawn = job_beside(state, found, "")

    assert drawn is not None
    assert drawn.job.job_id == "a"
    assert drawn.was.ticks == drawn.other.ticks
    assert drawn.was.deadline_x == drawn.other.deadline_x is not None
    assert [line.values[-1] for line in drawn.cost.series] == [3.0, 5.0]
    assert [line.values[0] for line in drawn.cost.series] == [0.0, 0.0]
    assert [line.values[-1] for line in fleet_cost_chart(state, found).series] == [6.0, 10.0]
    other = job_beside(state, found, "b")
    assert other is not None
    assert other.job.job_id == "b"
    assert job_beside(state, found, "nobody") is None


def test_the_page_draws_both_and_leads_to_every_job(state: PageState) -> None:
    not_again = beside(job_id="c", other_cost_micro_usd=None, other_on_time=None, why="it failed")
    shown = ReplayShown(
        log="a log", rules=("msu",), beside=RunBeside(rule="msu", jobs=(beside(), not_again))
    )

    text = page_text(
        state,
        "/replay",
        {"run": "what-if", "rule": "msu", "gone": EAST, "gone_to": "4"},
        found={"about": About(replay=shown)},
    )

    assert 'id="was-title"' in text
    assert 'id="other-title"' in text
    assert "as it would have been: $5.00, not on time" in text.lower()
    assert "job=a#drawn" in text
    assert "job=c#drawn" not in text
    assert f'value="{EAST}" selected' in text
    empty = ReplayShown(log="a log", rules=("msu",), beside=RunBeside(rule="msu"))
    assert "side by side" not in page_text(state, "/replay", found={"about": About(replay=empty)})


def test_availability_is_asked_by_the_address() -> None:
    query = {
        **{"run": "what-if", "rule": "msu", "gone": EAST, "gone_from": "3", "gone_to": "9"},
        **{"cloud": "aws", "counts": " 0.5 ", "job": "a"},
    }

    asked = replay_asked(PageAsked(path="/replay", query=query)).what_if

    # Which job is drawn is no part of the question: the answer is kept for all.
    assert asked == WhatIfAsked(
        rule="msu", gone=EAST, gone_from=3, gone_to=9, gone_cloud="aws", counts="0.5"
    )
