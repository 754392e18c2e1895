"""Lives in sampled futures, summed up to what is expected of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.outlook.lives import LifeAhead
from spotline.domain.jobs.outlook import (
    JobOutlook,
    OutlookOffering,
    OutlookPolicy,
    OutlookStep,
)
from spotline.domain.units import PPM

MOST_STEPS = 48
"""Of a job's progress at most so many moments are told: a quote is kept in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivesAhead:
    """A job's life in every future, counted in slots from its first; `elapsed_slots` lie behind it."""

    lives: tuple[LifeAhead, ...]
    first_slot_start_ns: int
    slot_ns: int
    elapsed_slots: int = 0


def summed_up(slot: int, ahead: LivesAhead) -> JobOutlook:
    """Costs and ends by quantiles, chances and means; `slot` is the first that is looked at."""
    lives = ahead.lives
    count = len(lives)
    costs = sorted(life.cost_micro_usd for life in lives)
    never = 1 << 62
    ends = sorted(
        ahead.first_slot_start_ns + life.finished_slot * ahead.slot_ns
        if life.finished_slot
        else never
        for life in lives
    )
    finish_ns = [0 if at == never else at for at in _quantiles(ends)]
    low, middle, high = _quantiles(costs)
    return JobOutlook(
        slot=slot,
        futures=count,
        on_time_probability_ppm=sum(life.on_time for life in lives) * PPM // count,
        expected_cost_micro_usd=sum(costs) // count,
        cost_p10_micro_usd=low,
        cost_p50_micro_usd=middle,
        cost_p90_micro_usd=high,
        finish_p10_ns=finish_ns[0],
        finish_p50_ns=finish_ns[1],
        finish_p90_ns=finish_ns[2],
        expected_utility_micro_usd=_mean(
            [life.value_micro_usd - life.cost_micro_usd for life in lives]
        ),
        offerings=_by_offering(lives),
        policies=_by_policy(lives),
        progress=_progress(ahead),
    )


def _progress(ahead: LivesAhead) -> tuple[OutlookStep, ...]:
    """How far it comes, until all is done in nine futures of ten or nothing more happens.

    Of many slots every so many-th is told, and the last.
    """
    courses = [life.progress_ppm for life in ahead.lives if life.progress_ppm]
    first_ns = ahead.first_slot_start_ns + ahead.elapsed_slots * ahead.slot_ns
    steps = []
    for at in range(max(map(len, courses), default=0)):
        # Whoever is done, or out of time, stays where he is.
        low, middle, high = _quantiles(
            sorted(course[min(at, len(course) - 1)] for course in courses)
        )
        steps.append(
            OutlookStep(
                at_ns=first_ns + (at + 1) * ahead.slot_ns,
                low_ppm=low,
                middle_ppm=middle,
                high_ppm=high,
            )
        )
        if low >= PPM:
            break
    every = -(-len(steps) // MOST_STEPS) or 1
    return tuple(step for at, step in enumerate(steps) if (len(steps) - 1 - at) % every == 0)


def _quantiles(ordered: Sequence[int]) -> tuple[int, int, int]:
    """p10, p50 and p90: as many of ten lie below."""
    count = len(ordered)
    return ordered[count // 10], ordered[count // 2], ordered[count * 9 // 10]


def _mean(amounts: Sequence[int]) -> int:
    return sum(amounts) // len(amounts)


def _by_offering(lives: Sequence[LifeAhead]) -> tuple[OutlookOffering, ...]:
    rows = []
    for home in sorted({life.home for life in lives}):
        here = [life for life in lives if life.home == home]
        rows.append(
            OutlookOffering(
                offering_id=home,
                share_ppm=len(here) * PPM // len(lives),
                expected_cost_micro_usd=_mean([life.cost_micro_usd for life in here]),
                on_time_probability_ppm=sum(life.on_time for life in here) * PPM // len(here),
                moves_ppm=sum(life.moves for life in here) * PPM // len(here),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.share_ppm, row.offering_id)))


def _by_policy(lives: Sequence[LifeAhead]) -> tuple[OutlookPolicy, ...]:
    rows = []
    for policy_id in sorted({life.policy_id for life in lives}):
        its = [life for life in lives if life.policy_id == policy_id]
        rows.append(
            OutlookPolicy(
                policy_id=policy_id,
                weight_ppm=len(its) * PPM // len(lives),
                expected_cost_micro_usd=_mean([life.cost_micro_usd for life in its]),
                on_time_probability_ppm=sum(life.on_time for life in its) * PPM // len(its),
                expected_utility_micro_usd=_mean(
                    [life.value_micro_usd - life.cost_micro_usd for life in its]
                ),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.weight_ppm, row.policy_id)))
