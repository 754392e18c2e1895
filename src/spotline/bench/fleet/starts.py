"""What is known when the reported half begins: nothing, priors, or the market's first half."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.selector.options import SelectorOptions
from spotline.bench.fleet.cells import COLD, ELSEWHERE, NAMED_STARTS, PRIOR, WARM
from spotline.bench.fleet.instance import LaidCrowd, training_jobs
from spotline.bench.fleet.markets import FleetMarket
from spotline.bench.fleet.policies import run_policy
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.market.market import Market
from spotline.domain.market.prior_laws import NO_PRIORS, PriorLaws, shipped_priors
from spotline.domain.selection.prior import shipped_weights
from spotline.domain.selection.saved import saved_from
from spotline.replay.clouds import Information
from spotline.replay.course import MarketCourse, course_of
from spotline.replay.summary import SPOTLINE

HORIZON_SLOTS = 6
LAWS = "present prices; warm ones drawn towards the wheel's"
"""How laws are learned, for cells of two runs that stand side by side."""
PRIORS_USED = (
    "prior: the laws and weights that the wheel ships, learned from first halves of traces, of "
    "some of these zones among them; of what is reported here nothing"
)
WARM_STARTED = (
    "warm: the market's first half is known, and weights are of a crowd of other jobs that ran on it; "
    "laws are drawn towards those of the wheel, as in an installation that began with them"
)
PRIORS_ELSEWHERE = (
    "elsewhere: laws that the wheel ships but for those of regions of the market, equal weights"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The market as it goes, the selector's options, and what is to be said about the start."""

    course: MarketCourse
    options: SelectorOptions
    note: str = ""


def start_of(
    start: str,
    source: FleetMarket,
    instance: LaidCrowd,
    options: SelectorOptions,
    information: Information = Information.FULL,
) -> Started:
    """Prepare a start.

    Cold, forecasts and the selector begin with the reported half and know nothing; with priors, they
    begin there with the laws and weights of the wheel; elsewhere, with the laws of other regions than the
    market's, and equal weights. Warm, they have seen the first half: laws
    and history are learned from its slots, weights from a crowd of other jobs that ran on it; like
    `spotline up --warm-start`, laws are drawn towards those of the wheel all the same. Where
    counts are hidden, nothing is learned of them but by asking: believed they are by the wheel's laws
    at every start.

    Raises
    ------
    ValueError
        There is no such start.
    ContractError
        The first half is too short to learn from.
    """
    if start == COLD:
        return Started(course=_course(instance, information, warm=False), options=options)
    if start == PRIOR:
        return Started(
            course=_course(instance, information, warm=False, priors=shipped_priors()),
            options=replace(options, warm_start=shipped_weights()),
            note=PRIORS_USED,
        )
    if start == ELSEWHERE:
        priors = priors_elsewhere(source.market)
        return Started(
            course=_course(instance, information, warm=False, priors=priors),
            options=options,
            note=PRIORS_ELSEWHERE,
        )
    if start != WARM:
        raise ValueError(f"start must be one of {', '.join(NAMED_STARTS)}, was {start!r}")
    priors = shipped_priors()
    first = replace(
        instance,
        reported=instance.whole.between(0, instance.begin),
        jobs=training_jobs(source, instance.crowd, instance.whole),
    )
    lesson = run_policy(
        _course(first, information, warm=False, priors=priors),
        first.jobs,
        SPOTLINE,
        options,
        instance.crowd.seed,
        information,
    )
    learner = lesson.state.learner
    saved = saved_from(
        learner.rule, learner.policy_ids, f"first half of {source.name}, {source.recorded}"
    )
    return Started(
        course=_course(instance, information, warm=True, priors=priors),
        options=replace(options, warm_start=saved.to_json()),
        note=WARM_STARTED,
    )


def priors_elsewhere(market: Market) -> PriorLaws:
    """The laws of the wheel that were learned in no region of a market."""
    return shipped_priors().without(regions={offering.region for offering in market.offerings})


def _course(
    instance: LaidCrowd, information: Information, *, warm: bool, priors: PriorLaws = NO_PRIORS
) -> MarketCourse:
    market = instance.whole if warm else instance.reported
    return course_of(market, DEFAULT_FORECASTER, HORIZON_SLOTS, information, priors=priors)
