"""Limits of a job, judged forward: what is still to come against what is still to be gained.

A job goes on as long as finishing costs no more than it is still worth. Money that is spent is
spent: it is in neither. What it may spend in all (its budget, or the default limit) says when its
owner's choice, `on_limit`, is asked.

What is still to come is an expectation: on-demand for all of the rest is what it costs at most, and
would stop every job that pays on spot alone. So spot is expected in the share of slots in which it
was there of late, and on-demand in the others, at the prices of now; spot is never taken to be
dearer than on-demand. A job that is worth its on-demand price is therefore stopped by no spot price.

A stop needs evidence: of the share of spot the upper bound counts that the slots seen allow, and a
rate that is planned with caution counts as it is expected (`expected_rate.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from spotline.domain.jobs.job import DeadlineKind, Job, OnLimit
from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.limits.actions import LimitAction
from spotline.domain.units import PPM, cost_micro_usd

FORWARD = "value still to gain"
"""The limit that every job has: finishing costs no more than it is still worth."""
BUDGET = "job budget"
DEFAULT = "job default"

QUOTE_MARGIN_PPM = 1_500_000
"""A job without a budget may spend this share of its on-demand quote, or its value if that is more."""

GRACE_SHARE_PPM = 50_000
"""Of the limit of a job that winds down at it, so much is kept for holding on while it saves."""

# The 95 % quantile of a normal, and its square.
_Z_PPM = 1_644_854
_Z_SQUARED_PPM = 2_705_543

# What is assumed of bursts before any are seen: the weight and the stay of `domain/market/law.py`.
_ASSUMED_WEIGHT = 4
_ASSUMED_STAY_PPM = 800_000
# Ends of bursts that were seen count like so many fewer while they are few: the plain estimate is
# too high on average, and the bound would be too narrow.
_FEW_ENDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What finishing a job still costs, and what is still to be gained by it, micro-USD."""

    cost_to_come_micro_usd: int
    value_to_gain_micro_usd: int

    @property
    def is_worth_it(self) -> bool:
        """Whether going on costs no more than is to be gained."""
        return self.cost_to_come_micro_usd <= self.value_to_gain_micro_usd

    @property
    def gain_micro_usd(self) -> int:
        """What is left of the value; below 0 where going on is not worth it."""
        return self.value_to_gain_micro_usd - self.cost_to_come_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What one offering asks of a job now.

    Prices are micro-USD per instance-hour. `spot_share_ppm(n)` is the share of slots in which n
    spot instances are expected to be there. `overhead_s` passes without progress first,
    `entrance_micro_usd` is paid for coming here.
    """

    spot_price: int
    on_demand_price: int
    spot_share_ppm: Callable[[int], int]
    overhead_s: int = 0
    entrance_micro_usd: int = 0


def prospect(
    program: JobProgram, state: JobProgress, elapsed_slots: int, terms: Conditions
) -> Prospect:
    """The best way to go on with a job on one offering, after `elapsed_slots` of its life.

    Parameters
    ----------
    state
        Its work done; what it has spent is not asked.

    Returns
    -------
    Prospect
        Of all counts that the job is allowed, and of running in every slot or only while spot is
        there, the one that leaves the most. Whether a hard deadline can still be met is not judged
        here: such a job is expected to run until then, for its whole value.
    """
    left = program.work_quanta - state.progress_quanta
    if left <= 0:
        done = min(max(0, elapsed_slots), program.end_slots)
        return Prospect(cost_to_come_micro_usd=0, value_to_gain_micro_usd=_value(program, done))
    ways = _ways(program, left, elapsed_slots, terms)
    return best(ways) or Prospect(cost_to_come_micro_usd=0, value_to_gain_micro_usd=0)


def best(prospects: Iterable[Prospect]) -> Prospect | None:
    """The one that leaves the most, and of equals the cheapest; None of none."""
    return max(
        prospects,
        key=lambda found: (found.gain_micro_usd, -found.cost_to_come_micro_usd),
        default=None,
    )


def _ways(program: JobProgram, left: int, elapsed: int, terms: Conditions) -> Iterator[Prospect]:
    last = program.deadline_slots if program.hard else program.end_slots
    until_late = max(0, program.deadline_slots - elapsed)
    until_end = max(0, last - elapsed)
    spot_price = min(terms.spot_price, terms.on_demand_price)
    for count in program.allowed_counts:
        if program.rate_quanta_per_s[count] < 1:
            continue
        needed = program.slots_on_demand(left, terms.overhead_s, instances=count)
        if needed > until_end and count != program.max_instances:
            continue
        needed = min(needed, until_end)
        on_spot = cost_micro_usd(spot_price, count, program.slot_s)
        on_demand = cost_micro_usd(terms.on_demand_price, count, program.slot_s)
        share = terms.spot_share_ppm(count)
        early = min(needed, until_late)
        # Running in every slot: spot where it is there, on-demand where it is not or it is late.
        steady = early * share // PPM
        # Or only while it is there, as far as the time allows.
        patient = min(needed, until_late * share // PPM)
        finishes = (elapsed + needed, elapsed + max(needed, until_late))
        for spot_slots, finish in zip((steady, patient), finishes, strict=True):
            cost = spot_slots * on_spot + (needed - spot_slots) * on_demand
            yield Prospect(
                cost_to_come_micro_usd=cost + terms.entrance_micro_usd,
                value_to_gain_micro_usd=_value(program, min(finish, program.end_slots)),
            )


def _value(program: JobProgram, slot: int) -> int:
    return program.value_micro_usd[slot]


# --- limits of a job --------------------------------------------------------------------------


def limit_name(job: Job) -> str:
    """What a job's own limit is called."""
    return BUDGET if job.budget_micro_usd else DEFAULT


def limit_micro_usd(job: Job, on_demand_quote_micro_usd: int) -> int:
    """What a job may spend before its limit is reached: its budget, or the default.

    The default is its value or 1.5 times its on-demand quote, whichever is more.
    """
    if job.budget_micro_usd:
        return job.budget_micro_usd
    margin = -(-on_demand_quote_micro_usd * QUOTE_MARGIN_PPM // PPM)
    return max(job.value_micro_usd, margin)


def action_at_limit(job: Job) -> LimitAction:
    """What follows for a job that has reached its limit: its owner's choice, or by its deadline."""
    match job.on_limit:
        case OnLimit.WAIT:
            return LimitAction.WAIT
        case OnLimit.STOP:
            return LimitAction.STOP
        case OnLimit.FINISH:
            return LimitAction.FINISH
        case None:
            hard = job.deadline.kind is DeadlineKind.HARD
            return LimitAction.FINISH if hard else LimitAction.WIND_DOWN


def action_where_not_worth_it(job: Job) -> LimitAction:
    """What follows for a job that costs more than it still gains; only waiting may still end well."""
    if job.on_limit is None and job.deadline.kind is DeadlineKind.SOFT:
        return LimitAction.WIND_DOWN
    return LimitAction.WAIT if job.on_limit is OnLimit.WAIT else LimitAction.STOP


def planned_budget_micro_usd(job: Job) -> int:
    """What policies plan a job with far from its limit, 0 for no bound.

    Only a budget whose owner chose what follows bounds plans from the start: what is bounded plans
    otherwise even far from the bound.
    """
    chosen = action_at_limit(job) in (LimitAction.WAIT, LimitAction.STOP)
    return job.budget_micro_usd if chosen else 0


def budget_near_limit_micro_usd(
    job: Job, limit: int, spent_micro_usd: int, slot_cost_micro_usd: int
) -> int | None:
    """The budget that a job is decided with once two slots could reach its limit; None before.

    A slot costs at most `slot_cost_micro_usd`. A job that finishes is bounded by what is still to be
    gained instead. One that winds down keeps a share of its limit for the grace.
    """
    action = action_at_limit(job)
    if action is LimitAction.FINISH:
        return None
    grace = limit * GRACE_SHARE_PPM // PPM if action is LimitAction.WIND_DOWN else 0
    budget = max(1, limit - grace)
    return budget if spent_micro_usd + 2 * slot_cost_micro_usd > budget else None


class SpotShare:
    """The share of slots in which spot instances may be expected, by the counts seen of late.

    It is the upper end of what the counts allow: what a few slots have not shown is no reason to
    stop a job. With none seen, spot is taken to be there: a cloud that tells no counts may have it.
    `counts` are in their order: spot comes and goes in bursts, and slots of one burst tell little
    more than one slot.

    Notes
    -----
    Wilson's score bound (E. B. Wilson, "Probable inference", JASA 22, 1927), one-sided, 95 %, of as
    many slots as would tell as much were they independent: n (1 - r) / (1 + r) for a chain of two
    states, r = 1 - P(gone to there) - P(there to gone) its correlation from slot to slot (G. V.
    Bayley and J. M. Hammersley, "The effective number of independent observations in an
    autocorrelated time series", JRSS Supplement 8, 1946). Those two probabilities are drawn to the
    same as those of the market's law (`domain/market/law.py`), and lowered where few ends of bursts
    were seen. The bound holds where the slots seen are 8 bursts or more
    (tests/unit/domain/limits/test_spot_share.py); a burst that is longer than they are hides.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        self._counts = tuple(counts)

    def __call__(self, instances: int) -> int:
        """Parts per million of the slots with at least so many."""
        there = [count >= instances for count in self._counts]
        seen, enough = len(there), sum(there)
        if enough == seen:
            return PPM
        slots = _independent_slots_ppm(there)
        variance = slots * enough * (seen - enough) // (seen * seen)
        spread = isqrt((variance + _Z_SQUARED_PPM // 4) * PPM)
        bound = slots * enough // seen + _Z_SQUARED_PPM // 2 + _Z_PPM * spread // PPM
        return min(PPM, bound * PPM // (slots + _Z_SQUARED_PPM))


def _independent_slots_ppm(there: Sequence[bool]) -> int:
    """How many independent slots tell as much as these, parts per million."""
    ends = Counter(before for before, after in pairwise(there) if before is not after)
    visits = Counter(there[:-1])
    correlation = PPM - sum(_leaving_ppm(ends[state], visits[state]) for state in (True, False))
    correlation = max(0, correlation)
    return len(there) * PPM * (PPM - correlation) // (PPM + correlation)


def _leaving_ppm(ends: int, visits: int) -> int:
    """The probability that a burst is over with the next slot; rather too low than too high."""
    counted = ends * ends * PPM // (ends + _FEW_ENDS)
    return (counted + _ASSUMED_WEIGHT * (PPM - _ASSUMED_STAY_PPM)) // (visits + _ASSUMED_WEIGHT)
