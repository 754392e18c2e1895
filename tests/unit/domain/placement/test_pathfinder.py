from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from spotline.domain.placement.free import Free, reservation_bytes_per_s
from spotline.domain.placement.interface import Residual
from spotline.domain.placement.pathfinder import grow_paths, largest_paths
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, graphs, job_of, queues


def free_of(graph):
    return Free.of(Residual.of(graph))


def test_the_widest_link_joins_first():
    free = free_of(graph_of([2, 2, 2], links={("a", "b"): 3e8, ("a", "c"): 9e8, ("b", "c"): 1e8}))

    grown = grow_paths(free, 4, 1e8, seeds=np.array([0]))

    assert grown.path(0) == [0, 2]


def test_a_path_grows_at_both_ends():
    links = {("a", "b"): 9e8, ("a", "c"): 8e8, ("b", "c"): 1.0}
    free = free_of(graph_of([2, 2, 2], links=links))

    grown = grow_paths(free, 6, 1e8, seeds=np.array([0]))

    assert grown.path(0) == [2, 0, 1]
    assert grown.joined(0) == [0, 1, 2]


def test_a_link_that_is_too_narrow_one_way_is_not_crossed():
    links = {("a", "b"): 9e8, ("b", "a"): 1e6}

    grown = grow_paths(free_of(graph_of([2, 2], links=links)), 4, 1e8)

    assert grown.gpus.tolist() == [2, 2]


def test_growth_stops_as_soon_as_there_are_enough_gpus():
    grown = grow_paths(free_of(graph_of([4, 4, 4])), 8, 1.0)

    assert grown.gpus.tolist() == [8, 8, 8]


def test_a_region_without_a_free_gpu_is_no_bridge():
    links = {("a", "b"): 9e8, ("b", "c"): 9e8, ("a", "c"): 0.0}

    grown = grow_paths(free_of(graph_of([2, 0, 2], links=links)), 4, 1e8)

    assert grown.seeds.tolist() == [0, 2]
    assert grown.gpus.tolist() == [2, 2]


def test_no_path_is_longer_than_asked():
    grown = grow_paths(free_of(graph_of([1] * 6)), 6, 1.0, max_regions=3)

    assert grown.members.sum(axis=1).tolist() == [3] * 6


def test_fewer_stages_cross_links_that_more_could_not():
    # 16 stages ask for 1.6e9 bytes/s of a link that has 1e9: ten stages do not.
    job = job_of(min_gpus=2, max_gpus=16, stage_overhead_s=0.0)
    free = free_of(graph_of([8, 8], width=1e9))

    gpus, grown = largest_paths(job, free, job.best_gpus)

    assert gpus == 10
    assert grown.gpus.max() >= 10


@settings(max_examples=examples(80), deadline=None)
@given(graph=graphs(), queue=queues(most_jobs=2))
def test_paths_are_simple_and_none_of_their_links_makes_a_stage_wait(graph, queue):
    free = free_of(graph)
    for job in queue:
        gpus, grown = largest_paths(job, free, job.best_gpus)
        least = reservation_bytes_per_s(job, gpus)
        for seed in range(len(grown.seeds)):
            path = grown.path(seed)
            assert len(set(path)) == len(path)
            assert sorted(path) == np.flatnonzero(grown.members[seed]).tolist()
            assert int(free.gpus[path].sum()) == grown.gpus[seed]
            if len(path) > 1:
                width = free.bottleneck_bytes_per_s(path)
                assert width >= least
                assert job.activation_bytes / width <= job.stage_s(gpus) * (1 + 1e-9)
