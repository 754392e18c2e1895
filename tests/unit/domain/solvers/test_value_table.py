from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.accounting import Held, Standing
from spotline.domain.jobs.offer import Offer
from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.law import MarketLaw, StateSpace, quantised_rows
from spotline.domain.policies.interface import Outlook, PolicyView, WindowForecast
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.policies.sdp import SDP, ValueToGo
from spotline.domain.solvers.table_terms import TableTerms, table_id
from spotline.domain.solvers.value_table import (
    best_value,
    build_table,
    even_cell_quanta,
    shape_of,
)
from spotline.domain.units import cost_micro_usd
from tests.depth import examples

PRICE = 1_000_000


def program(*, hard: bool = False, grow_s: int = 0, deadline: int = 4, work: int = 6) -> JobProgram:
    end = deadline if hard else deadline + 2
    value = 9_000_000
    return JobProgram(
        slot_s=3_600,
        work_quanta=work * 3_600,
        rate_quanta_per_s=(0, 1, 2),
        allowed_counts=(1, 2),
        launch_s=grow_s,
        grow_s=grow_s,
        shrink_s=0,
        interrupted_s=grow_s,
        deadline_slots=deadline,
        end_slots=end,
        hard=hard,
        value_micro_usd=tuple(
            value if t <= deadline else value * (end - t) // (end - deadline)
            for t in range(end + 1)
        ),
    )


def two_level_law(stay_up: float, stay_down: float, prices: tuple[int, ...] = (300_000,)):
    size = len(prices)
    price = np.full((size, size), 0.3 / max(1, size - 1)) if size > 1 else np.ones((1, 1))
    if size > 1:
        np.fill_diagonal(price, 0.7)
    return MarketLaw(
        space=StateSpace(level_starts=(0, 2), age_starts=(1,), price_centres_ppm=prices),
        level_counts=(0, 2),
        run_ppb=quantised_rows(np.array([[stay_down, 1 - stay_down], [1 - stay_up, stay_up]])),
        price_ppb=quantised_rows(price),
    )


def terms_of(job: JobProgram, law: MarketLaw) -> TableTerms:
    return TableTerms(program=job, law=law, on_demand_price=PRICE, on_demand_available=10)


def expectimax(job: JobProgram, law: MarketLaw) -> float:
    """The best expected value less cost from the first slot of an idle job, by exhaustion."""
    run, price = law.run_matrix(), law.price_matrix()
    prices = [c * PRICE // 1_000_000 for c in law.space.price_centres_ppm]
    counts = law.level_counts
    sets = [Holding(spot=s, on_demand=n - s) for n in (0, 1, 2) for s in range(n + 1)]

    @cache
    def before(slot: int, r: int, p: int, state: JobProgress) -> float:
        best = -1e18
        for held in sets:
            if held.spot > counts[r]:
                continue
            cost = cost_micro_usd(prices[p], held.spot, job.slot_s)
            cost += cost_micro_usd(PRICE, held.on_demand, job.slot_s)
            after = advance(
                job,
                state,
                held,
                held_s=job.slot_s,
                interrupted=state.holding.spot > counts[r],
            )
            best = max(best, worth(slot, r, p, after) - cost)
        return best

    def worth(slot: int, r: int, p: int, after: JobProgress) -> float:
        if after.progress_quanta >= job.work_quanta:
            return job.value_micro_usd[slot + 1]
        if slot + 1 == job.deadline_slots:
            return late(after)
        return sum(
            run[r, s] * price[p, q] * before(slot + 1, s, q, after)
            for s in range(len(counts))
            for q in range(len(prices))
        )

    def late(after: JobProgress) -> float:
        left = job.work_quanta - after.progress_quanta
        slots = -(-left // (2 * job.slot_s))
        if job.deadline_slots + slots > job.end_slots:
            return 0.0
        earned = job.value_micro_usd[job.deadline_slots + slots]
        return max(0.0, earned - slots * cost_micro_usd(PRICE, 2, job.slot_s))

    # The first slot is up at the first price.
    return before(0, 1, 0, JobProgress())


def best_by_table(job: JobProgram, law: MarketLaw) -> float:
    """The same number, taken from the table by one look ahead."""
    table = build_table(terms_of(job, law))
    prices = [c * PRICE // 1_000_000 for c in law.space.price_centres_ppm]
    best = -1e18
    for index, held in enumerate(table.sets.holdings):
        cost = cost_micro_usd(prices[0], held.spot, job.slot_s)
        cost += cost_micro_usd(PRICE, held.on_demand, job.slot_s)
        after = advance(job, JobProgress(), held, held_s=job.slot_s)
        cell = (job.work_quanta - after.progress_quanta) / table.cell_quanta
        assert cell == int(cell)
        best = max(best, float(table.after[0, 1, 0, index, 0, int(cell) - 1]) - cost)
    return best


def looked_ahead(job: JobProgram, law: MarketLaw, *, even_cells: bool = False) -> float:
    """The same number as a decision finds it: between two cells it takes what lies between."""
    table = build_table(replace(terms_of(job, law), even_cells=even_cells))
    price = law.space.price_centres_ppm[0] * PRICE // 1_000_000
    # In run state 1: the level is up.
    offer = Offer(price, PRICE, 2, 10, job.slot_s, 0, 0, 1, 0, -1, 1)
    return best_value(table, Standing(0, 0, Held(0, 0), 0, 0, 0, 0), offer, job.work_quanta)


@pytest.mark.parametrize("stay_up", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("stay_down", [0.3, 0.8])
@pytest.mark.parametrize("grow_s", [0, 900])
@pytest.mark.parametrize("prices", [(300_000,), (200_000, 700_000)])
def test_a_table_equals_exhaustion(
    stay_up: float, stay_down: float, grow_s: int, prices: tuple[int, ...]
) -> None:
    job = program(grow_s=grow_s)
    law = two_level_law(stay_up, stay_down, prices)

    assert best_by_table(job, law) == pytest.approx(expectimax(job, law), rel=2e-6)


def test_less_work_left_is_never_worth_less() -> None:
    table = build_table(terms_of(program(grow_s=600), two_level_law(0.8, 0.6)))

    assert (np.diff(table.after.astype(np.float64), axis=-1) <= 1.0).all()


def test_equal_terms_have_one_name_and_other_terms_another() -> None:
    law = two_level_law(0.8, 0.6)

    assert table_id(terms_of(program(), law)) == table_id(terms_of(program(), law))
    assert table_id(terms_of(program(), law)) != table_id(terms_of(program(work=5), law))


def test_only_a_table_of_even_cells_is_named_by_them() -> None:
    before = terms_of(program(), two_level_law(0.8, 0.6))

    assert table_id(before) == ("9ddddd21c55fd0d6cc1f3e66ca6e8ff659eca4aa24feba90bfd6f135ca64e6b3")
    assert table_id(replace(before, even_cells=True)) != table_id(before)


@settings(max_examples=examples(200), deadline=None)
@given(
    rate=st.integers(1, 64),
    work=st.integers(1, 400),
    change_s=st.integers(0, 80).map(lambda steps: 15 * steps),
    broken_s=st.integers(0, 40).map(lambda steps: 30 * steps),
    cells=st.integers(40, 240),
)
def test_slots_and_changes_are_whole_numbers_of_an_even_cell(
    rate: int, work: int, change_s: int, broken_s: int, cells: int
) -> None:
    job = replace(
        program(work=work),
        rate_quanta_per_s=(0, max(1, rate // 2), rate),
        launch_s=change_s,
        grow_s=change_s,
        interrupted_s=broken_s,
    )

    cell = even_cell_quanta(job, cells, 2 * cells)

    if cell:
        for seconds in (job.slot_s, change_s, broken_s):
            assert rate * seconds % cell == 0
        assert -(-job.work_quanta // cell) <= 2 * cells
        least = -(-job.work_quanta // cells)
        assert cell <= least + least // 8


def test_the_coarsest_of_even_cells_is_taken_and_none_where_too_many_would_be_needed() -> None:
    # What a slot brings and a launch loses: 7,200 and 1,200 quanta.
    job = program(grow_s=600, work=40)

    assert even_cell_quanta(job, 120, 240) == 1_200
    assert even_cell_quanta(job, 130, 260) == 1_200
    assert even_cell_quanta(job, 150, 300) == 600
    assert even_cell_quanta(job, 239, 239) == 0
    # A launch of so many seconds has no even cell but one of a second.
    assert even_cell_quanta(program(grow_s=601, work=40), 240, 480) == 0


def test_a_life_too_long_for_even_cells_keeps_its_own() -> None:
    # So many slots that the fewest cells are more entries than a table has.
    terms = terms_of(program(deadline=600_000, work=500_000), two_level_law(0.8, 0.6))

    assert shape_of(replace(terms, even_cells=True)) == shape_of(terms)


@pytest.mark.parametrize("grow_s", [450, 600, 900])
def test_even_cells_equal_exhaustion_where_others_value_what_is_between_two_jumps(
    grow_s: int,
) -> None:
    job, law = program(grow_s=grow_s, work=7), two_level_law(0.6, 0.3)
    exact = expectimax(job, law)

    # 5, 7 and 58 % too little, and the next decision is none the wiser.
    assert looked_ahead(job, law) < 0.96 * exact
    assert looked_ahead(job, law, even_cells=True) == pytest.approx(exact, rel=2e-6)


def records(job: JobProgram, ups: str, law: MarketLaw) -> list[SlotRecord]:
    return [
        SlotRecord(
            spot_price=300_000,
            on_demand_price=PRICE,
            spot_available=2 if up == "u" else 0,
            on_demand_available=10,
            forecast=None,
            run_state=1 if up == "u" else 0,
        )
        for up in ups.ljust(job.end_slots, "d")
    ]


@pytest.mark.parametrize(("deadline", "first"), [(6, IDLE), (2, Holding(on_demand=2))])
def test_it_waits_for_spot_while_there_is_time_and_buys_when_there_is_none(
    deadline: int, first: Holding
) -> None:
    job = program(deadline=deadline, work=4)
    law = two_level_law(0.9, 0.4)
    table = build_table(terms_of(job, law))

    result = replay_policy(job, records(job, "dddddd", law), SDP, policy_named("msu"), table)

    assert result.holdings[0] == first


@pytest.mark.parametrize("ups", ["d", "ud", "udududud", "dudddddd"])
def test_a_hard_deadline_is_met_whatever_spot_does(ups: str) -> None:
    job = program(hard=True, grow_s=900, deadline=6, work=8)
    law = two_level_law(0.99, 0.01)  # a law that promises far too much
    table = build_table(terms_of(job, law))

    result = replay_policy(job, records(job, ups, law), SDP, policy_named("msu"), table)

    assert result.on_time


def view(job: JobProgram, law: MarketLaw, forecast: WindowForecast | None) -> PolicyView:
    return PolicyView(
        program=job,
        elapsed_slots=0,
        state=JobProgress(),
        interrupted=False,
        spot_price=300_000,
        on_demand_price=PRICE,
        spot_available=0,
        on_demand_available=10,
        forecast=forecast,
        slot_left_s=job.slot_s,
        outlook=Outlook(table=build_table(terms_of(job, law)), run_state=0),
    )


def test_a_hybrid_believes_its_forecast_over_the_law() -> None:
    job = program(deadline=3, work=6)  # no slot to lose: on demand now, or spot in every slot
    law = two_level_law(0.5, 0.5)
    promised = WindowForecast(spot_price=(100_000, 100_000), spot_available=(2, 2))
    denied = WindowForecast(spot_price=(100_000, 100_000), spot_available=(0, 0))
    easy = program(deadline=4, work=4)

    waits = ValueToGo(2).choose(view(easy, law, promised), ()).holding
    buys = ValueToGo(2).choose(view(job, law, denied), ()).holding

    assert waits == IDLE
    assert buys == Holding(on_demand=2)


def test_a_hybrid_without_a_forecast_is_the_plain_program() -> None:
    job = program(deadline=4, work=6, grow_s=300)
    law = two_level_law(0.7, 0.7)

    assert ValueToGo(5).choose(view(job, law, None), ()) == SDP.choose(view(job, law, None), ())


def test_without_a_table_all_useful_spot_is_held() -> None:
    job = program()
    seen = view(job, two_level_law(0.5, 0.5), None)
    untold = PolicyView(
        **{
            **{f: getattr(seen, f) for f in PolicyView.__dataclass_fields__},
            "outlook": None,
            "spot_available": 2,
        }
    )

    assert SDP.choose(untold, ()).holding == Holding(spot=2)


def test_surcharge_is_a_price_that_is_paid_later_only() -> None:
    law, job = two_level_law(0.9, 0.4), program(deadline=5)
    dearer = two_level_law(0.9, 0.4, prices=(500_000,))
    plain, priced = terms_of(job, law), replace(terms_of(job, law), spot_surcharge=200_000)

    assert table_id(replace(plain, spot_surcharge=0)) == table_id(plain) != table_id(priced)
    shown = build_table(priced).after
    assert np.array_equal(shown, build_table(terms_of(job, dearer)).after)
    assert (shown <= build_table(plain).after).all()
    assert (shown < build_table(plain).after).any()
