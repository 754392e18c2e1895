"""The training platform of a demo: its jobs run at rates of their own, and it reports their progress.

What Spotline predicted of a job is one thing, how fast it runs another. The true rates are the
predicted ones times a factor, drawn once per job; a report says what was done by the end of a slot
and how fast of late, measured with a little noise. Only the platform knows the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.allocation.tasks import program_of
from spotline.application.allocator.messages import ProgressReport
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.state import SelectorState
from spotline.contracts.envelope import Envelope
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobProgressReported
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.units import S_PER_HOUR, WorkScale
from spotline.runtime.applied import AppliedFeed

# True over predicted rate: as far off as an uncalibrated prediction may well be.
LOWEST_FACTOR, HIGHEST_FACTOR = 0.6, 1.6
# Deviation of a measured rate, log scale: a few seconds of steps vary by so much.
_NOISE = 0.03
_ANYTHING = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueRates:
    """How a job really runs: `factor` is the true rate over the one that was predicted."""

    factor: float
    throughputs: tuple[Throughput, ...]


def true_rates(job: Job, factor: float) -> TrueRates:
    """The rates of a job that runs at `factor` of what was predicted.

    What was predicted is the middle of the 90 % interval (on a log scale), where there is one: what
    is planned on may be less, so that a hard deadline is met.
    """
    return TrueRates(
        factor=factor,
        throughputs=tuple(
            _scaled(throughput, factor * _predicted_over_planned(job, throughput))
            for throughput in job.throughputs
        ),
    )


def _predicted_over_planned(job: Job, throughput: Throughput) -> float:
    configuration = job.configuration
    origin = None
    if configuration is not None:
        origin = configuration.origin_of(f"throughput.{throughput.offering}")
    if origin is None or not 0 < origin.low <= origin.high:
        return 1.0
    return math.sqrt(origin.low * origin.high) / throughput.rate_per_hour(job.max_instances)


def _scaled(throughput: Throughput, factor: float) -> Throughput:
    return replace(
        throughput,
        alpha=_few_digits(throughput.alpha * factor),
        beta=_few_digits(throughput.beta * factor),
        table=tuple(_few_digits(rate * factor) for rate in throughput.table),
    )


def _few_digits(rate: float) -> float:
    # Rates of few digits keep the exact programs small.
    return float(f"{rate:.4g}")


class Ear:
    """What one service has applied so far, for a platform that waits for it."""

    def __init__(self) -> None:
        self.forecast_slot = -1
        self.settled_slot = -1
        self.reports: set[tuple[str, float]] = set()
        self._applied = AppliedFeed(lambda event: _ANYTHING)

    def hear(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the service's host, which stores what follows from an event before it tells."""
        match event:
            case ForecastIssued():
                self.forecast_slot = event.slot
            case CapacityReported() if event.settled:
                self.settled_slot = event.slot
            case JobProgressReported():
                self.reports.add((event.job_id, event.done))
            case _:
                return
        self._applied.on_applied(event, envelope, seq)

    async def forecast(self, slot: int) -> None:
        """Wait for the forecast issued in a slot."""
        await self._applied.until(_ANYTHING, lambda: self.forecast_slot >= slot)

    async def settled(self, slot: int) -> None:
        """Wait until what is held in a slot is certain."""
        await self._applied.until(_ANYTHING, lambda: self.settled_slot >= slot)

    async def reported(self, job_id: str, done: float) -> None:
        """Wait for a progress report."""
        await self._applied.until(_ANYTHING, lambda: (job_id, done) in self.reports)


class TrainingPlatform:
    """Hands drafts over, runs what became of them, and reports once a slot.

    Parameters
    ----------
    client
        Submits and reports.
    selector_state
        To see what the jobs hold; never changed.
    selector, configurator
        What these services have applied: equal runs wait for the same, so their logs are equal.
    slot_starts_ns
        Opening of every slot, ns since the epoch.
    seed
        Of the true factors and of the noise.
    """

    def __init__(
        self,
        client: JobClient,
        selector_state: Callable[[], SelectorState],
        *,
        selector: Ear,
        configurator: Ear,
        slot_starts_ns: Sequence[int],
        seed: int,
    ) -> None:
        self.rates: dict[str, TrueRates] = {}
        self.refused: dict[str, str] = {}
        self._client = client
        self._state = selector_state
        self._selector = selector
        self._configurator = configurator
        self._starts_ns = slot_starts_ns
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._jobs: dict[str, Job] = {}

    async def submit(self, draft: JobDraft, slot: int) -> bool:
        """Hand a draft over before `slot` opens, once the configurator has seen all before it.

        Returns whether it was taken; why not is in `refused`, by name: not every market has what a
        model needs.
        """
        await self._configurator.forecast(slot - 1)
        try:
            receipt = await submit_until_taken(self._client, draft)
        except RpcFailed as error:
            if error.unreachable:
                raise
            self.refused[draft.name] = str(error)
            return False
        job = (await self._client.get(receipt.job_id)).job
        factor = math.exp(self._rng.uniform(math.log(LOWEST_FACTOR), math.log(HIGHEST_FACTOR)))
        self._jobs[job.job_id] = job
        self.rates[job.job_id] = true_rates(job, round(factor, 3))
        return True

    async def report(self, slot: int) -> None:
        """Say where the jobs are as `slot` opens, after what they held until then."""
        if not self._jobs:
            return
        await self._selector.settled(slot - 1)
        for job_id in sorted(self._jobs):
            run = self._state().runs.get(job_id)
            if run is None or run.phase is not RunPhase.RUNNING:
                continue
            said = self._progress(run, self._starts_ns[slot])
            if said is not None:
                await self._client.report(said)
                await self._configurator.reported(job_id, said.done)

    def _progress(self, run: JobRun, now_ns: int) -> ProgressReport | None:
        believed = run.compiled
        job = replace(
            self._jobs[run.job.job_id], throughputs=self.rates[run.job.job_id].throughputs
        )
        offering = self._state().offerings[run.offering_id]
        truth = program_of(
            job,
            run.offering_id,
            offering.instance_type,
            believed.slot_s,
            run.first_slot_start_ns,
            offering.notice_lead_s,
        )
        # The slot's holdings and overheads as they were, at the true rates.
        now = replace(run, program=truth).state_at(believed.slot_s)
        gained = now.progress_quanta - run.state.progress_quanta
        if gained <= 0:
            return None
        scale = WorkScale.for_amount(job.work.amount)
        done = scale.work_from_quanta(now.progress_quanta)
        if now.progress_quanta >= truth.work_quanta:
            done = job.work.amount
        count = now.holding.instances
        rate = 0.0
        if count:
            per_hour = scale.work_from_quanta(truth.rate_quanta_per_s[count] * S_PER_HOUR)
            rate = per_hour * math.exp(_NOISE * float(self._rng.standard_normal()))
        return ProgressReport(
            job_id=job.job_id,
            tenant=job.tenant,
            done=min(job.work.amount, done),
            ts_event_ns=now_ns,
            rate_per_hour=rate,
            instances=count,
        )
