"""The placer's handler: pipelines get regions and links, anew whenever something changes.

A scheduling pass runs when a pipeline comes or goes, and when a region or link is observed:

1. What is done by now ends. Nobody reports that: it follows from the placement's iteration time
   and the time on the message.
2. Placements that a loss or a narrowed link leaves no room for go back to their last checkpoint.
   All others stay as they are.
3. The method places those and what waits. A deadline is met, or the job waits for a release that
   lets it be met, or it is refused with the earliest finish there is.
4. After an observation a running job moves where that pays after migration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.application.placer_state import PipelineRun, PlacerState, after_ns, micro_usd
from spotline.application.placing import earliest_of
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events import (
    Event,
    LinkObserved,
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
    RegionObserved,
    SlotOpened,
)
from spotline.domain.placement.cost import usd_per_gpu_hour
from spotline.domain.placement.deadlines import earliest_on_empty
from spotline.domain.placement.interface import (
    CostBasis,
    PlacementMethod,
    PlacementMoment,
    Release,
    Residual,
)
from spotline.domain.placement.methods.registry import DEFAULT_METHOD_ID, method_named
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
from spotline.domain.units import S_PER_HOUR

SPEC = Spec(
    service="placer",
    consumes=(SlotOpened, RegionObserved, LinkObserved, PipelineSubmitted, PipelineReleased),
    produces=(PipelineSubmitted, PipelineReleased, PlacementDecided, PlacementEnded),
    decides=(PlacementDecided, PlacementEnded),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerOptions:
    """Who places, what counts as cost, and whether running jobs move where that pays.

    `method` is a name of the registry, `cost` one of `CostBasis`: `energy` or `rent`.

    Raises
    ------
    ValueError
        There is no such method or cost.
    """

    method: str = DEFAULT_METHOD_ID
    cost: str = CostBasis.ENERGY.value
    moves: bool = True

    def __post_init__(self) -> None:
        named_method(self.method)
        named_basis(self.cost)

    @property
    def basis(self) -> CostBasis:
        """What counts as cost."""
        return named_basis(self.cost)


def named_method(name: str) -> PlacementMethod:
    """The placement method of this name; `ValueError` lists those there are."""
    try:
        return method_named(name)
    except KeyError as error:
        raise ValueError(f"method: {error.args[0]}") from error


def named_basis(name: str) -> CostBasis:
    """The cost basis of this name; `ValueError` lists those there are."""
    try:
        return CostBasis(name)
    except ValueError:
        known = ", ".join(basis.value for basis in CostBasis)
        raise ValueError(f"cost must be one of {known}, was {name!r}") from None


class PlaceHandler:
    """Folds regions, links and pipelines, and decides who runs where."""

    spec = SPEC

    def __init__(self, options: PlacerOptions | None = None) -> None:
        self.options = options or PlacerOptions()
        self.method = named_method(self.options.method)

    def initial(self) -> PlacerState:
        """No region, no link, no pipeline."""
        return PlacerState(basis=self.options.basis)

    def evolve(self, state: PlacerState, event: Event) -> None:
        """Apply `event` to `state`."""
        state.fold(event)

    def decide(self, state: PlacerState, event: Event, ctx: Context) -> Outcome:
        """End what is over, and place what can be placed."""
        ended = _ended(state, event)
        if not _calls_for_a_pass(state, event, ended):
            return Outcome(events=tuple(ended)) if ended else NOTHING
        scheduling = _Pass(state, self.method, {one.job_id for one in ended})
        scheduling.place()
        if self.options.moves and isinstance(event, RegionObserved | LinkObserved):
            scheduling.move()
        return Outcome(events=(*ended, *scheduling.decided))

    def due(self, state: PlacerState) -> Sequence[Timer]:
        """Wait for nothing: time comes with the slots."""
        return ()


def _ended(state: PlacerState, event: Event) -> list[PlacementEnded]:
    over = [run for run in state.running() if run.finish_ns <= state.now_ns]
    over.sort(key=lambda run: (run.finish_ns, run.pipeline.job_id))
    ended = [_end(state, run, PlacementEnd.COMPLETED, run.finish_ns) for run in over]
    if isinstance(event, PipelineReleased):
        released = state.open_runs.get(event.job_id)
        if released is not None and released not in over:
            ended.append(_end(state, released, PlacementEnd.RELEASED, state.now_ns))
    return ended


def _end(state: PlacerState, run: PipelineRun, end: PlacementEnd, at_ns: int) -> PlacementEnded:
    return PlacementEnded(
        job_id=run.pipeline.job_id,
        tenant=run.pipeline.tenant,
        ts_event_ns=at_ns,
        end=end,
        iterations_done=run.done_by(at_ns),
        cost_micro_usd=micro_usd(state.cost_by(run, at_ns)),
    )


def _calls_for_a_pass(state: PlacerState, event: Event, ended: list[PlacementEnded]) -> bool:
    if isinstance(event, RegionObserved | LinkObserved):
        return not event.more_follow
    if ended:
        return True
    if isinstance(event, PipelineSubmitted):
        run = state.open_runs.get(event.pipeline.job_id)
        return run is not None and not run.decided
    # Time alone changes nothing but whether deadlines can still be met.
    waiting = (run for run in state.open_runs.values() if run.placement is None)
    return isinstance(event, SlotOpened) and any(run.pipeline.deadline_s for run in waiting)


@dataclass(slots=True)
class _Pass:
    """One scheduling pass; `decided` collects what follows from it."""

    state: PlacerState
    method: PlacementMethod
    over: set[str]
    decided: list[PlacementDecided] = field(default_factory=list)
    _residual: Residual = field(init=False)
    _stay: list[tuple[PipelineRun, Placement]] = field(init=False)
    _moment: PlacementMoment = field(init=False)

    def place(self) -> None:
        """Take off what has no room any more, and go through the queue."""
        state = self.state
        known = state.priced_graph()
        running = [
            (run, run.placement)
            for run in state.running()
            if run.placement is not None and run.pipeline.job_id not in self.over
        ]
        reasons = affected([placement for _, placement in running], known.graph).reasons
        self._stay = [one for one in running if one[0].pipeline.job_id not in reasons]
        self._residual = Residual.of(known.graph, [placement for _, placement in self._stay])
        self._moment = PlacementMoment(
            now_s=state.seconds(state.now_ns),
            usd_per_gpu_hour=known.usd_per_gpu_hour,
            residual=self._residual.copy(),
            releases=tuple(
                Release(at_s=state.seconds(run.finish_ns), placement=placement)
                for run, placement in self._stay
            ),
        )
        displaced = [run for run, _ in running if run.pipeline.job_id in reasons]
        waiting = [run for run in state.waiting() if run.pipeline.job_id not in self.over]
        self._go_through([*displaced, *waiting], reasons)

    def _go_through(self, runs: Sequence[PipelineRun], reasons: Mapping[str, str]) -> None:
        queue = {run.pipeline.job_id: (run, self._left_of(run)) for run in runs}
        if not queue:
            return
        answers = self.method.place([job for _, job in queue.values()], self._moment)
        for answer in answers:
            run, job = queue[answer.job_id]
            self._settle(run, job, answer, reasons.get(answer.job_id, ""))

    def _left_of(self, run: PipelineRun) -> PipelineJob:
        """What is left of a job from its last checkpoint on, as if it were handed over now."""
        done = checkpointed_iterations(run.job, run.done_by(self.state.now_ns))
        job = resumed(run.job, done)
        if job is None:
            raise InvariantViolation(f"{run.pipeline.job_id} is done, and did not end")
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
        done = job_done(run, job)
        if earliest_s is not None:
            self._refuse(run, job, earliest_s)
        elif isinstance(answer, Placement) and not self._late(run, job, answer):
            self._residual.take(answer)
            self._take(run, job, answer, why, done)
        elif not run.decided or run.placement is not None:
            if isinstance(answer, Placement):
                why = "waits for a place that meets its deadline"
            self._decide(run, PlacementOutcome.WAITING, why, iterations_done=done)

    def _refusal(self, job: PipelineJob, answer: Placement | NoPlacement) -> float | None:
        """The earliest finish, where it is too late."""
        if isinstance(answer, NoPlacement) and answer.earliest_finish_s is not None:
            return answer.earliest_finish_s
        earliest_s = earliest_of(answer, job, self._moment)
        return earliest_s if earliest_s > job.deadline_s else None

    def _late(self, run: PipelineRun, job: PipelineJob, placement: Placement) -> bool:
        finish_s = self._moment.now_s + job.iterations * placement.iteration_s
        return not run.started and finish_s > job.deadline_s

    def _refuse(self, run: PipelineRun, job: PipelineJob, earliest_s: float) -> None:
        possible = math.isfinite(earliest_s)
        now_s = self._moment.now_s
        when = f"in {earliest_s - now_s:.0f} s" if possible else "never on these regions"
        self._decide(
            run,
            PlacementOutcome.REFUSED,
            f"the deadline is in {job.deadline_s - now_s:.0f} s, it could be done {when}",
            earliest_finish_ns=self.state.ns(earliest_s) if possible else 0,
        )

    def _take(
        self, run: PipelineRun, job: PipelineJob, placement: Placement, why: str, done: int
    ) -> None:
        restart_s = job.restart_s if run.started else 0.0
        starts_ns = after_ns(self.state.now_ns, restart_s)
        self._decide(
            run,
            PlacementOutcome.MOVED if run.started else PlacementOutcome.PLACED,
            why,
            placement=placement,
            iterations_done=done,
            starts_ns=starts_ns,
            finish_ns=after_ns(starts_ns, job.iterations * placement.iteration_s),
            expected_cost_micro_usd=micro_usd(job.iterations * placement.usd_per_iteration),
        )

    def _decide(
        self,
        run: PipelineRun,
        outcome: PlacementOutcome,
        reason: str,
        *,
        placement: Placement | None = None,
        iterations_done: int = 0,
        starts_ns: int = 0,
        finish_ns: int = 0,
        expected_cost_micro_usd: int = 0,
        earliest_finish_ns: int = 0,
    ) -> None:
        self.decided.append(
            PlacementDecided(
                job_id=run.pipeline.job_id,
                tenant=run.pipeline.tenant,
                ts_event_ns=self.state.now_ns,
                outcome=outcome,
                method_id=self.method.method_id,
                placement=placement,
                iterations_done=iterations_done,
                starts_ns=starts_ns,
                finish_ns=finish_ns,
                expected_cost_micro_usd=expected_cost_micro_usd,
                earliest_finish_ns=earliest_finish_ns,
                reason=reason,
            )
        )

    # --- moving where it pays -------------------------------------------------------------------

    def move(self) -> None:
        """Move running jobs that come cheaper elsewhere, migration included; by job id."""
        if not self._stay or len(self._residual.graph.region_ids) < 2:
            return
        prices = _prices_ahead(self.state)
        for run, held in self._stay:
            self._consider(run, held, prices)

    def _consider(self, run: PipelineRun, held: Placement, prices: PricesAhead) -> None:
        state, moment = self.state, self._moment
        # It has not done anything yet since it was placed: the next observation will tell.
        if state.now_ns <= run.starts_ns:
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
        if saved_usd <= WORTH_MOVING * abs(stay_usd):
            return
        self._residual.give_back(held)
        self._residual.take(move.placement)
        self._take(run, job, move.placement, move.reason, job_done(run, job))


def job_done(run: PipelineRun, left: PipelineJob) -> int:
    """Iterations that are done where `left` is what is left."""
    return run.job.iterations - left.iterations


def _prices_ahead(state: PlacerState) -> PricesAhead:
    """Prices of the hours to come, as far as they are known; the last one holds on."""
    known = state.priced_graph()
    observed = [state.regions[region_id] for region_id in known.graph.region_ids]
    ahead = [one for one in observed if one.energy_ahead_usd_per_kwh]
    if state.basis is CostBasis.RENT or not ahead:
        return PricesAhead(
            start_s=state.seconds(state.now_ns), usd_per_gpu_hour=known.usd_per_gpu_hour[None, :]
        )
    rows = []
    for hour in range(1 + max(len(one.energy_ahead_usd_per_kwh) for one in ahead)):
        energy = []
        for one in observed:
            series = (one.region.energy_usd_per_kwh, *one.energy_ahead_usd_per_kwh)
            energy.append(series[min(hour, len(series) - 1)])
        rows.append(usd_per_gpu_hour(known.graph, state.basis, energy))
    # Those with a series are observed together, every hour.
    latest_ns = max(one.ts_event_ns for one in ahead)
    return PricesAhead(start_s=state.seconds(latest_ns), usd_per_gpu_hour=np.array(rows))
