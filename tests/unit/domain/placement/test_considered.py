from __future__ import annotations

import math

import pytest

from spotline.domain.placement.considered import consider
from spotline.domain.placement.methods.registry import METHODS, method_named
from spotline.domain.placement.methods.spotline import Spotline
from spotline.domain.placement.pipeline import NoPlacement, Placement
from tests.unit.domain.placement.worlds import graph_of, job_of, moment_of


@pytest.mark.parametrize("name", [name for name in METHODS if name != "exact"])
def test_what_a_method_takes_is_among_the_paths_and_marked(name):
    moment = moment_of(graph_of([10, 12, 6], price=[1.0, 2.0, 0.5], egress=0.01))

    found = consider(job_of(), moment, method_named(name))

    assert isinstance(found.answer, Placement)
    chosen = [path for path in found.paths if path.chosen]
    assert [path.placement.path for path in chosen] == [found.answer.path]
    assert len({path.placement.path for path in found.paths}) == len(found.paths) > 3


def test_ours_takes_the_path_of_least_score():
    found = consider(
        job_of(), moment_of(graph_of([10, 12, 6], price=[1.0, 2.0, 0.5], width=1e10)), Spotline()
    )

    scores = [path.score_usd for path in found.paths]
    assert scores == sorted(scores)
    assert found.paths[0].chosen


def test_a_path_names_its_narrowest_link_and_a_region_has_none():
    graph = graph_of([10, 10], links={("a", "b"): 3e9, ("b", "a"): 2e9}, egress=0.01)

    paths = consider(job_of(), moment_of(graph), Spotline()).paths

    alone = [path for path in paths if len(path.placement.path) == 1]
    across = [path for path in paths if len(path.placement.path) == 2]
    assert all(
        path.bottleneck is None and math.isinf(path.bottleneck_bytes_per_s) for path in alone
    )
    assert all(set(path.bottleneck) == {"a", "b"} for path in across)
    assert all(path.bottleneck_bytes_per_s == 2e9 for path in across)
    assert all(path.cost.egress_usd > 0 for path in across)
    assert all(path.cost.egress_usd == 0 for path in alone)


def test_a_job_that_fits_nowhere_has_no_paths():
    found = consider(job_of(min_gpus=30), moment_of(graph_of([5, 5])), Spotline())

    assert isinstance(found.answer, NoPlacement)
    assert found.paths == ()


def test_a_path_and_its_reverse_are_shown_once():
    paths = consider(job_of(), moment_of(graph_of([10, 10], width=1e10)), Spotline()).paths

    ways = [
        frozenset((share.region_id, share.gpus) for share in path.placement.path) for path in paths
    ]
    assert len(set(ways)) == len(ways)
