"""What is free when: releases, what is held until it ends, and what is claimed for later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.placement.interface import Release
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.placement.timeline import Timeline
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, moment_of

REGIONS = ("a", "b", "c")


def held(job_id, *shares, reserved=0.0):
    return Placement(
        job_id=job_id,
        path=tuple(RegionShare(region_id=name, gpus=gpus) for name, gpus in shares),
        reserved_bytes_per_s=reserved,
        iteration_s=1.0,
        usd_per_iteration=0.0,
    )


def timeline_of(gpus, *running, **changed):
    """Regions of which each pair (end, placement) holds something until then."""
    graph = graph_of(gpus, width=10.0)
    moment = moment_of(
        graph,
        held=[placement for _, placement in running],
        releases=[Release(at_s=end_s, placement=placement) for end_s, placement in running],
    )
    return Timeline(moment, **changed)


def test_what_ends_is_free_from_then_on():
    timeline = timeline_of([10, 5], (7.0, held("one", ("a", 4))))

    assert timeline.times_s == [0.0, 7.0]
    assert timeline.available().gpus.tolist() == [6, 5]
    assert timeline.at(1).gpus.tolist() == [10, 5]
    assert timeline.gpus().tolist() == [11, 15]


def test_what_is_placed_is_free_again_when_it_ends():
    timeline = timeline_of([10], (7.0, held("one", ("a", 4))))

    timeline.hold(held("two", ("a", 5)), 9.0)

    assert timeline.times_s == [0.0, 7.0, 9.0]
    assert timeline.gpus().tolist() == [1, 5, 10]


def test_what_is_claimed_for_later_is_not_lent_until_then_nor_for_ever():
    timeline = timeline_of([10], (7.0, held("one", ("a", 4))))

    timeline.claim(1, held("waits", ("a", 8)), 20.0)

    # Six are free now, but whoever took more than two would still be there at 7 s.
    assert timeline.available().gpus.tolist() == [2]
    assert timeline.at(1).gpus.tolist() == [2]
    assert timeline.times_s == [0.0, 7.0, 20.0]
    assert timeline.at(2).gpus.tolist() == [10]


def test_claims_hold_bandwidth_both_ways():
    timeline = timeline_of([4, 4], (7.0, held("one", ("a", 4))))

    timeline.claim(1, held("waits", ("a", 2), ("b", 2), reserved=6.0), 20.0)

    assert timeline.available().width.tolist() == [[0.0, 4.0], [4.0, 0.0]]


def test_releases_beyond_the_most_are_not_looked_at():
    ends = [(float(place), held(f"job-{place}", ("a", 1))) for place in range(1, 6)]

    timeline = timeline_of([10], *ends, max_releases=2)

    assert timeline.times_s == [0.0, 1.0, 2.0]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(1, 60),
        st.lists(
            st.tuples(st.sampled_from(REGIONS), st.integers(1, 4)),
            min_size=1,
            max_size=3,
            unique_by=lambda share: share[0],
        ),
        st.integers(0, 3),
    ),
    max_size=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(
    ends=st.lists(st.integers(1, 50), min_size=0, max_size=4),
    steps=STEPS,
    most=st.integers(1, 6),
)
@pytest.mark.parametrize("first_at", [0, 1])
def test_whatever_is_taken_as_offered_never_over_commits(first_at, ends, steps, most):
    running = [
        (float(end_s), held(f"run-{place}", (REGIONS[place % 3], 2)))
        for place, end_s in enumerate(ends)
    ]
    timeline = timeline_of([6, 5, 4], *running, max_releases=most)
    for number, (wished_at, lasts_s, shares, width) in enumerate(steps):
        at = min(max(wished_at, first_at), len(timeline.times_s) - 1)
        offered = timeline.at(at)
        wanted = held(f"new-{number}", *shares, reserved=float(width))
        regions, pairs = offered.touched(wanted)
        fits = all(
            offered.gpus[region] >= share.gpus
            for region, share in zip(regions, wanted.path, strict=True)
        ) and all(offered.width[pair] >= width for pair in pairs)
        if not fits:
            continue
        until_s = timeline.times_s[at] + lasts_s
        if at:
            timeline.claim(at, wanted, until_s)
        else:
            timeline.hold(wanted, until_s)

        assert timeline.times_s == sorted(timeline.times_s)
        assert len(timeline.times_s) == len(timeline.free) <= most + 1
        for place, free in enumerate(timeline.free):
            assert (free.gpus >= 0).all()
            assert (free.width >= 0).all()
            least = np.minimum.reduce([one.gpus for one in timeline.free[place:]])
            assert timeline.at(place).gpus.tolist() == least.tolist()
            narrow = np.minimum.reduce([one.width for one in timeline.free[place:]])
            assert (timeline.at(place).width == narrow).all()
            assert timeline.gpus()[place] == least.sum()
