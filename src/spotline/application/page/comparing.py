"""What simple rules would have cost the jobs that are over, on what the market offered each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spotline.application.board.otherwise import OtherLives, other_lives
from spotline.application.page.certified import held_in_slots
from spotline.application.page.holdings import JobPast
from spotline.application.page.state import PageState
from spotline.domain.jobs.program import Holding
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.registry import BASELINES, FALLBACK_POLICY_ID, policy_named
from spotline.domain.units import cost_micro_usd

MOST_COMPARED = 100
"""Replaying a job takes milliseconds: of so many at most it is worked out for one page."""
MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToCompare:
    """A job that is over, and past its deadline, with all that comparing it needs.

    `spent` are the slots in which it cost something by the decisions, and what, micro-USD; `law` is
    None where none of its home was ever learned; `holdings` is what it held in each slot.
    """

    job_id: str
    first_slot: int
    lives: OtherLives
    law: NamedLaw | None
    holdings: tuple[Holding, ...]
    spent: tuple[tuple[int, int], ...]
    value_micro_usd: int

    @property
    def spent_micro_usd(self) -> int:
        """What it cost in all."""
        return sum(cost for _, cost in self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsToCompare:
    """The last jobs that are over; `untold` of them cannot be compared, `older` are left out."""

    jobs: tuple[JobToCompare, ...]
    untold: int
    older: int


def jobs_to_compare(state: PageState, tenant: str = "", most: int = MOST_COMPARED) -> JobsToCompare:
    """The last jobs of a tenant (empty: of all) that can be compared."""
    settled = [each for each in state.otherwise.settled if tenant in ("", each.tenant)]
    latest = settled[-most:]
    found = []
    for each in latest:
        status = state.jobs.statuses[each.job_id]
        offers = state.jobs.board.offers.jobs.get(each.job_id)
        lives = other_lives(offers, status.job, state.jobs.recent)
        if lives is None or offers is None:
            continue
        past = state.holdings.of_job.get(each.job_id, JobPast())
        found.append(
            JobToCompare(
                job_id=each.job_id,
                first_slot=offers.first_slot,
                lives=lives,
                law=state.laws.of_job.get(each.job_id),
                holdings=held_in_slots(
                    past, offers.first_slot_start_ns, lives.program, len(lives.records)
                ),
                spent=tuple(_spent(past, each.spent_micro_usd, each.slot)),
                value_micro_usd=status.value_micro_usd,
            )
        )
    return JobsToCompare(
        jobs=tuple(found), untold=len(latest) - len(found), older=len(settled) - len(latest)
    )


def _spent(past: JobPast, total_micro_usd: int, last_slot: int) -> Iterable[tuple[int, int]]:
    """What a job cost by slot; what its last standing does not say yet belongs to its end."""
    before, slot = 0, last_slot
    for standing in past.standings():
        slot = standing.slot
        if standing.spent_micro_usd != before:
            yield slot, standing.spent_micro_usd - before
        before = standing.spent_micro_usd
    if total_micro_usd != before:
        yield slot, total_micro_usd - before


@lru_cache(maxsize=4 * MOST_COMPARED)
def rule_costs(lives: OtherLives) -> Mapping[str, tuple[int, ...]]:
    """What each simple rule spends in each slot of a job's life, micro-USD, by the rule's id.

    Milliseconds, a minute where kernels are compiled for it.
    """
    program, records = lives.program, lives.records
    results = replay_pool(program, records, BASELINES, policy_named(FALLBACK_POLICY_ID))
    return {
        policy.policy_id: tuple(
            cost_micro_usd(record.spot_price, held.spot, program.slot_s)
            + cost_micro_usd(record.on_demand_price, held.on_demand, program.slot_s)
            for record, held in zip(records, result.holdings, strict=False)
        )
        for policy, result in zip(BASELINES, results, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPoint:
    """Sums to the end of a slot, micro-USD: by the decisions, and by each rule in the order of them."""

    slot: int
    spent_micro_usd: int
    rules_micro_usd: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesCompared:
    """What `jobs` cost by their decisions, and what each of `rules` would have cost the same jobs.

    Of `untold` jobs it cannot be told: they moved to where they run at other rates, or what they
    were offered is forgotten. `older` were over before, and are not worked out.
    """

    jobs: int
    untold: int
    older: int
    rules: tuple[str, ...]
    points: tuple[ComparedPoint, ...]

    @property
    def spent_micro_usd(self) -> int:
        """By the decisions, in all."""
        return self.points[-1].spent_micro_usd if self.points else 0

    def total_micro_usd(self, rule: str) -> int:
        """By a rule, in all."""
        return self.points[-1].rules_micro_usd[self.rules.index(rule)] if self.points else 0


def compared(
    wanted: JobsToCompare, costs: Sequence[Mapping[str, tuple[int, ...]]]
) -> RulesCompared:
    """Sum up what `rule_costs` says of each of the jobs, in their order, slot by slot."""
    rules = tuple(policy.policy_id for policy in BASELINES)
    by_slot: dict[int, list[int]] = {}
    for job, of_rule in zip(wanted.jobs, costs, strict=True):
        for slot, spent in job.spent:
            by_slot.setdefault(slot, [0] * (len(rules) + 1))[0] += spent
        for place, rule in enumerate(rules, start=1):
            for at, cost in enumerate(of_rule[rule]):
                if cost:
                    sums = by_slot.setdefault(job.first_slot + at, [0] * (len(rules) + 1))
                    sums[place] += cost
    points = []
    totals = [0] * (len(rules) + 1)
    for slot in sorted(by_slot):
        totals = [total + more for total, more in zip(totals, by_slot[slot], strict=True)]
        points.append(
            ComparedPoint(slot=slot, spent_micro_usd=totals[0], rules_micro_usd=tuple(totals[1:]))
        )
    every = -(-len(points) // MOST_POINTS) or 1
    return RulesCompared(
        jobs=len(wanted.jobs),
        untold=wanted.untold,
        older=wanted.older,
        rules=rules,
        points=tuple(
            point for at, point in enumerate(points) if (len(points) - 1 - at) % every == 0
        ),
    )
