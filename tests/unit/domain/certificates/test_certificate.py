"""What nobody who does not foresee can exceed: on tiny worlds, with every future weighed."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.certificates.certificate import (
    Certificate,
    DrawnFutures,
    Foresight,
    certify,
    foresight_of,
    futures_of,
    interval_95,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.law import MarketLaw, StateSpace, quantised_rows
from spotline.domain.policies.compiled import MarketSeries, clairvoyant_many, replay_pool
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import JobResult
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import build_table
from spotline.domain.units import PPM, cost_micro_usd
from tests.depth import examples

PRICE = 1_000_000
START = (1, 0)
SLOTS = 4
POLICIES = ("on_demand_only", "msu", "uniform_progress", "ahanp(0.6)")


def program(*, hard: bool = False, overhead_s: int = 900, work: int = 5) -> JobProgram:
    """Two instances at most, four slots of an hour, two more in which a soft value falls."""
    end = SLOTS if hard else SLOTS + 2
    value = 9_000_000
    return JobProgram(
        slot_s=3_600,
        work_quanta=work * 3_600,
        rate_quanta_per_s=(0, 1, 2),
        allowed_counts=(1, 2),
        launch_s=overhead_s,
        grow_s=overhead_s,
        shrink_s=overhead_s // 2,
        interrupted_s=overhead_s,
        deadline_slots=SLOTS,
        end_slots=end,
        hard=hard,
        value_micro_usd=tuple(
            value if t <= SLOTS else value * (end - t) // (end - SLOTS) for t in range(end + 1)
        ),
    )


def law(stay_up: float = 0.7, stay_down: float = 0.6) -> MarketLaw:
    """One instance of spot or two, at two prices."""
    return MarketLaw(
        space=StateSpace(
            level_starts=(0, 2), age_starts=(1,), price_centres_ppm=(200_000, 700_000)
        ),
        level_counts=(0, 2),
        run_ppb=quantised_rows(np.array([[stay_down, 1 - stay_down], [1 - stay_up, stay_up]])),
        price_ppb=quantised_rows(np.array([[0.7, 0.3], [0.4, 0.6]])),
    )


def terms_of(job: JobProgram, market: MarketLaw) -> TableTerms:
    return TableTerms(program=job, law=market, on_demand_price=PRICE, on_demand_available=10)


def all_futures(market: MarketLaw) -> tuple[DrawnFutures, np.ndarray]:
    """Every future of four slots from the start, and how likely it is."""
    run, price = market.run_matrix(), market.price_matrix()
    walks = [(START, *rest) for rest in itertools.product(np.ndindex(2, 2), repeat=SLOTS - 1)]
    chance = [
        float(np.prod([run[a[0], b[0]] * price[a[1], b[1]] for a, b in itertools.pairwise(walk)]))
        for walk in walks
    ]
    laid = np.array(walks, dtype=np.int64)
    return DrawnFutures(run=laid[:, :, 0].copy(), price=laid[:, :, 1].copy()), np.array(chance)


def series_of(job: JobProgram, market: MarketLaw, futures: DrawnFutures) -> MarketSeries:
    """One future after another, each as long as a job may live."""
    longer = np.pad(futures.run, ((0, 0), (0, job.end_slots - SLOTS)), mode="edge").ravel()
    prices = np.pad(futures.price, ((0, 0), (0, job.end_slots - SLOTS)), mode="edge").ravel()
    centres = np.array(market.space.price_centres_ppm, dtype=np.int64)
    return MarketSeries(
        spot_price=centres[prices] * PRICE // PPM,
        on_demand_price=np.full(prices.size, PRICE, dtype=np.int64),
        spot_available=market.run_counts()[longer],
        on_demand_available=np.full(prices.size, 10, dtype=np.int64),
        run_state=longer,
    )


def played(
    job: JobProgram, market: MarketLaw, futures: DrawnFutures
) -> list[tuple[JobResult, ...]]:
    """What policies do on every future; `sdp`, the best of them, comes last."""
    series = series_of(job, market, futures)
    pool = [*map(policy_named, POLICIES), SDP]
    table = build_table(terms_of(job, market))
    return [
        replay_pool(
            job,
            series.records(future * job.end_slots, job.end_slots),
            pool,
            policy_named(FALLBACK_POLICY_ID),
            table,
        )
        for future in range(len(futures))
    ]


def optimum(job: JobProgram, market: MarketLaw) -> float:
    """The most that any online policy earns from the start, by exhaustion."""
    run, price, counts = market.run_matrix(), market.price_matrix(), market.level_counts
    prices = [c * PRICE // PPM for c in market.space.price_centres_ppm]
    sets = [Holding(spot=s, on_demand=n - s) for n in (0, 1, 2) for s in range(n + 1)]

    @cache
    def opens(slot: int, r: int, p: int, state: JobProgress) -> float:
        broken = state.holding.spot > counts[r]
        return max(
            after(slot, r, p, advance(job, state, held, held_s=job.slot_s, interrupted=broken))
            - cost_micro_usd(prices[p], held.spot, job.slot_s)
            - cost_micro_usd(PRICE, held.on_demand, job.slot_s)
            for held in sets
            if held.spot <= counts[r]
        )

    def after(slot: int, r: int, p: int, state: JobProgress) -> float:
        left = job.work_quanta - state.progress_quanta
        if left <= 0:
            return job.value_micro_usd[slot + 1]
        if slot + 1 == SLOTS:
            slots = -(-left // (2 * job.slot_s))
            if SLOTS + slots > job.end_slots:
                return 0.0
            paid = slots * cost_micro_usd(PRICE, 2, job.slot_s)
            return max(0.0, job.value_micro_usd[SLOTS + slots] - paid)
        return sum(
            run[r, s] * price[p, q] * opens(slot + 1, s, q, state) for s, q in np.ndindex(2, 2)
        )

    return opens(0, *START, JobProgress())


def ceiling_of(found: Certificate, chance: np.ndarray) -> float:
    return float(found.penalised @ chance)


@pytest.mark.parametrize("stay", [(0.9, 0.3), (0.5, 0.8)])
@pytest.mark.parametrize("overhead_s", [0, 900, 5_400])
def test_charged_by_the_true_value_every_future_earns_the_optimum(
    stay: tuple[float, float], overhead_s: int
) -> None:
    job, market = program(overhead_s=overhead_s), law(*stay)
    futures, _ = all_futures(market)

    found = certify(foresight_of(terms_of(job, market)), futures)

    assert found.exact
    assert found.penalised == pytest.approx(optimum(job, market), rel=2e-6)


def coarse(job: JobProgram, market: MarketLaw) -> Foresight:
    """A poor guess of the value: of another law, on few cells and few sets."""
    other = law(0.5, 0.5)
    rough = foresight_of(terms_of(job, other), most_entries=4_000)
    return Foresight(
        terms=terms_of(job, market),
        spot_counts=rough.spot_counts,
        spot_prices=rough.spot_prices,
        opening=rough.opening,
        cell_quanta=rough.cell_quanta,
        pending_s=rough.pending_s,
        sets=rough.sets,
    )


@pytest.mark.parametrize("hard", [False, True])
def test_who_does_not_foresee_pays_nothing_on_average_whatever_it_is_charged_by(
    hard: bool,
) -> None:
    job, market = program(hard=hard), law()
    futures, chance = all_futures(market)
    results = played(job, market, futures)

    for foresight in (foresight_of(terms_of(job, market)), coarse(job, market)):
        paid = np.array(
            [
                [foresight.charged(futures, future, one.holdings) for one in row]
                for future, row in enumerate(results)
            ]
        )
        assert np.abs(paid).max() > 10_000.0
        assert chance @ paid == pytest.approx(np.zeros(paid.shape[1]), abs=1e-3)


@pytest.mark.parametrize("hard", [False, True])
def test_the_ceiling_lies_between_every_policy_and_the_clairvoyant(hard: bool) -> None:
    job, market = program(hard=hard), law()
    futures, chance = all_futures(market)
    earned = np.array(
        [[one.utility_micro_usd for one in row] for row in played(job, market, futures)]
    )

    for foresight in (foresight_of(terms_of(job, market)), coarse(job, market)):
        found = certify(foresight, futures)
        assert ceiling_of(found, chance) >= (chance @ earned).max() - 1.0
    tight = certify(foresight_of(terms_of(job, market)), futures)
    assert ceiling_of(tight, chance) < float(tight.clairvoyant @ chance) - 10_000.0


def test_on_no_future_does_a_schedule_earn_more_than_the_best_that_pays_as_much() -> None:
    job, market = program(), law()
    futures, _ = all_futures(market)
    foresight = coarse(job, market)
    found = certify(foresight, futures)

    for future, row in enumerate(played(job, market, futures)):
        for one in row:
            less = one.utility_micro_usd - foresight.charged(futures, future, one.holdings)
            assert less <= found.penalised[future] + 1e-3


def test_foresight_that_is_free_earns_what_the_clairvoyant_does() -> None:
    job, market = program(), law()
    futures, _ = all_futures(market)

    found = certify(foresight_of(terms_of(job, market)), futures)

    starts = np.arange(len(futures)) * job.end_slots
    best = clairvoyant_many(job, series_of(job, market, futures), starts)
    assert found.clairvoyant.tolist() == best.upper_utility_micro_usd.tolist()


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(st.integers(0, 600_000), min_size=SLOTS, max_size=SLOTS))
def test_a_surcharge_with_what_it_brings_in_is_a_ceiling_too(surcharge: list[int]) -> None:
    job, market = program(), law()
    futures, chance = all_futures(market)
    plain = ceiling_of(certify(foresight_of(terms_of(job, market)), futures), chance)

    charged = np.array(surcharge)
    dear = foresight_of(terms_of(job, market), surcharge_micro_usd=charged)
    ceiling = ceiling_of(certify(dear, futures), chance)

    brought_in = float(chance @ (market.run_counts()[futures.run] @ charged))
    assert ceiling <= plain + 1.0
    assert ceiling + brought_in >= plain - 1.0


def test_what_slots_are_worth_as_they_open_is_what_value_tables_expect() -> None:
    job, market = program(), law()
    terms = terms_of(job, market)
    foresight, table = foresight_of(terms), build_table(terms)
    run, price = market.run_matrix(), market.price_matrix()
    every = foresight.cell_quanta // table.cell_quanta
    at = [foresight.sets[1][h.spot, h.on_demand] for h in table.sets.holdings]

    for slot in range(1, SLOTS):
        expected = np.einsum("rs,pq,sqclj->rpclj", run, price, foresight.opening[slot])
        same = table.after[slot - 1][..., every - 1 :: every]
        assert expected[:, :, at] == pytest.approx(same, rel=1e-5, abs=5.0)


def test_futures_follow_their_law() -> None:
    market = law()
    uniforms = np.random.Generator(np.random.PCG64(3)).random((2, 4_000, 6))

    drawn = futures_of(market, uniforms)

    before, after = drawn.run[:, 3], drawn.run[:, 4]
    up = (after[before == 1] == 1).mean()
    assert up == pytest.approx(0.7, abs=0.04)
    assert drawn.run[:, 0].mean() == pytest.approx(market.run_chances()[1], abs=0.03)
    assert set(futures_of(market, uniforms, first=START).run[:, 0].tolist()) == {1}


def test_wrong_input_is_refused_by_what_was_expected() -> None:
    terms = terms_of(program(), law())
    futures, _ = all_futures(law())

    with pytest.raises(ValueError, match=r"shape \(2, futures, slots\)"):
        futures_of(law(), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="surcharge_micro_usd must be >= 0 in each of 4 slots"):
        foresight_of(terms, surcharge_micro_usd=np.array([1, 2]))
    with pytest.raises(ValueError, match="reach 4 slots"):
        certify(
            foresight_of(terms), DrawnFutures(run=futures.run[:, :2], price=futures.price[:, :2])
        )
    with pytest.raises(ValueError, match="one shape"):
        DrawnFutures(run=futures.run, price=futures.price[:, :2])


def test_an_interval_needs_two_values() -> None:
    assert interval_95(np.array([1.0])) == (-np.inf, np.inf)
    low, high = interval_95(np.array([1.0, 2.0, 3.0]))
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2.0 == pytest.approx(1.96 / 3**0.5, rel=1e-3)
