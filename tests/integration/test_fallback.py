"""Without a forecast, or with a wrong one, decisions come all the same, say why, and recover."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from spotline.application.forecaster.handler import ForecastHandler, ForecastState
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Context, Outcome
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.market.generate import generate
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, PPM
from spotline.replay.jobs import generated_jobs
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.composed import composed

START_NS = 1_767_571_200_000_000_000
SLOT_S = 1800
MARKET = generate("mixed", seed=5, slots=64, slot_s=SLOT_S, start_ns=START_NS)
# Value-to-go falls back on the law alone.
PREDICTION_FREE = ("msu", "on_demand_only", "uniform_progress", "ahanp", "sdp", "hybrid")


def long_job(index: int) -> Job:
    """A job that runs from slot 20 to nearly the end of the market."""
    job = generated_jobs(MARKET, 4, 5)[index]
    start_ns = START_NS + 20 * SLOT_S * NS_PER_S
    end_ns = START_NS + 60 * SLOT_S * NS_PER_S
    deadline = Deadline(kind=DeadlineKind.HARD, at_ns=end_ns, expires_ns=end_ns)
    # Three fifths of the time on the largest count: it is still running when forecasts are back.
    rate = job.throughputs[0].rate_per_hour(job.max_instances)
    work = replace(job.work, amount=round(0.6 * 20 * rate, 3))
    return replace(job, start_ns=start_ns, deadline=deadline, work=work)


async def decisions_by_slot(
    folder: Path, *, broken: tuple[int, int], noise: bool
) -> tuple[dict[int, list[AllocationDecided]], int]:
    """Run with the forecaster killed, or its output replaced by noise, in slots [first, end)."""
    first, end = broken
    # A forecaster that lives is to be late only where the machine stops.
    options = SelectorOptions(forecast_timeout_s=60.0 if noise else 1.0, rehearsals=0)
    async with (
        asyncio.timeout(200),
        EmbeddedBroker() as broker,
        composed(broker.url, folder, MARKET, selector=options, forecaster="") as system,
    ):
        if noise:
            system.start_handler("forecaster", NoisyForecaster(first, end))
        else:
            system.start_forecaster()
            system.before_slot[first] = lambda: system.stop("forecaster")

            async def again() -> None:
                system.start_forecaster()

            system.before_slot[end] = again
        await system.submit([long_job(0), long_job(1), long_job(2)])
        system.go.set()
        await system.wait_for(
            CapacityReported,
            lambda e: isinstance(e, CapacityReported) and e.slot == 55 and e.settled,
        )
        by_slot: dict[int, list[AllocationDecided]] = {}
        for event in await system.events(AllocationDecided):
            assert isinstance(event, AllocationDecided)
            by_slot.setdefault(event.slot, []).append(event)
        overdue = len(await system.events(ForecastOverdue))
    return by_slot, overdue


class NoisyForecaster(ForecastHandler):
    """Persistence, but in some slots prices and distributions are drawn at random."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(forecaster_factory("persistence"), horizon_slots=6)
        self._noisy = range(first, end)

    def decide(self, state: ForecastState, event: Event, ctx: Context) -> Outcome:
        outcome = super().decide(state, event, ctx)
        if not outcome.events:
            return outcome
        *laws, issued = outcome.events
        assert isinstance(issued, ForecastIssued)
        if issued.slot not in self._noisy:
            return outcome
        forecasts = tuple(
            OfferingForecast(
                offering_id=forecast.offering_id,
                steps=tuple(
                    _noise(f"{issued.slot}:{forecast.offering_id}:{step}")
                    for step in range(len(forecast.steps))
                ),
            )
            for forecast in issued.forecasts
        )
        return Outcome(events=(*laws, replace(issued, forecasts=forecasts)))


def _noise(seed: str) -> ForecastStep:
    drawn = hashlib.sha256(seed.encode()).digest()
    count = drawn[0] % 17
    chance = int.from_bytes(drawn[1:3], "big") * PPM // 65536
    counts = [CountProbability(instances=count, probability_ppm=chance)]
    counts.append(CountProbability(instances=(count + 5) % 17, probability_ppm=PPM - chance))
    return ForecastStep(
        spot_price_micro_usd=100_000 + int.from_bytes(drawn[3:6], "big") % 6_000_000,
        counts=tuple(counts),
    )


@pytest.mark.slow
async def test_a_killed_forecaster_is_done_without_and_taken_up_again(tmp_path: Path) -> None:
    by_slot, overdue = await decisions_by_slot(tmp_path, broken=(28, 33), noise=False)

    assert overdue >= 4
    for slot in range(28, 32):
        assert by_slot[slot], f"slot {slot} was not decided"
        for decision in by_slot[slot]:
            assert not decision.forecast_used
            assert decision.policy_id.startswith(PREDICTION_FREE)
            assert decision.reason in (
                DecisionReason.FORECAST_OVERDUE,
                DecisionReason.SAFETY_NET,
            )
    after = [d for slot in range(40, 55) for d in by_slot.get(slot, [])]
    assert after
    # One that did not come back would be late in each of them.
    late = {d.slot for d in after if d.reason is DecisionReason.FORECAST_OVERDUE}
    assert len(late) <= len({d.slot for d in after}) // 4


async def test_noise_is_noticed_and_forgiven(tmp_path: Path) -> None:
    by_slot, _ = await decisions_by_slot(tmp_path, broken=(28, 36), noise=True)

    noisy = [d for slot in range(30, 36) for d in by_slot[slot]]
    assert noisy
    for decision in noisy:
        assert not decision.forecast_used
        assert decision.policy_id.startswith(PREDICTION_FREE)
    assert any(d.reason is DecisionReason.FORECAST_UNTRUSTED for d in noisy)
    after = [d for slot in range(48, 55) for d in by_slot.get(slot, [])]
    assert after
    assert not any(d.reason is DecisionReason.FORECAST_UNTRUSTED for d in after)
