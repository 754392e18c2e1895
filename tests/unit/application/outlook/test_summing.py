"""Lives in futures are summed up slot by slot as well as at their ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spotline.application.outlook.lives import LifeAhead
from spotline.application.outlook.outlook import job_outlook
from spotline.application.outlook.summing import MOST_STEPS, LivesAhead, summed_up
from spotline.domain.units import PPM
from tests.fakes.followed import watched
from tests.unit.application.outlook.test_outlook import AFTER, handed_over, restless

SLOT_NS = 1_800 * 10**9


def life(gains_ppm: list[int]) -> LifeAhead:
    """A life that gains so much in each slot, until all is done."""
    done = 0
    course = []
    for gain in gains_ppm:
        done = min(PPM, done + gain)
        course.append(done)
        if done == PPM:
            break
    finished = len(course) if done == PPM else 0
    return LifeAhead(
        home="here",
        policy_id="sdp",
        cost_micro_usd=7,
        value_micro_usd=9,
        finished_slot=3 + finished if finished else 0,
        on_time=bool(finished),
        moves=0,
        progress_ppm=tuple(course),
    )


lives = st.lists(
    st.lists(st.integers(0, 300_000), min_size=1, max_size=120).map(life), min_size=10, max_size=30
)


@given(lives)
def test_quantiles_of_progress_rise_keep_their_order_and_end_where_lives_do(
    found: list[LifeAhead],
) -> None:
    ahead = LivesAhead(
        lives=tuple(found), first_slot_start_ns=1_000, slot_ns=SLOT_NS, elapsed_slots=3
    )

    outlook = summed_up(4, ahead)

    steps = outlook.progress
    assert 0 < len(steps) <= MOST_STEPS
    assert all(step.low_ppm <= step.middle_ppm <= step.high_ppm for step in steps)
    for before, after in pairwise(steps):
        assert before.at_ns < after.at_ns
        assert (after.at_ns - before.at_ns) % SLOT_NS == 0
        assert before.low_ppm <= after.low_ppm
        assert before.high_ppm <= after.high_ppm
    last = steps[-1]
    done = sorted(each.progress_ppm[-1] for each in found)
    assert last.low_ppm == done[len(done) // 10]
    # Nine of ten are done there, or nobody comes any further.
    assert last.low_ppm == PPM or last.middle_ppm == done[len(done) // 2]
    if outlook.finish_p90_ns:
        assert last.low_ppm == PPM


def test_a_quote_says_how_far_the_job_comes_as_its_ends_do() -> None:
    outlook = job_outlook(watched(AFTER, restless)[1], handed_over())

    assert outlook is not None
    assert outlook.progress[0].at_ns - outlook.progress[-1].at_ns < 0
    reached = next(step.at_ns for step in outlook.progress if step.middle_ppm >= PPM)
    assert reached == outlook.finish_p50_ns
