"""A job of another size trains the same rows in the same steps."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.trainer import DataOrder, StepBatches, accumulation_steps
from spotline.trainer.elastic import permuted


@st.composite
def orders(draw):
    return DataOrder(
        rows=draw(st.integers(1, 300)),
        global_batch=draw(st.sampled_from([4, 8, 12, 24])),
        seed=draw(st.none() | st.integers(-(2**63), 2**63)),
    )


@given(orders(), st.integers(0, 200), st.sampled_from([1, 2, 4]))
def test_ranks_of_any_number_train_the_rows_of_a_step_together(order, step, ranks):
    by_rank = [order.of_rank(step, rank=rank, ranks=ranks) for rank in range(ranks)]

    assert {len(rows) for rows in by_rank} == {order.global_batch // ranks}
    assert Counter(row for rows in by_rank for row in rows) == Counter(order.of_step(step))


@given(orders(), st.integers(0, 3))
def test_an_epoch_has_every_row_once(order, epoch):
    first = epoch * order.rows

    rows = [order.row(position) for position in range(first, first + order.rows)]

    assert sorted(rows) == list(range(order.rows))


@given(
    orders(),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 4])), min_size=1, max_size=5),
)
def test_rows_over_generations_of_other_sizes_are_those_of_an_undisturbed_run(order, generations):
    trained, step = [], 0
    for steps, ranks in generations:
        for at in range(step, step + steps):
            rows = [order.of_rank(at, rank=rank, ranks=ranks) for rank in range(ranks)]
            trained += [row for turn in zip(*rows, strict=True) for row in turn]
        step += steps

    assert trained == [order.row(position) for position in range(step * order.global_batch)]


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_a_permutation_meets_every_number_once(size, key):
    assert sorted(permuted(place, size, key=key) for place in range(size)) == list(range(size))


def test_epochs_and_seeds_have_orders_of_their_own():
    order = DataOrder(rows=1000, global_batch=1, seed=1)
    epochs = [tuple(order.row(epoch * 1000 + place) for place in range(1000)) for epoch in range(3)]
    other = DataOrder(rows=1000, global_batch=1, seed=2)

    assert len({*epochs, tuple(other.row(place) for place in range(1000)), tuple(range(1000))}) == 5
    # Rows that are neighbours do not stay together: as of a random order, about one pair does.
    assert sum(b - a == 1 for a, b in zip(epochs[0], epochs[0][1:], strict=False)) < 10


def test_a_million_rows_of_a_trillion_positions_need_no_table():
    order = DataOrder(rows=10**9, global_batch=1024, seed=3)

    rows = order.of_step(10**9)

    assert len(set(rows)) == 1024
    assert all(0 <= row < 10**9 for row in rows)


def test_accumulation_keeps_the_global_batch():
    assert [accumulation_steps(global_batch=32, per_rank=4, ranks=n) for n in (1, 2, 4, 8)] == [
        *(8, 4, 2, 1)
    ]


def test_ranks_that_cannot_keep_the_global_batch_are_told_which_can():
    with pytest.raises(ValueError, match=r"4 x 3 = 12\), was 32: .* 1, 2, 4, 8; state"):
        accumulation_steps(global_batch=32, per_rank=4, ranks=3)


@pytest.mark.parametrize("name", ["global_batch", "per_rank", "ranks"])
def test_sizes_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be > 0, was 0"):
        accumulation_steps(**{"global_batch": 4, "per_rank": 1, "ranks": 1, name: 0})


def test_no_rank_beyond_the_last():
    with pytest.raises(ValueError, match=r"rank must be >= 0 and < ranks \(2\), was 2"):
        DataOrder(rows=4, global_batch=4).of_rank(0, rank=2, ranks=2)


@pytest.mark.parametrize(("ranks", "per_rank"), [(1, 2), (2, 2), (1, 8), (4, 1)])
def test_batches_of_a_sampler_are_those_of_its_steps(ranks, per_rank):
    order = DataOrder(rows=50, global_batch=8, seed=5)
    batches = StepBatches(
        order=order, per_rank=per_rank, rank=0, ranks=ranks, first_step=3, last_step=6
    )

    assert len(batches) == len(list(batches)) == 3 * 8 // per_rank // ranks
    assert {len(batch) for batch in batches} == {per_rank}
    assert [row for batch in batches for row in batch] == [
        row for step in (3, 4, 5) for row in order.of_rank(step, rank=0, ranks=ranks)
    ]


def test_batches_without_an_end_have_no_length():
    order = DataOrder(rows=5, global_batch=2)
    batches = StepBatches(order=order, per_rank=2, rank=0, ranks=1, first_step=1)

    with pytest.raises(TypeError, match="give last_step"):
        len(batches)
    assert next(iter(batches)) == [2, 3]
