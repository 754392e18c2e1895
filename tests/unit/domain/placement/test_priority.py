from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.placement.interface import Residual
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.placement.priority import by_priority, congestion, priorities
from tests.unit.domain.placement.worlds import graph_of, job_of, queues

SHORT_BUT_WIDE = job_of("short", iterations=10, activation_bytes=4e9)
LONG_BUT_NARROW = job_of("long", iterations=1000, activation_bytes=1e8)


def test_an_idle_network_puts_short_jobs_first():
    assert by_priority([LONG_BUT_NARROW, SHORT_BUT_WIDE], 0.0)[0] is SHORT_BUT_WIDE


def test_a_full_network_puts_narrow_jobs_first():
    assert by_priority([SHORT_BUT_WIDE, LONG_BUT_NARROW], 1.0)[0] is LONG_BUT_NARROW


def test_the_formula_by_hand():
    # Intensities 100 and 10,000 of 10,000; demands 40 to 1; alpha 0.25.
    found = priorities([SHORT_BUT_WIDE, LONG_BUT_NARROW], 0.25)

    assert found == pytest.approx([0.75 * 0.99 + 0.25 * 0.0, 0.75 * 0.0 + 0.25 * (1 - 1 / 40)])


def test_equal_jobs_go_by_arrival_then_id():
    jobs = [job_of("b", arrival_s=1.0), job_of("a", arrival_s=1.0), job_of("c", arrival_s=0.0)]

    assert [job.job_id for job in by_priority(jobs, 0.5)] == ["c", "a", "b"]


@given(queue=queues(), alpha=st.floats(0.0, 1.0))
def test_priorities_lie_between_nothing_and_one(queue, alpha):
    found = priorities(queue, alpha)

    assert found.shape == (len(queue),)
    assert ((found >= 0.0) & (found <= 1.0)).all()


@given(queue=queues(), alpha=st.floats(0.0, 1.0), data=st.data())
def test_more_work_or_more_bandwidth_never_raises_a_priority(queue, alpha, data):
    if not queue:
        return
    at = data.draw(st.integers(0, len(queue) - 1))
    name, factor = data.draw(st.sampled_from([("iterations", 3), ("activation_bytes", 2.5)]))
    changed = list(queue)
    changed[at] = dataclasses.replace(queue[at], **{name: getattr(queue[at], name) * factor})

    assert priorities(changed, alpha)[at] <= priorities(queue, alpha)[at] + 1e-12


def test_congestion_is_the_used_part_of_all_bandwidth():
    graph = graph_of([4, 4, 4], width=1e9)
    held = Placement(
        job_id="held",
        path=(RegionShare(region_id="a", gpus=1), RegionShare(region_id="b", gpus=1)),
        reserved_bytes_per_s=6e8,
        iteration_s=1.0,
        usd_per_iteration=0.0,
    )

    # Two of six directed links carry 0.6 of what they can.
    assert congestion(Residual.of(graph, [held])) == pytest.approx(0.2)
    assert congestion(Residual.of(graph)) == 0.0


def test_congestion_stays_within_one_where_links_became_smaller_than_what_they_carry():
    graph = graph_of([4, 4], width=1e9)
    overloaded = Residual(graph, graph.gpus, np.full((2, 2), -5.0))

    assert congestion(overloaded) == 1.0


def test_an_alpha_beyond_one_is_refused():
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\], was 1.5"):
        priorities([job_of()], 1.5)
