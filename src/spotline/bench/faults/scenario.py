"""What a run is about: a market, jobs of several tenants, and a cloud, all drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.selector.options import SelectorOptions
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.generate import PRESETS, generate
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S
from spotline.replay.jobs import generated_jobs

START_NS = 1_767_571_200_000_000_000
_SLOT_S = 1800
_SLOTS = (32, 38)
_JOBS = (5, 6)
# As cheap as there are: what is forecast matters here to nobody.
FORECASTER = "persistence"
HORIZON_SLOTS = 6
# Beyond any pause of a fault: the fallbacks have tests of their own, and would change decisions.
_PATIENCE_S = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The world of a run; the same seed draws the same.

    `handed_over` are the jobs by the slot before which they are submitted.
    """

    seed: int
    market: Market
    handed_over: Mapping[int, tuple[Job, ...]]
    cloud: SimulatedCloudSettings
    selector: SelectorOptions
    forecaster: str
    caps: Caps = field(default_factory=Caps)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs, as they are handed over."""
        return tuple(job for slot in sorted(self.handed_over) for job in self.handed_over[slot])


def scenario_of(seed: int) -> Scenario:
    """Draw a world."""
    rng = random.Random(f"scenario {seed}")  # noqa: S311 - what is drawn is no secret
    slots = rng.randint(*_SLOTS)
    preset = sorted(PRESETS)[seed % len(PRESETS)]
    market = generate(preset, seed=seed, slots=slots, slot_s=_SLOT_S, start_ns=START_NS)
    handed_over: dict[int, tuple[Job, ...]] = {}
    for job in generated_jobs(market, rng.randint(*_JOBS), seed):
        first = (job.start_ns - START_NS) // (_SLOT_S * NS_PER_S)
        slot = rng.randint(1, max(1, first))
        handed_over[slot] = (*handed_over.get(slot, ()), job)
    return Scenario(
        seed=seed,
        market=market,
        handed_over=handed_over,
        cloud=SimulatedCloudSettings(
            seed=seed,
            refusal_probability=rng.choice((0.0, 0.1)),
            interruption_per_instance_hour=rng.choice((0.0, 0.03)),
        ),
        selector=replace(
            SelectorOptions(),
            rehearsals=0,
            forecast_timeout_s=_PATIENCE_S,
        ),
        forecaster=FORECASTER,
    )
