"""Limits that bite: drawn so that most scenarios want more than they allow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from spotline.bench.faults.limit_oracles import KnownLimits, SpanLimit
from spotline.bench.faults.scenario import Scenario
from spotline.domain.drawn import uniform
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.caps import Caps
from spotline.domain.limits.spending import SPANS_S, Spending, SpendLimit
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import cost_micro_usd

_LAUNCHES_PER_MINUTE = (2, 4, 8, 16, 300)
_MONEY = 0.6
_EACH = 0.5
_QUOTAS_IN_EVERY = 5
_DAY_S, _HOUR_S = SPANS_S["day"], SPANS_S["hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLimits:
    """Limits of a run: launches per minute always, limits on money in most."""

    spending: Spending

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario under these limits, as `up` runs with limits."""
        return replace(
            scenario,
            selector=replace(scenario.selector, limits=True, spending=self.spending.to_json()),
            caps=Caps(spending=self.spending),
        )

    def known(self, scenario: Scenario) -> KnownLimits:
        """The same limits, for the oracle."""
        return KnownLimits(
            job_micro_usd=self.spending.micro_usd_per_job,
            launches_per_minute=self.spending.launches_per_minute,
            spans=tuple(self._spans({job.tenant for job in scenario.jobs})),
            quotas=self.spending.quotas,
        )

    def _spans(self, tenants: set[str]) -> Iterator[SpanLimit]:
        spending = self.spending
        whose: list[tuple[str, str, SpendLimit]] = [
            ("", "", spending.total),
            ("", CapacityType.SPOT.value, spending.spot),
            ("", CapacityType.ON_DEMAND.value, spending.on_demand),
        ]
        whose += [
            (tenant, "", spending.tenants.get(tenant, spending.every_tenant))
            for tenant in sorted(tenants)
        ]
        for tenant, kind, limit in whose:
            for _, span_s, most in limit.each():
                yield SpanLimit(
                    tenant=tenant, capacity_type=kind, span_s=span_s, most_micro_usd=most
                )


def drawn_limits(scenario: Scenario, rng: random.Random) -> DrawnLimits:
    """Draw limits by what the scenario's jobs would cost on on-demand, quotas in some."""
    drawn = _drawn(scenario, rng)
    return DrawnLimits(spending=replace(drawn.spending, quotas=_quotas(scenario)))


def _quotas(scenario: Scenario) -> dict[str, int]:
    """Quotas that jobs together pass, in one scenario of five; what else is drawn stays the same."""
    if scenario.seed % _QUOTAS_IN_EVERY:
        return {}
    most = sum(job.max_instances for job in scenario.jobs)
    pools = sorted({offering.quota_pool for offering in scenario.market.offerings})
    return {pool: int(uniform(scenario.seed, "quota", pool) * (most // 3 + 1)) for pool in pools}


def _drawn(scenario: Scenario, rng: random.Random) -> DrawnLimits:
    launches = rng.choice(_LAUNCHES_PER_MINUTE)
    if rng.random() >= _MONEY:
        return DrawnLimits(spending=Spending(launches_per_minute=launches))
    dearest = int(scenario.market.on_demand_price_micro_usd[0].max())
    an_hour = [cost_micro_usd(dearest, job.max_instances, _HOUR_S) for job in scenario.jobs]
    values = [job.value_micro_usd for job in scenario.jobs]

    def share(of: int, least: float, most: float) -> int | None:
        drawn = int(of * rng.uniform(least, most))
        return drawn if rng.random() < _EACH else None

    spending = Spending(
        launches_per_minute=launches,
        total=SpendLimit(
            micro_usd_per_hour=share(sum(an_hour), 0.1, 0.6),
            micro_usd_per_day=share(sum(values), 0.1, 0.6),
        ),
        spot=SpendLimit(micro_usd_per_hour=share(sum(an_hour), 0.05, 0.3)),
        on_demand=SpendLimit(micro_usd_per_hour=share(sum(an_hour), 0.05, 0.5)),
        every_tenant=SpendLimit(
            micro_usd_per_hour=share(max(an_hour), 0.2, 1.0),
            micro_usd_per_day=share(max(values), 0.2, 1.5),
        ),
        tenants=_one_of_their_own(scenario.jobs, rng),
    )
    per_job = share(sorted(values)[len(values) // 2], 0.1, 0.6)
    return DrawnLimits(spending=replace(spending, micro_usd_per_job=per_job))


def _one_of_their_own(jobs: tuple[Job, ...], rng: random.Random) -> dict[str, SpendLimit]:
    """One tenant's own limit, now and then; it counts instead of every tenant's."""
    tenant = rng.choice(sorted({job.tenant for job in jobs}))
    most = sum(job.value_micro_usd for job in jobs if job.tenant == tenant)
    drawn = SpendLimit(micro_usd_per_day=int(most * rng.uniform(0.1, 0.8)))
    return {tenant: drawn} if rng.random() < _EACH else {}
