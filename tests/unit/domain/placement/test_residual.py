from __future__ import annotations

import numpy as np
import pytest

from spotline.domain.placement.interface import PlacementMoment, Residual
from spotline.domain.placement.pipeline import Placement, RegionShare
from tests.unit.domain.placement.worlds import graph_of


def placement_of(path, reserved=0.0):
    return Placement(
        job_id="job",
        path=tuple(RegionShare(region_id=name, gpus=gpus) for name, gpus in path),
        reserved_bytes_per_s=reserved,
        iteration_s=1.0,
        usd_per_iteration=0.0,
    )


def test_taking_and_giving_back_restores_what_was_free_exactly():
    graph = graph_of([8, 8, 8], width=1e9 / 3)
    residual = Residual.of(graph)
    placements = [placement_of([("a", 2), ("b", 1), ("c", 2)], float(1e8 // 7)) for _ in range(3)]

    for placement in placements:
        residual.take(placement)
    for placement in reversed(placements):
        residual.give_back(placement)

    assert (residual.gpus == graph.gpus).all()
    assert (residual.bytes_per_s == np.floor(graph.bytes_per_s)).all()


def test_a_placement_holds_its_links_in_both_directions():
    residual = Residual.of(graph_of([8, 8], width=1e9))

    residual.take(placement_of([("a", 2), ("b", 3)], 4e8))

    assert residual.gpus.tolist() == [6, 5]
    assert residual.bytes_per_s[0, 1] == residual.bytes_per_s[1, 0] == 6e8


@pytest.mark.parametrize(
    "placement",
    [
        placement_of([("a", 2), ("b", 9)], 1e8),
        placement_of([("a", 2), ("b", 2)], 2e9),
        placement_of([("a", 2), ("nowhere", 2)], 1e8),
    ],
    ids=["gpus", "bandwidth", "region"],
)
def test_what_does_not_fit_is_refused_and_nothing_is_taken(placement):
    residual = Residual.of(graph_of([8, 8], width=1e9))

    with pytest.raises(ValueError, match="placement of job must fit into what is free"):
        residual.take(placement)

    assert residual.gpus.tolist() == [8, 8]
    assert residual.bytes_per_s[0, 1] == 1e9


def test_a_graph_that_shrank_below_what_is_held_shows_by_how_much():
    held = placement_of([("a", 6), ("b", 2)], 4e8)

    residual = Residual.of(graph_of([4, 8], width=3e8), [held])

    assert residual.gpus.tolist() == [-2, 6]
    assert residual.bytes_per_s[0, 1] == -1e8


def test_prices_of_another_graph_are_refused():
    with pytest.raises(ValueError, match=r"one price per region \(2\)"):
        PlacementMoment(
            now_s=0.0, usd_per_gpu_hour=np.ones(3), residual=Residual.of(graph_of([4, 4]))
        )
