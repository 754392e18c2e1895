"""Several jobs in the same futures, on what they share, within limits they have in common.

In every slot the jobs are served in order of slack, as the selector serves them, each on what those
before it left of spot, stock, quotas and the budget. What a job would hold beyond a limit is decided
again without on-demand, then without spot; what still exceeds it is not held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.outlook.lives import FutureLife, LifeAhead
from spotline.application.outlook.places import Left
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import JobAnswer
from spotline.domain.units import S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimits:
    """What all jobs together may hold and spend in a slot.

    `pools` says of which quota pool an offering is, `quotas` how many instances may be held of a
    pool; what is in neither is not limited. `budget_micro_usd_per_hour` of 0 is no budget.
    """

    pools: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    budget_micro_usd_per_hour: int = 0

    def slot_budget(self, slot_s: int) -> int | None:
        """What may be spent in a slot, micro-USD; None: anything."""
        if not self.budget_micro_usd_per_hour:
            return None
        return self.budget_micro_usd_per_hour * slot_s // S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSlot:
    """What the jobs hold in one slot of the futures, by job id, and what that costs."""

    at: int
    lots: Mapping[str, tuple[Lot, ...]]
    cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLives:
    """How the jobs fare in one future, by job id, and what they hold slot by slot."""

    lives: Mapping[str, LifeAhead]
    slots: tuple[FleetSlot, ...]

    @property
    def all_on_time(self) -> bool:
        """Whether every job is on time."""
        return all(life.on_time for life in self.lives.values())


def live_together(
    lives: Sequence[FutureLife], limits: FleetLimits, slots: int, slot_s: int
) -> FleetLives:
    """Run jobs through one future; each begins in the slot that its life is at."""
    held: list[FleetSlot] = []
    for at in range(slots):
        here = [life for life in lives if life.at == at and not life.over]
        if all(life.over for life in lives):
            break
        here.sort(key=lambda life: (life.slack_slots, life.course.job.job_id))
        slot = _Slot(limits, slot_s)
        lots: dict[str, tuple[Lot, ...]] = {}
        for life in here:
            left = slot.left_for(life)
            answer = slot.within_limits(life, left)
            slot.take(answer, life.cost_micro_usd(answer))
            if answer.lots:
                lots[life.course.job.job_id] = answer.lots
            life.hold(answer, left)
        held.append(FleetSlot(at=at, lots=lots, cost_micro_usd=slot.spent))
    return FleetLives(
        lives={life.course.job.job_id: life.result() for life in lives}, slots=tuple(held)
    )


class _Slot:
    """What is left in one slot while the jobs are served."""

    def __init__(self, limits: FleetLimits, slot_s: int) -> None:
        self._limits = limits
        self._budget = limits.slot_budget(slot_s)
        self._taken: dict[str, Left] = {}
        self._pools = dict(limits.quotas)
        self.spent = 0

    def left_for(self, life: FutureLife) -> dict[str, Left]:
        """What a job finds of every offering it can run on."""
        left = {}
        for offering_id, offered in life.offers().items():
            taken = self._taken.get(offering_id, Left(0, 0))
            most = self._pools.get(self._limits.pools.get(offering_id, ""), None)
            spot = max(0, offered.spot - taken.spot)
            on_demand = max(0, offered.on_demand - taken.on_demand)
            if most is not None:
                spot, on_demand = min(spot, most), min(on_demand, most)
            left[offering_id] = Left(spot, on_demand)
        return left

    def within_limits(self, life: FutureLife, left: Mapping[str, Left]) -> JobAnswer:
        """What the job holds of what is left: what it would, or less where that is too much."""
        wished = life.decided(left)
        if self._fits(life, wished):
            return wished
        for spot, on_demand in ((1, 0), (0, 1)):
            fewer = {
                offering_id: Left(of.spot * spot, of.on_demand * on_demand)
                for offering_id, of in left.items()
            }
            answer = life.decided(fewer)
            if self._fits(life, answer):
                return answer
        return JobAnswer(
            job_id=wished.job_id,
            policy_id=wished.policy_id,
            lots=(),
            memory=wished.memory,
            reason=wished.reason,
        )

    def _fits(self, life: FutureLife, answer: JobAnswer) -> bool:
        for lot in answer.lots:
            most = self._pools.get(self._limits.pools.get(lot.offering_id, ""), None)
            if most is not None and lot.spot + lot.on_demand > most:
                return False
        return self._budget is None or self.spent + life.cost_micro_usd(answer) <= self._budget

    def take(self, answer: JobAnswer, cost_micro_usd: int) -> None:
        """Serve a job."""
        self.spent += cost_micro_usd
        for lot in answer.lots:
            taken = self._taken.get(lot.offering_id, Left(0, 0))
            self._taken[lot.offering_id] = Left(
                taken.spot + lot.spot, taken.on_demand + lot.on_demand
            )
            pool = self._limits.pools.get(lot.offering_id, "")
            if pool in self._pools:
                self._pools[pool] -= lot.spot + lot.on_demand
