"""A scheduling pass: who goes back, who is placed, who is refused, and who moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.application.placer.messages import earliest_of
from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.renting import Rental, lots_of, on_whole_instances
from spotline.application.placer.state import PlacerState, after_ns, micro_usd
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.placement import PlacementDecided, PlacementOutcome
from spotline.domain.placement.cost import usd_per_gpu_hour
from spotline.domain.placement.deadlines import earliest_on_empty
from spotline.domain.placement.interface import (
    CostBasis,
    PlacementMethod,
    PlacementMoment,
    Release,
    Residual,
)
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.replacing import (
    WORTH_MOVING,
    PricesAhead,
    affected,
    checkpointed_iterations,
    consider_move,
    resumed,
)
from spotline.domain.placement.ways import TIME_WEIGHT
from spotline.domain.units import NS_PER_S, S_PER_HOUR


@dataclass(slots=True)
class SchedulingPass:
    """One scheduling pass; `decided` collects what follows from it."""

    state: PlacerState
    method: PlacementMethod
    over: set[str]
    decided: list[PlacementDecided] = field(default_factory=list)
    _residual: Residual = field(init=False)
    _stay: list[tuple[PipelineRun, Placement]] = field(init=False)
    _moment: PlacementMoment = field(init=False)
    _rentals: dict[str, Rental] = field(init=False)
    _placed: dict[str, Placement] = field(init=False)
    _wait_ns: int = field(init=False)

    def place(self) -> None:
        """Take off what has no room any more, and go through the queue."""
        state = self.state
        known = state.priced_graph()
        self._rentals = state.rentals()
        # What is rented comes with the next revision.
        next_ns = state.rented.next_revision_ns(state.now_ns)
        self._wait_ns = next_ns - state.now_ns if self._rentals else 0
        running = [
            (run, on_whole_instances(run.placement, self._rentals))
            for run in state.running()
            if run.placement is not None and run.pipeline.job_id not in self.over
        ]
        whole = [placement for run, placement in running if not run.broken]
        reasons = {
            **affected(whole, known.graph).reasons,
            **{run.pipeline.job_id: run.broken for run, _ in running if run.broken},
        }
        staying = [pair for pair in running if pair[0].pipeline.job_id not in reasons]
        self._stay = [(run, run.placement) for run, _ in staying if run.placement is not None]
        self._placed = {run.pipeline.job_id: placement for run, placement in staying}
        self._residual = Residual.of(known.graph, list(self._placed.values()))
        self._moment = PlacementMoment(
            now_s=state.seconds(state.now_ns),
            usd_per_gpu_hour=known.usd_per_gpu_hour,
            residual=self._residual.copy(),
            releases=tuple(
                Release(at_s=state.seconds(run.finish_ns), placement=placement)
                for run, placement in staying
            ),
            # Ends show with slots.
            notice_s=float(state.rented.slot_s),
        )
        displaced = [run for run, _ in running if run.pipeline.job_id in reasons]
        waiting = [run for run in state.waiting() if run.pipeline.job_id not in self.over]
        self._go_through([*displaced, *waiting], reasons)

    def _go_through(self, runs: Sequence[PipelineRun], reasons: Mapping[str, str]) -> None:
        queue = {run.pipeline.job_id: (run, self._left_of(run)) for run in runs}
        if not queue:
            return
        again = []
        for answer in self.method.place([job for _, job in queue.values()], self._moment):
            run, job = queue[answer.job_id]
            if isinstance(answer, Placement) and self._unsuitable(run, answer):
                again.append(answer.job_id)
                continue
            self._settle(run, job, answer, reasons.get(answer.job_id, ""))
        # The method knows neither whole instances nor who was refused where.
        for job_id in again:
            run, job = queue[job_id]
            (answer,) = self.method.place([job], self._moment_for(run))
            self._settle(run, job, answer, reasons.get(job_id, ""))

    def _unsuitable(self, run: PipelineRun, answer: Placement) -> str:
        """Why a placement cannot be had by this pipeline; empty: it can."""
        most = self._most(run)
        for share in answer.path:
            if share.gpus > most.get(share.region_id, share.gpus):
                return f"waits: {share.region_id} refused it"
        return self._short(answer)

    def _most(self, run: PipelineRun) -> dict[str, int]:
        """GPUs a pipeline may have where it was refused and does not ask again yet: those held."""
        most = {}
        for region_id, rental in self._rentals.items():
            known = run.backoff.get(rental.kind)
            if known is None or self.state.rented.slot >= known.until_slot:
                continue
            held = run.held.get(rental.offering.offering_id)
            count = 0 if held is None else held.spot if rental.spot else held.on_demand
            most[region_id] = count * rental.offering.gpus_per_instance
        return most

    def _moment_for(self, run: PipelineRun) -> PlacementMoment:
        """What is free by now where a pipeline may ask."""
        residual = self._residual.copy()
        for region_id, gpus in self._most(run).items():
            index = residual.graph.index[region_id]
            residual.gpus[index] = min(int(residual.gpus[index]), gpus)
        return replace(self._moment, residual=residual)

    def _left_of(self, run: PipelineRun) -> PipelineJob:
        """What is left of a job from its last checkpoint on, as if it were handed over now."""
        done = checkpointed_iterations(run.job, run.done_by(self.state.now_ns))
        job = resumed(run.job, done)
        if job is None:
            raise InvariantViolation(f"{run.pipeline.job_id} is done, and did not end")
        # Whoever was not refused was promised its deadline.
        job = replace(
            job, promised=run.decided, deadline_s=job.deadline_s - self._wait_ns / NS_PER_S
        )
        if not run.started or not math.isfinite(job.deadline_s):
            return job
        # It computes only after its restart. What has begun is finished, if late.
        job = replace(job, deadline_s=job.deadline_s - job.restart_s)
        soonest = earliest_on_empty(job, self._moment.residual.graph, self._moment.now_s)
        late = soonest.finish_s > job.deadline_s
        return replace(job, deadline_s=math.inf) if late else job

    def _settle(
        self, run: PipelineRun, job: PipelineJob, answer: Placement | NoPlacement, lost: str
    ) -> None:
        earliest_s = None
        if not run.started and math.isfinite(job.deadline_s):
            earliest_s = self._refusal(job, answer)
        why = f"{lost}; {answer.reason}" if lost else answer.reason
        done = _done_of(run, job)
        if earliest_s is not None:
            self._refuse(run, job, earliest_s)
            return
        short = ""
        if isinstance(answer, Placement):
            late = self._late(run, job, answer)
            short = "waits for a place that meets its deadline"
            if not late:
                short = self._unsuitable(run, answer)
            if not short:
                self._take(run, job, answer, why, done)
                return
        if not run.decided or run.placement is not None:
            why = short or why
            decision = self._decision(run, PlacementOutcome.WAITING, why)
            self.decided.append(replace(decision, iterations_done=done))

    def _refusal(self, job: PipelineJob, answer: Placement | NoPlacement) -> float | None:
        """The earliest finish, where it is too late."""
        if isinstance(answer, NoPlacement) and answer.earliest_finish_s is not None:
            return answer.earliest_finish_s
        earliest_s = earliest_of(answer, job, self._moment)
        return earliest_s if earliest_s > job.deadline_s else None

    def _short(self, answer: Placement) -> str:
        """Why there are too few whole instances for a placement; empty: there are enough.

        The method sees what is free in whole instances, but places several jobs by GPU.
        """
        graph = self._residual.graph
        before = self._placed.get(answer.job_id)
        for share in on_whole_instances(answer, self._rentals).path:
            own = sum(
                part.gpus
                for part in (before.path if before is not None else ())
                if part.region_id == share.region_id
            )
            free = int(self._residual.gpus[graph.index[share.region_id]]) + own
            if share.gpus > free:
                return f"waits for {share.gpus} GPUs on whole instances in {share.region_id}"
        return ""

    def _late(self, run: PipelineRun, job: PipelineJob, placement: Placement) -> bool:
        finish_s = self._moment.now_s + job.iterations * placement.iteration_s
        return not run.started and finish_s > job.deadline_s

    def _refuse(self, run: PipelineRun, job: PipelineJob, earliest_s: float) -> None:
        possible = math.isfinite(earliest_s)
        wait_s = self._wait_ns / NS_PER_S
        before_s = job.deadline_s - self._moment.now_s + wait_s
        when = "never on these regions"
        if possible:
            when = f"in {earliest_s - self._moment.now_s + wait_s:.0f} s"
        reason = f"the deadline is in {before_s:.0f} s, it could be done {when}"
        decision = self._decision(run, PlacementOutcome.REFUSED, reason)
        earliest_ns = self.state.ns(earliest_s + wait_s) if possible else 0
        self.decided.append(replace(decision, earliest_finish_ns=earliest_ns))

    def _take(
        self, run: PipelineRun, job: PipelineJob, placement: Placement, why: str, done: int
    ) -> None:
        whole = on_whole_instances(placement, self._rentals)
        self._residual.take(whole)
        self._placed[placement.job_id] = whole
        restart_s = job.restart_s if run.started else 0.0
        waits = run.waits_for(lots_of(placement, self._rentals)) or bool(run.broken)
        begins_ns = self.state.now_ns + (self._wait_ns if waits else 0)
        starts_ns = after_ns(begins_ns, restart_s)
        outcome = PlacementOutcome.MOVED if run.started else PlacementOutcome.PLACED
        self.decided.append(
            replace(
                self._decision(run, outcome, why),
                placement=placement,
                iterations_done=done,
                starts_ns=starts_ns,
                finish_ns=after_ns(starts_ns, job.iterations * placement.iteration_s),
                expected_cost_micro_usd=micro_usd(job.iterations * placement.usd_per_iteration),
            )
        )

    def _decision(
        self, run: PipelineRun, outcome: PlacementOutcome, reason: str
    ) -> PlacementDecided:
        return PlacementDecided(
            job_id=run.pipeline.job_id,
            tenant=run.pipeline.tenant,
            ts_event_ns=self.state.now_ns,
            outcome=outcome,
            method_id=self.method.method_id,
            reason=reason,
        )

    # --- moving where it pays -------------------------------------------------------------------

    def move(self) -> None:
        """Move running jobs that come cheaper elsewhere, migration included; by job id."""
        if not self._stay or len(self._residual.graph.region_ids) < 2:
            return
        # What waits was promised its deadline on the releases that there are.
        if any(run.decided and run.pipeline.deadline_s for run in self.state.waiting()):
            return
        prices = _prices_ahead(self.state)
        for run, held in self._stay:
            self._consider(run, held, prices)

    def _consider(self, run: PipelineRun, held: Placement, prices: PricesAhead) -> None:
        state, moment = self.state, self._moment
        # It has not done anything yet since it was placed: the next observation will tell.
        if run.pending or state.now_ns <= run.starts_ns:
            return
        job = resumed(run.job, run.done_by(state.now_ns))
        if job is None:
            return
        mean = float(np.abs(moment.usd_per_gpu_hour).mean())
        time_usd_per_s = TIME_WEIGHT * job.best_gpus * mean / S_PER_HOUR
        move = consider_move(
            job,
            held,
            self.method,
            PlacementMoment(
                now_s=moment.now_s,
                usd_per_gpu_hour=moment.usd_per_gpu_hour,
                residual=self._residual,
            ),
            prices,
            time_usd_per_s=time_usd_per_s,
        )
        if move.placement is None or not move.pays or move.move_finish_s > job.deadline_s:
            return
        # `consider_move` has both ways begin at the checkpoint; who stays has come further.
        again = job.iterations - (run.job.iterations - run.done_by(state.now_ns))
        stay_usd = move.stay_usd * (1 - again / job.iterations)
        later_s = move.move_finish_s - move.stay_finish_s + again * held.iteration_s
        saved_usd = stay_usd - move.move_usd - time_usd_per_s * later_s
        if saved_usd <= WORTH_MOVING * abs(stay_usd) or self._unsuitable(run, move.placement):
            return
        self._residual.give_back(self._placed[run.pipeline.job_id])
        self._take(run, job, move.placement, move.reason, _done_of(run, job))


def _done_of(run: PipelineRun, left: PipelineJob) -> int:
    """Iterations that are done where `left` is what is left."""
    return run.job.iterations - left.iterations


def _prices_ahead(state: PlacerState) -> PricesAhead:
    """Prices of the hours to come, as far as they are known; the last one holds on."""
    known = state.priced_graph()
    observed = [state.regions[region_id] for region_id in known.graph.region_ids]
    ahead = [seen for seen in observed if seen.energy_ahead_usd_per_kwh]
    if state.basis is CostBasis.RENT or not ahead:
        return PricesAhead(
            start_s=state.seconds(state.now_ns), usd_per_gpu_hour=known.usd_per_gpu_hour[None, :]
        )
    rows = []
    for hour in range(1 + max(len(seen.energy_ahead_usd_per_kwh) for seen in ahead)):
        energy = []
        for seen in observed:
            series = (seen.region.energy_usd_per_kwh, *seen.energy_ahead_usd_per_kwh)
            energy.append(series[min(hour, len(series) - 1)])
        rows.append(usd_per_gpu_hour(known.graph, state.basis, energy))
    # Those with a series are observed together, every hour.
    latest_ns = max(state.energy_since_ns[seen.region.region_id] for seen in ahead)
    return PricesAhead(start_s=state.seconds(latest_ns), usd_per_gpu_hour=np.array(rows))
