"""What is where at one moment of a run, for the map-like picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotline.bench.placement.course import MethodRun, PlacedStay
from spotline.bench.placement.setting import Setting

_BYTES_PER_GBIT = 1e9 / 8


def picture(
    setting: Setting, course: MethodRun, places: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """The moment at which most jobs span regions (then: most run; then: the first).

    Parameters
    ----------
    places
        Longitude and latitude of every region, degrees.
    """
    stays = [stay for one in course.jobs.values() for stay in one.placements]
    moments = sorted({stay.start_s for stay in stays})
    at_s = min(moments, key=lambda now_s: (*_counted(stays, now_s), now_s), default=0.0)
    used: dict[str, int] = dict.fromkeys(setting.graph.region_ids, 0)
    jobs = []
    for job_id, one in sorted(course.jobs.items()):
        for stay in one.placements:
            if not stay.start_s <= at_s < stay.end_s:
                continue
            for share in stay.placement.path:
                used[share.region_id] += share.gpus
            jobs.append(
                {
                    "job_id": job_id,
                    "model": one.job.model_name,
                    "path": [[share.region_id, share.gpus] for share in stay.placement.path],
                }
            )
    graph = setting.graph
    return {
        "setting": setting.name,
        "method": course.method_id,
        "at_s": at_s,
        "regions": [
            {
                "region_id": region.region_id,
                "longitude": places[region.region_id][0],
                "latitude": places[region.region_id][1],
                "gpus": region.gpus,
                "used": used[region.region_id],
                "usd_per_gpu_hour": float(setting.prices.at(at_s)[place]),
            }
            for place, region in enumerate(graph.regions)
        ],
        "links": [
            {
                "ends": [here, there],
                "gbit_per_s": float(
                    min(
                        graph.bytes_per_s[graph.index[here], graph.index[there]],
                        graph.bytes_per_s[graph.index[there], graph.index[here]],
                    )
                    / _BYTES_PER_GBIT
                ),
            }
            for here in graph.region_ids
            for there in graph.region_ids
            if here < there
        ],
        "jobs": jobs,
    }


def _counted(stays: list[PlacedStay], now_s: float) -> tuple[int, int]:
    running = [stay for stay in stays if stay.start_s <= now_s < stay.end_s]
    return -sum(len(stay.placement.path) > 1 for stay in running), -len(running)
