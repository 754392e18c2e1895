"""Rules that run all jobs on a market by themselves: each has its own contention.

That is another question than what a rule would have done with what others left to one job (see
`report`): here its own jobs take capacity from each other, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.jobs.job import Job
from spotline.domain.market.learning_rules import ALL_RULES, LearningRules
from spotline.domain.market.market import Market
from spotline.domain.market.prior_laws import NO_PRIORS, PriorLaws
from spotline.domain.policies.registry import policy_named
from spotline.domain.units import NS_PER_S
from spotline.replay.clouds import Information, TellingCloud, told
from spotline.replay.course import MarketCourse, course_of, slots_of
from spotline.replay.parts import Issued, answer_in_process
from spotline.replay.selector_run import SelectorRun, run_selector
from spotline.replay.summary import SPOTLINE, JobLife

# What the rules that look at no forecast are told in each slot.
_NO_MODEL = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """How rules run: `spotline` as `selector` says; `seed` varies which policies it draws.

    Laws are learned by `learning` and drawn towards `priors`. Where `information` is withheld, all rules run against a cloud that
    refuses and takes back.
    """

    forecaster: str = DEFAULT_FORECASTER
    horizon_slots: int = 6
    learning: LearningRules = ALL_RULES
    seed: int = 0
    selector: SelectorOptions = field(default_factory=SelectorOptions)
    priors: PriorLaws = NO_PRIORS
    information: Information = Information.FULL


def closed_loop(
    market: Market, jobs: Sequence[Job], rules: Sequence[str], options: LoopOptions
) -> Mapping[str, tuple[JobLife, ...]]:
    """Let each rule run all jobs on a market by itself; how they fared, by rule, in their order.

    Parameters
    ----------
    jobs
        As a simulation runs them: nobody starts their programs, and the market covers their lives
        (see `course.coverage`).
    rules
        Names of the registry, or `spotline`.

    Raises
    ------
    ContractError
        No forecaster has this name.
    """
    if not jobs:
        return {name: () for name in rules}
    market = market.between(0, _slots_needed(market, jobs))
    withheld = options.information is not Information.FULL
    if withheld or any(name == SPOTLINE or policy_named(name).needs_forecast for name in rules):
        course = course_of(
            market,
            options.forecaster,
            options.horizon_slots,
            options.information,
            learning=options.learning,
            priors=options.priors,
        )
    else:
        course = course_unforecast(market)
    return {
        name: tuple(
            run_rule(course, jobs, name, options.selector, options.seed, options.information).lives(
                jobs
            )
        )
        for name in rules
    }


def run_rule(
    course: MarketCourse,
    jobs: Sequence[Job],
    name: str,
    options: SelectorOptions,
    seed: int,
    information: Information = Information.FULL,
) -> SelectorRun:
    """Run all jobs together under one rule, in the selector's order and by its accounting."""
    if name == SPOTLINE:
        handler = SelectHandler(options, digest=no_digest)
    else:
        # A pool of one: nothing to choose.
        alone = replace(options, rehearsals=0, moves=False)
        handler = SelectHandler(alone, digest=no_digest, pool=(policy_named(name),))
    cloud = telling_cloud(course, information)
    return run_selector(course, jobs, handler, answer_in_process, seed, cloud=cloud)


def telling_cloud(course: MarketCourse, information: Information) -> TellingCloud | None:
    """The cloud that all jobs share where information is withheld, None where it is not."""
    if information is Information.FULL:
        return None
    return TellingCloud(course.real, information, sharing=True)


def no_digest(request: object) -> str:
    """Digests are not compared where requests are answered in process."""
    return ""


def _slots_needed(market: Market, jobs: Sequence[Job]) -> int:
    last_ns = max(job.deadline.expires_ns for job in jobs)
    return min(market.slots, -(-(last_ns - market.start_ns) // (market.slot_s * NS_PER_S)))


def course_unforecast(market: Market, information: Information = Information.FULL) -> MarketCourse:
    """A market of which nothing is forecast, for rules that look at no forecast."""
    slots = slots_of(market)
    return MarketCourse(
        market=market,
        slots=tuple(told(opened, information) for opened in slots),
        real={opened.slot: opened for opened in slots},
        issued={
            opened.slot: Issued(
                forecast=ForecastIssued(
                    slot=opened.slot, model_id=_NO_MODEL, forecasts=(), scores=()
                ),
                laws=(),
            )
            for opened in slots
        },
        offers={},
    )
