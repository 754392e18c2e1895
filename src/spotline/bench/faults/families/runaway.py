"""Whatever makes spend run away: greedy policies, a lying allocator, loops, prices that jump."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import EarlyFailures
from spotline.application.allocation import tasks as allocation
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import CloudEvent, CloudProvider
from spotline.application.selector import recomputing
from spotline.bench.faults.families.drawn_limits import drawn_limits
from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.limit_oracles import LIMITS
from spotline.bench.faults.oracles import Oracle
from spotline.bench.faults.replacement import Replacement, replaced
from spotline.bench.faults.scenario import Scenario
from spotline.contracts.subjects import KINDS
from spotline.domain.drawn import uniform
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import Holding
from spotline.domain.market.market import Market
from spotline.domain.policies.answer import JobAnswer
from spotline.domain.policies.decision import SlotDecision, decide_slot
from spotline.domain.policies.interface import Choice, Memory, Policy, PolicyView
from spotline.replay import parts

_TIMES = 10
# Share of the allocator's answers that are ten times too large.
_LIES = 0.4
_JUMPS_PERCENT = (150, 200, 500, 2_000, 100_000)
# A share of the values is so high that finishing stays worth it at most of these prices.
_DEAR, _DEAR_TIMES = 0.4, 50


class Runaway(Hasty):
    """One of four ways to spend too much, under limits that are drawn; the seed says which.

    Policies ask for ten times what they want; the allocator answers with ten times as many; what is
    launched fails at once, for hours; all prices jump, and everybody believes it.
    """

    name: ClassVar[str] = "runaway"
    same_ledger: bool = False
    oracles: ClassVar[tuple[Oracle, ...]] = LIMITS
    keeps_deadlines: ClassVar[bool] = True

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        limits = drawn_limits(scenario, rng)
        ways = (_Greedy, _Lying, _Flapping, _Jumping)
        self._way = ways[scenario.seed % len(ways)](scenario, rng, self)
        super().__init__(self._way.prepared(limits.applied(scenario)), rng, calm_points)
        self.notes["limits"] = limits.known(scenario)
        self.notes |= self._way.notes
        self._way.begun()

    def market(self, market: Market) -> Market:
        """The market, where prices jump with the jump."""
        return self._way.market(market)

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud as it is; what fails in it is counted."""
        return _Counting(cloud, self)

    def in_force(self) -> AbstractContextManager[object]:
        """What stands in for the product's own while it runs, and while its log is replayed."""
        return self._way.in_force()


class _Counting:
    """A cloud that counts what fails without a word."""

    def __init__(self, inner: SimulatedCloud, family: Runaway) -> None:
        self._inner, self._family = inner, family

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """As the cloud's."""
        told = await self._inner.events(token, at)
        for event in told:
            if event.interruption is InterruptionKind.INSTANCE_FAILED:
                self._family.hit()
        return told


class _Way:
    """One way to spend too much."""

    def __init__(self, scenario: Scenario, rng: random.Random, family: Runaway) -> None:
        self._rng, self._family = rng, family
        self._seed, self._slots = scenario.seed, scenario.market.slots
        self.notes: dict[str, object] = {}

    def prepared(self, scenario: Scenario) -> Scenario:
        return scenario

    def begun(self) -> None:
        """The family is made: faults may be counted."""

    def market(self, market: Market) -> Market:
        return market

    def in_force(self) -> AbstractContextManager[object]:
        return nullcontext()


class _Greedy(_Way):
    """Every policy wants ten times what it would; within what its job can use it gets it."""

    def in_force(self) -> AbstractContextManager[object]:
        def greedy(policy: Policy, view: PolicyView, memory: Memory) -> SlotDecision:
            modest = decide_slot(policy, view, memory)
            decided = decide_slot(_TenTimes(policy), view, memory)
            if decided.holding != modest.holding:
                self._family.hit()
            return decided

        return replaced((Replacement(where=allocation, name="decide_slot", value=greedy),))


class _TenTimes:
    """A policy that wants ten times as many."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """As the policy, ten times."""
        choice = self._policy.choose(view, memory)
        wish = choice.holding
        more = Holding(spot=wish.spot * _TIMES, on_demand=wish.on_demand * _TIMES)
        return replace(choice, holding=more)


class _Lying(_Way):
    """The allocator answers with ten times as many as it worked out; it may not be believed."""

    def __init__(self, scenario: Scenario, rng: random.Random, family: Runaway) -> None:
        super().__init__(scenario, rng, family)
        self.notes["may_park"] = frozenset({("selector", KINDS[AllocationAnswered])})

    def in_force(self) -> AbstractContextManager[object]:
        def lie(request: AllocateRequest) -> AllocateAnswer:
            answered = allocate(request)
            if uniform(self._seed, "lie", request.slot, request.revision) >= _LIES:
                return answered
            if any(answer.lots for answer in answered.answers):
                self._family.hit()
            return replace(answered, answers=tuple(map(_tenfold, answered.answers)))

        return replaced(
            (
                Replacement(where=parts, name="allocate", value=lie),
                Replacement(where=recomputing, name="allocate", value=lie),
            )
        )


def _tenfold(answer: JobAnswer) -> JobAnswer:
    lots = tuple(
        Lot(
            offering_id=lot.offering_id,
            spot=lot.spot * _TIMES,
            on_demand=lot.on_demand * _TIMES,
        )
        for lot in answer.lots
    )
    return replace(answer, lots=lots)


class _Flapping(_Way):
    """What is launched fails within minutes, for hours on end: a loop, unless somebody stops it."""

    def prepared(self, scenario: Scenario) -> Scenario:
        # From when the first jobs are there on.
        first = self._rng.randint(8, 12)
        failing = EarlyFailures(
            probability=self._rng.choice((0.5, 0.9, 1.0)),
            first_slot=first,
            end_slot=first + self._rng.randint(6, 14),
            within_s=self._rng.choice((60, 250, 900)),
        )
        # What fails is to be told from what is taken back by chance.
        calm = replace(scenario.cloud, interruption_per_instance_hour=0.0, failing=failing)
        return replace(scenario, cloud=calm)


class _Jumping(_Way):
    """All prices jump while jobs run, and stay there."""

    def __init__(self, scenario: Scenario, rng: random.Random, family: Runaway) -> None:
        super().__init__(scenario, rng, family)
        self._first = rng.randint(9, self._slots - 8)
        self._percent = rng.choice(_JUMPS_PERCENT)
        self.notes["jumped_at"] = self._first

    def prepared(self, scenario: Scenario) -> Scenario:
        handed_over: Mapping[int, Any] = {
            slot: tuple(
                replace(job, value_micro_usd=job.value_micro_usd * _DEAR_TIMES)
                if self._rng.random() < _DEAR
                else job
                for job in jobs
            )
            for slot, jobs in sorted(scenario.handed_over.items())
        }
        return replace(scenario, handed_over=handed_over)

    def begun(self) -> None:
        for _ in range(self._first, self._slots):
            self._family.hit()

    def market(self, market: Market) -> Market:
        spot = market.spot_price_micro_usd.copy()
        on_demand = market.on_demand_price_micro_usd.copy()
        for prices in (spot, on_demand):
            prices[self._first :] = prices[self._first :] * self._percent // 100
        return replace(market, spot_price_micro_usd=spot, on_demand_price_micro_usd=on_demand)
