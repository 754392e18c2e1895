"""Classes of jobs that share a value table: what makes one, and what its jobs see of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.accounting import Held, Standing
from spotline.domain.jobs.offer import Offer
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import replay_policy
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_store import HeldTables
from spotline.domain.solvers.table_terms import (
    TableTerms,
    class_id,
    class_terms,
    rounded,
    rounded_up,
    table_id,
)
from spotline.domain.solvers.value_table import (
    best_value,
    build_table,
    holding_value,
    seen_by,
    shape_of,
    solve,
    solved,
)
from spotline.domain.units import cost_micro_usd
from tests.depth import examples
from tests.unit.domain.solvers.test_value_table import PRICE, program, records, terms_of
from tests.unit.domain.solvers.test_value_table import two_level_law as law_of

LAW = law_of(0.9, 0.4, prices=(200_000, 700_000))


def shared(job: JobProgram, **changed: int) -> TableTerms:
    return replace(terms_of(job, LAW), shared=True, **changed)


def times(job: JobProgram, scale: int) -> JobProgram:
    """The same job in units of work that are `scale` times smaller."""
    return replace(
        job,
        work_quanta=job.work_quanta * scale,
        rate_quanta_per_s=tuple(rate * scale for rate in job.rate_quanta_per_s),
    )


def test_the_unit_of_work_the_time_left_and_what_a_hard_job_is_worth_make_no_other_class() -> None:
    job = program(hard=True, deadline=12, work=9)
    named = table_id(shared(job))

    for same in (
        times(job, 7_919),
        program(hard=True, deadline=9, work=5),
        replace(job, value_micro_usd=tuple(2 * value for value in job.value_micro_usd)),
        replace(job, budget_micro_usd=77),
    ):
        assert table_id(shared(same)) == named
    for other in (
        program(hard=True, deadline=13, work=9),
        program(deadline=12, work=9),
        program(hard=True, deadline=12, work=9, grow_s=60),
        replace(job, allowed_counts=(2,), rate_quanta_per_s=(0, 0, 2)),
    ):
        assert table_id(shared(other)) != named
    assert table_id(terms_of(job, LAW)) != named
    assert table_id(shared(job, spot_surcharge=1)) != named


def test_only_what_the_largest_count_notices_of_a_market_makes_another_class() -> None:
    job = program(hard=True)
    many = replace(LAW, space=replace(LAW.space, level_starts=(0, 50)), level_counts=(0, 50))
    terms = replace(shared(job), law=many)

    assert table_id(replace(terms, taken=48)) == table_id(terms)
    assert table_id(replace(terms, taken=49)) != table_id(terms)
    assert table_id(replace(terms, taken=50)) == table_id(replace(terms, taken=99))
    assert table_id(replace(terms, on_demand_available=2)) == table_id(terms)
    assert table_id(replace(terms, on_demand_available=1)) != table_id(terms)


@given(
    work=st.integers(1, 10**15),
    rates=st.lists(st.integers(1, 10**11), min_size=1, max_size=6),
    deadline=st.integers(1, 400),
    late=st.integers(0, 200),
    value=st.integers(0, 10**12),
    taken=st.integers(0, 9),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_class_is_its_own_class_and_reaches_as_far_as_its_jobs(
    work: int, rates: list[int], deadline: int, late: int, value: int, taken: int
) -> None:
    rates = [1_000 * rate for rate in sorted(rates)]
    hard = late == 0
    job = replace(
        program(),
        work_quanta=work,
        rate_quanta_per_s=(0, *rates),
        allowed_counts=tuple(range(1, len(rates) + 1)),
        deadline_slots=deadline,
        end_slots=deadline + late,
        hard=hard,
        value_micro_usd=(
            *[value] * (deadline + 1),
            *(value * (late - slot) // late for slot in range(1, late + 1)),
        ),
    )
    found = class_terms(shared(job, taken=taken))

    assert class_terms(found) == found
    assert found.program.deadline_slots >= deadline
    scaled = found.program.rate_quanta_per_s[-1]
    assert found.program.work_quanta * rates[-1] >= work * scaled
    most = job.max_instances
    for count in LAW.level_counts:
        assert min(most, max(0, count - found.taken)) == min(most, max(0, count - taken))


@given(number=st.integers(0, 1 << 40), digits=st.integers(1, 4))
def test_rungs_are_near_and_stay_where_they_are(number: int, digits: int) -> None:
    above, nearest = rounded_up(number, digits), rounded(number, digits)

    assert rounded_up(above, digits) == above >= number
    assert above - number <= number >> (digits - 1)
    assert rounded(nearest, digits) == nearest
    assert abs(nearest - number) <= number >> digits


def offer(spot: int, price: int, run: int) -> Offer:
    return Offer(price, PRICE, spot, 10, 3_600, 0, 0, 1, run, -1, -1)


@pytest.mark.parametrize("deadline", [5, 6])
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("run", [0, 1])
def test_a_job_sees_of_its_class_nearly_what_its_own_table_says(
    deadline: int, hard: bool, run: int
) -> None:
    job = times(program(hard=hard, grow_s=300, deadline=deadline, work=7), 1_000)
    own, seen = build_table(terms_of(job, LAW)), build_table(shared(job))
    # What lateness costs is rounded by up to a third, and cells are as coarse as the class is long.
    near = 0.05 * cost_micro_usd(PRICE, 2, 7 * 3_600 // 2)
    here = offer(2 * run, 300_000, run)

    for elapsed, left in ((0, job.work_quanta), (1, 6 * 3_600_000), (3, 2 * 3_600_000)):
        standing = Standing(elapsed, job.work_quanta - left, Held(0, 1), 0, 0, 0, 0)
        assert best_value(seen, standing, here, left) == pytest.approx(
            best_value(own, standing, here, left), abs=near
        )


@pytest.mark.parametrize("held", [Holding(), Holding(on_demand=1), Holding(spot=2)])
def test_jobs_of_a_class_with_as_much_time_and_work_left_see_the_same(held: Holding) -> None:
    longer = times(program(hard=True, grow_s=300, deadline=6, work=7), 1_000)
    shorter = times(program(hard=True, grow_s=300, deadline=5, work=6), 3_000)
    here = offer(2, 300_000, 1)

    def value(job: JobProgram, elapsed: int, left_s: int) -> float:
        left = left_s * job.rate_quanta_per_s[1]
        standing = Standing(elapsed, job.work_quanta - left, Held(0, 1), 0, 0, 0, 0)
        return holding_value(build_table(shared(job)), standing, here, left, held)

    for elapsed, left_s in ((0, 20_000), (2, 9_001), (3, 3_600)):
        assert value(shorter, elapsed, left_s) == pytest.approx(
            value(longer, elapsed + 1, left_s), abs=2.0
        )


@pytest.mark.parametrize("ups", ["d", "ud", "udududud", "dudddddd"])
@pytest.mark.parametrize("deadline", [5, 6, 7])
def test_a_hard_deadline_is_met_by_a_class_whatever_spot_does(ups: str, deadline: int) -> None:
    job = times(program(hard=True, grow_s=900, deadline=deadline, work=2 * deadline - 4), 1_000)
    law = law_of(0.99, 0.01)  # a law that promises far too much
    table = build_table(replace(terms_of(job, law), shared=True))

    result = replay_policy(job, records(job, ups, law), SDP, policy_named("msu"), table)

    assert result.on_time


def test_a_table_that_was_kept_is_the_table_that_was_solved() -> None:
    terms = class_terms(shared(program(deadline=5)))
    table = solve(terms)

    again = solved(terms, table.after.copy())

    assert table.after.shape == shape_of(terms)
    assert all(np.array_equal(a, b) for a, b in zip(table.arrays, again.arrays, strict=True))
    assert seen_by(shared(program(deadline=5)), again).after.base is not None
    with pytest.raises(ValueError, match="shape"):
        solved(terms, table.after[1:])


def test_memory_holds_those_used_last_up_to_its_bytes() -> None:
    built: list[str] = []

    def asked(name: str) -> None:
        def build() -> np.ndarray:
            built.append(name)
            return np.zeros((1, 1, 1, 1, 1, 25), dtype=np.float32)

        assert store.array(name, (1, 1, 1, 1, 1, 25), build).nbytes == 100

    store = HeldTables(most_bytes=250)
    for name in ("a", "b", "a", "c", "a", "b"):
        asked(name)

    assert built == ["a", "b", "c", "b"]
    assert [name for name in "abc" if store.has(name)] == ["a", "b"]


def test_a_class_has_one_name_however_its_jobs_are_told() -> None:
    terms = shared(program(deadline=5))

    assert class_id(class_terms(terms)) == table_id(terms) == table_id(class_terms(terms))
