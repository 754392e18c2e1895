"""Deadlines: who meets them, who is refused, and how many could have been met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotline.bench.placement.admission import Admitting, most_deadlines
from spotline.bench.placement.setting import Disruption, Setting, scaled
from spotline.bench.placement.settings_paper import drawn_setting, paper_setting
from spotline.bench.placement.sweeps import (
    COMPARED,
    FAILURE_AT_S,
    FAILURE_S,
    OURS,
    Contender,
    RunTally,
    chosen,
)

SLACKS = (0.9, 1.2, 1.5, 2.0, 3.0)
QUEUE_SLACKS = (1.2, 1.5)
QUEUE_JOBS = 5
_QUEUE_SEED = 2000

Figures = dict[str, Any]

_COUNTED = ("deadlines", "deadlines_met", "refused", "refused_after_waiting", "late", "late_struck")


def due(setting: Setting, slack: float, *, every: int = 2) -> Setting:
    """The setting with every so many-th job due `slack` times its shortest time after arrival."""
    return replace(
        setting,
        jobs=tuple(
            replace(
                job,
                deadline_s=job.arrival_s + slack * job.iterations * job.iteration_s(job.best_gpus),
            )
            if place % every == 0
            else job
            for place, job in enumerate(setting.jobs)
        ),
    )


def deadlines(tally: RunTally, tables: int) -> Figures:
    """Every second job is due; then small queues of which all are; then with a region lost."""
    settings = [paper_setting(), *(drawn_setting(seed) for seed in range(tables))]
    return {
        "slacks": {
            f"{slack:g}": _measured(tally, [due(setting, slack) for setting in settings])
            for slack in SLACKS
        },
        "queues": {
            f"{slack:g}": _measured(
                tally, [_queue(_QUEUE_SEED + seed, slack) for seed in range(tables)]
            )
            for slack in QUEUE_SLACKS
            if tables
        },
        "after_loss": {
            f"{slack:g}": _summed(
                [
                    tally.measure(_losing(due(setting, slack), place), chosen((OURS,)))
                    for place, setting in enumerate(settings)
                ]
            )[OURS]
            for slack in SLACKS
        },
    }


def _measured(tally: RunTally, settings: Sequence[Setting]) -> Figures:
    admitting = {
        name: Contender(Admitting(one.method))
        for name, one in chosen(COMPARED).items()
        if name != OURS
    }
    return {
        "methods": _summed([tally.measure(setting, chosen()) for setting in settings]),
        "admitting": _summed([tally.measure(setting, admitting) for setting in settings]),
        "most": sum(most_deadlines(setting) for setting in settings),
    }


def _summed(runs: Sequence[Mapping[str, Mapping[str, float | int]]]) -> Figures:
    return {
        name: {key: sum(int(run[name][key]) for run in runs) for key in _COUNTED}
        for name in runs[0]
    }


def _queue(seed: int, slack: float) -> Setting:
    """Five jobs that arrive together, all due, where half the GPUs make them compete."""
    setting = drawn_setting(seed, QUEUE_JOBS, least_largest_gpus=128)
    jobs = tuple(replace(job, arrival_s=0.0) for job in setting.jobs)
    return scaled(due(replace(setting, jobs=jobs), slack, every=1), gpus=0.5)


def _losing(setting: Setting, place: int) -> Setting:
    ids = setting.graph.region_ids
    lost = Disruption(
        at_s=FAILURE_AT_S,
        until_s=FAILURE_AT_S + FAILURE_S,
        region_id=ids[place % len(ids)],
    )
    return replace(setting, disruptions=(lost,))
