"""What is known when the reported half begins: nothing, priors, or the market's first half."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.selector.state import SelectorOptions
from spotline.bench.fleet.cells import COLD, PRIOR, STARTS, WARM
from spotline.bench.fleet.instance import LaidCrowd, training_jobs
from spotline.bench.fleet.markets import FleetMarket
from spotline.bench.fleet.policies import run_policy
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.selection.saved import saved_from
from spotline.replay.clouds import Information
from spotline.replay.course import MarketCourse, course_of
from spotline.replay.summary import SPOTLINE

HORIZON_SLOTS = 6
PRIORS_ABSENT = "this version ships no priors: prior is run as cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The market as it goes, the selector's options, and what is to be said about the start."""

    course: MarketCourse
    options: SelectorOptions
    note: str = ""


def start_of(
    start: str, source: FleetMarket, instance: LaidCrowd, options: SelectorOptions
) -> Started:
    """Prepare a start.

    Cold, forecasts and the selector begin with the reported half. Warm, they have seen the first:
    laws and history are learned from its slots, weights from a crowd of other jobs that ran on it.

    Raises
    ------
    ValueError
        There is no such start.
    ContractError
        The first half is too short to learn from.
    """
    if start == COLD:
        return Started(course=_course(instance, warm=False), options=options)
    if start == PRIOR:
        return Started(course=_course(instance, warm=False), options=options, note=PRIORS_ABSENT)
    if start != WARM:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, was {start!r}")
    first = replace(
        instance,
        reported=instance.whole.between(0, instance.begin),
        jobs=training_jobs(source, instance.crowd, instance.whole),
    )
    lesson = run_policy(
        _course(first, warm=False), first.jobs, SPOTLINE, options, instance.crowd.seed
    )
    learner = lesson.state.learner
    saved = saved_from(
        learner.rule, learner.policy_ids, f"first half of {source.name}, {source.recorded}"
    )
    return Started(
        course=_course(instance, warm=True), options=replace(options, warm_start=saved.to_json())
    )


def _course(instance: LaidCrowd, *, warm: bool) -> MarketCourse:
    market = instance.whole if warm else instance.reported
    return course_of(market, DEFAULT_FORECASTER, HORIZON_SLOTS, Information.FULL)
