"""Laws of up and down runs by age, their mixes, and the belief over them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.cant_be_late.table_runs import filter_beliefs
from spotline.bench.cant_be_late.ticks import Windows
from spotline.domain.market.run_law import (
    RunLaw,
    common_law,
    count_runs,
    learn_mix,
    mix_of,
    own_law,
)
from tests.depth import examples
from tests.reference.run_tracker import RunTracker

AGES = (1, 2, 4)


def law(down=(0.5, 0.5, 0.5), up=(0.5, 0.5, 0.5)):
    return RunLaw(age_starts=AGES, ends=np.array([down, up]))


def series(text):
    return np.array([int(flag) for flag in text], dtype=np.uint8)


def drawn(a_law, slots, seed):
    generator = np.random.default_rng(seed)
    flags, up, age = [], 1, 1
    for _ in range(slots):
        flags.append(up)
        bucket = int(np.searchsorted(np.array(a_law.age_starts), age, side="right")) - 1
        if generator.random() < a_law.ends[up, bucket]:
            up, age = 1 - up, 1
        else:
            age += 1
    return np.array(flags, dtype=np.uint8)


def test_runs_are_counted_by_age_without_the_first_whose_age_is_unknown():
    counts = count_runs(series("110001101"), AGES)

    # Down run of 3 (ages 1, 2, 3), up run of 2 (1, 2), down run of 1; the last up slot has no next.
    assert counts.slots.tolist() == [[2, 2, 0], [1, 1, 0]]
    assert counts.ends.tolist() == [[1, 1, 0], [0, 1, 0]]


def test_a_series_that_never_changes_teaches_nothing_about_ends():
    counts = count_runs(series("11111111"), AGES)

    assert counts.slots.sum() == 0


def test_ages_must_ascend_from_one():
    with pytest.raises(ValueError, match="ascend from 1"):
        RunLaw(age_starts=(2, 3), ends=np.full((2, 2), 0.5))


def test_transitions_are_probabilities_and_ends_lead_to_a_fresh_run():
    matrix = law(down=(0.1, 0.2, 0.3), up=(0.4, 0.5, 0.6)).transition()

    assert np.allclose(matrix.sum(axis=1), 1.0)
    assert matrix[3, 0] == pytest.approx(0.4)
    assert matrix[2, 3] == pytest.approx(0.3)
    # The bucket of ages 2 and 3 is left after two slots on average.
    assert matrix[4, 5] == pytest.approx(0.5 * 0.5)


def test_flattening_up_runs_forgets_their_age_and_keeps_down_runs():
    true = law(down=(0.6, 0.3, 0.1), up=(0.4, 0.2, 0.1))

    flat = true.flattened_up(0.0)

    assert np.allclose(flat.ends[1], 0.2)
    assert np.allclose(flat.ends[0], true.ends[0])
    assert np.allclose(true.flattened_up(1.0).ends, true.ends)


def test_expected_slots_left_of_a_memoryless_law_is_geometric():
    left = law(up=(0.25, 0.25, 0.25)).slots_left()

    assert np.allclose(left, 3.0)


def test_stationary_shares_of_a_symmetric_law_are_even():
    share = law().stationary()

    assert share[:3].sum() == pytest.approx(0.5)


def test_a_markets_own_law_stays_near_the_common_one_until_it_has_seen_enough():
    common = law(down=(0.2, 0.2, 0.2), up=(0.2, 0.2, 0.2))
    little = count_runs(series("0110"), AGES)

    own = own_law(little, common)

    assert np.abs(own.ends - common.ends).max() < 0.05


def test_learning_recovers_hazards_that_fall_with_age():
    true = law(down=(0.6, 0.3, 0.05), up=(0.5, 0.2, 0.02))

    learned = common_law([count_runs(drawn(true, 60_000, 3), AGES)], AGES)

    assert np.abs(learned.ends - true.ends).max() < 0.03


def test_learning_from_no_market_is_refused():
    with pytest.raises(ValueError, match="at least one market"):
        learn_mix([])


def test_laws_of_one_mix_share_their_ages():
    other = RunLaw(age_starts=(1, 5), ends=np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="share their age buckets"):
        mix_of([law(), other], [1.0, 1.0])


def test_weights_find_the_law_that_drew_the_series():
    flapping = law(down=(0.5, 0.5, 0.5), up=(0.5, 0.5, 0.5))
    lasting = law(down=(0.05, 0.05, 0.05), up=(0.05, 0.05, 0.05))
    tracker = RunTracker(mix_of([flapping, lasting], [0.5, 0.5]))

    for flag in drawn(lasting, 80, 5):
        tracker.observe(bool(flag))

    assert tracker.law_weights()[1] > 0.99


@settings(max_examples=examples(30), deadline=None)
@given(flags=st.lists(st.booleans(), min_size=1, max_size=40))
def test_belief_is_a_distribution_over_states_that_agree_with_what_was_seen(flags):
    mix = mix_of([law(), law(up=(0.1, 0.1, 0.1))], [1.0, 3.0])
    tracker = RunTracker(mix)

    for flag in flags:
        belief = tracker.observe(flag)

    assert belief.sum() == pytest.approx(1.0)
    assert (belief[mix.chain.up != flags[-1]] == 0.0).all()


def test_tracker_and_compiled_filter_agree_and_neither_looks_ahead():
    mix = learn_mix([drawn(law(), 400, 1), drawn(law(up=(0.1, 0.1, 0.1)), 400, 2)])
    up = drawn(law(), 60, 7)
    altered = up.copy()
    altered[30:] = 1 - altered[30:]
    start = np.zeros(1, dtype=np.int64)

    def filtered(flags):
        windows = Windows(up=flags[:, np.newaxis], starts=start)
        return filter_beliefs(windows, 0, 60, mix.chain, mix.first)[0]

    tracker = RunTracker(mix)
    step_by_step = np.array([tracker.observe(bool(flag)) for flag in up])

    assert np.allclose(filtered(up), step_by_step, atol=1e-6)
    assert (filtered(up)[:30] == filtered(altered)[:30]).all()


def test_an_open_first_run_counts_from_the_last_bucket_on():
    up = np.array([1] * 10 + [0, 1], dtype=np.uint8)
    without, with_first = count_runs(up, (1, 4)), count_runs(up, (1, 4), open_first=True)
    # Of ten slots the last seven are at least four slots old, whenever the run began.
    assert (with_first.slots - without.slots).tolist() == [[0, 0], [0, 7]]
    assert (with_first.ends - without.ends).tolist() == [[0, 0], [0, 1]]
    always = count_runs(np.ones(10, dtype=np.uint8), (1, 4), open_first=True)
    assert (always.slots[1].tolist(), always.ends.sum()) == ([0, 6], 0)
