from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.placement.cost_min import cheapest_split, cheapest_splits, split_in_order

rooms_and_prices = st.integers(1, 4).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(1, 4), min_size=count, max_size=count),
        st.lists(st.integers(-2, 5), min_size=count, max_size=count),
    )
)


def test_one_gpu_stays_in_the_dear_region_and_the_rest_go_where_they_are_cheap():
    split = cheapest_split([2, 0, 1], 9, np.array([5, 5, 5]), np.array([1.0, 2.0, 3.0]))

    assert split == [1, 5, 3]


@given(drawn=rooms_and_prices, data=st.data())
def test_no_split_of_a_path_is_cheaper(drawn, data):
    rooms, prices = drawn
    gpus = data.draw(st.integers(len(rooms), sum(rooms)))
    price = np.array(prices, dtype=np.float64)

    split = cheapest_split(range(len(rooms)), gpus, np.array(rooms), price)

    assert sum(split) == gpus
    least = min(
        sum(count * usd for count, usd in zip(counts, prices, strict=True))
        for counts in product(*(range(1, room + 1) for room in rooms))
        if sum(counts) == gpus
    )
    assert float(np.array(split) @ price) == least


@given(drawn=rooms_and_prices, data=st.data())
def test_many_paths_at_once_split_like_each_alone(drawn, data):
    rooms, prices = drawn
    paths = data.draw(
        st.lists(
            st.lists(st.integers(0, len(rooms) - 1), min_size=1, unique=True),
            min_size=1,
            max_size=4,
        )
    )
    members = np.zeros((len(paths), len(rooms)), dtype=bool)
    gpus = []
    for row, path in enumerate(paths):
        members[row, path] = True
        gpus.append(data.draw(st.integers(len(path), sum(rooms[region] for region in path))))
    free, price = np.array(rooms), np.array(prices, dtype=np.float64)

    found = cheapest_splits(members, np.array(gpus), free, price)

    for row, path in enumerate(paths):
        alone = cheapest_split(path, gpus[row], free, price)
        assert [found[row, region] for region in path] == alone
        assert found[row].sum() == gpus[row]


def test_without_the_stage_regions_fill_in_the_order_they_joined():
    assert split_in_order([2, 0, 1], 9, np.array([5, 5, 5])) == [5, 3, 1]


@pytest.mark.parametrize("gpus", [2, 16])
def test_a_count_that_does_not_fit_the_path_is_refused(gpus):
    with pytest.raises(ValueError, match="gpus must be >= one per region"):
        cheapest_split([0, 1, 2], gpus, np.array([5, 5, 5]), np.ones(3))
