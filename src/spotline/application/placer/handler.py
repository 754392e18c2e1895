"""The placer's handler: pipelines get regions and links, anew whenever something changes.

A scheduling pass runs when a pipeline comes or goes, and when a region or link is observed:

1. What is done by now ends. Nobody reports that: it follows from the placement's iteration time
   and the time on the message.
2. Placements that a loss or a narrowed link leaves no room for go back to their last checkpoint.
   All others stay as they are.
3. The method places those and what waits. A deadline is met, or the job waits for a release that
   lets it be met, or it is refused with the earliest finish there is.
4. After an observation a running job moves where that pays after migration.

Where a region's GPUs are rented, what was decided becomes commands for the cloud actuator. A
pipeline computes when a report says that it holds what it was told to; what the cloud refuses or
takes back is less capacity, and who is short of it goes elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spotline.application.placer.messages import earliest_of
from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.renting import Rental, lots_of, on_whole_instances
from spotline.application.placer.state import PlacerState, after_ns, micro_usd
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import (
    LinkObserved,
    PipelineProvisioningCommanded,
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
    RegionObserved,
)
from spotline.domain.jobs.lot import Lot
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
from spotline.domain.units import NS_PER_S, S_PER_HOUR

SPEC = Spec(
    service="placer",
    consumes=(
        MarketOpened,
        SlotOpened,
        SlotDecided,
        RegionObserved,
        LinkObserved,
        PipelineSubmitted,
        PipelineReleased,
        LaunchRefused,
        CapacityLost,
        CapacityReported,
        CostAccrued,
    ),
    produces=(
        PipelineSubmitted,
        PipelineReleased,
        PlacementDecided,
        PlacementEnded,
        PipelineProvisioningCommanded,
    ),
    decides=(PlacementDecided, PlacementEnded, PipelineProvisioningCommanded),
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
        if isinstance(event, SlotDecided | CostAccrued | MarketOpened):
            return NOTHING  # what is decided now would be too late for the revision that is out
        ended = _ended(state, event)
        decided = _begun(state, event) if isinstance(event, CapacityReported) else []
        if _calls_for_a_pass(state, event, ended):
            scheduling = _Pass(state, self.method, {one.job_id for one in ended})
            scheduling.place()
            if self.options.moves and _changes_prices(state, event):
                scheduling.move()
            decided += scheduling.decided
        commands = _commands(state, [*ended, *decided], ctx)
        if isinstance(event, CapacityReported) and event.settled:
            commands += _corrections(state, {one.job_id for one in commands}, ctx)
        if not ended and not decided and not commands:
            return NOTHING
        return Outcome(events=(*ended, *decided, *commands))

    def due(self, state: PlacerState) -> Sequence[Timer]:
        """Wait for nothing: time comes with the slots."""
        return ()


def _ended(state: PlacerState, event: Event) -> list[PlacementEnded]:
    over = [run for run in state.running() if not run.pending and run.finish_ns <= state.now_ns]
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


def _begun(state: PlacerState, event: CapacityReported) -> list[PlacementDecided]:
    """Who holds all it was told to hold, and computes from the revision that launched it on."""
    rented, rentals = state.rented, state.rentals()
    if event.slot != rented.slot:
        return []
    begun = []
    for run in state.running():
        if run.placement is None or not run.pending or run.broken:
            continue
        if run.waits_for(lots_of(run.placement, rentals)):
            continue
        begins_ns = max(rented.revision_ns, run.billed_ns)
        starts_ns = after_ns(begins_ns, run.job.restart_s if run.started else 0.0)
        left = run.job.iterations - run.done_before
        begun.append(
            PlacementDecided(
                job_id=run.pipeline.job_id,
                tenant=run.pipeline.tenant,
                ts_event_ns=begins_ns,
                outcome=PlacementOutcome.STARTED,
                method_id=run.method_id,
                placement=run.placement,
                iterations_done=run.done_before,
                starts_ns=starts_ns,
                finish_ns=after_ns(starts_ns, left * run.placement.iteration_s),
                expected_cost_micro_usd=micro_usd(left * run.placement.usd_per_iteration),
                reason=run.reason,
            )
        )
    return begun


def _changes_prices(state: PlacerState, event: Event) -> bool:
    if isinstance(event, SlotOpened):
        return state.slot_changed
    return isinstance(event, RegionObserved | LinkObserved)


def _calls_for_a_pass(state: PlacerState, event: Event, ended: list[PlacementEnded]) -> bool:
    if isinstance(event, RegionObserved | LinkObserved):
        return not event.more_follow and not state.observed_ahead
    if ended:
        return True
    if isinstance(event, PipelineSubmitted):
        run = state.open_runs.get(event.pipeline.job_id)
        return run is not None and not run.decided
    if isinstance(event, CapacityReported):
        # Refusals and losses come before the report that says what is left.
        return any(run.broken for run in state.open_runs.values())
    if _changes_prices(state, event):
        return True
    # Time alone changes nothing but whether deadlines can still be met, and who may ask again.
    return isinstance(event, SlotOpened) and any(
        run.pipeline.deadline_s or run.backoff for run in state.waiting()
    )


def _commands(
    state: PlacerState, settled: Sequence[PlacementDecided | PlacementEnded], ctx: Context
) -> list[PipelineProvisioningCommanded]:
    """What must be held differently from now on, and copies to be paid; by pipeline, offering."""
    rentals = state.rentals()
    last = {one.job_id: one for one in settled}
    commands = []
    for job_id, one in sorted(last.items()):
        run = state.runs[job_id]
        placement = one.placement if isinstance(one, PlacementDecided) else None
        wanted = lots_of(placement, rentals)
        copied = _copied(state, run, one, rentals)
        for offering_id in sorted(wanted.keys() | run.told.keys() | run.held.keys()):
            target = wanted.get(offering_id, Lot(offering_id=offering_id))
            told = run.told.get(offering_id)
            transfer = copied.get(offering_id, 0)
            same = told is not None and target == told.lot and not run.broken
            if same and not transfer:
                continue
            pool = state.quota_pool(offering_id) if told is None else told.quota_pool
            commands.append(
                PipelineProvisioningCommanded(
                    command_id=ctx.derive_id(f"pipeline:{job_id}:{offering_id}"),
                    job_id=job_id,
                    tenant=run.pipeline.tenant,
                    quota_pool=pool,
                    target=target,
                    transfer_cost_micro_usd=transfer,
                )
            )
    return commands


def _corrections(
    state: PlacerState, told: set[str], ctx: Context
) -> list[PipelineProvisioningCommanded]:
    """Tell again whoever holds more than it was told to: nobody else would ever release it."""
    commands = []
    for job_id, run in sorted(state.renting.items()):
        if job_id in told:
            continue
        for offering_id in run.surplus():
            known = run.told.get(offering_id)
            commands.append(
                PipelineProvisioningCommanded(
                    command_id=ctx.derive_id(f"surplus:{job_id}:{offering_id}"),
                    job_id=job_id,
                    tenant=run.pipeline.tenant,
                    quota_pool=state.quota_pool(offering_id) if known is None else known.quota_pool,
                    target=Lot(offering_id=offering_id) if known is None else known.lot,
                )
            )
    return commands


def _copied(
    state: PlacerState,
    run: PipelineRun,
    one: PlacementDecided | PlacementEnded,
    rentals: Mapping[str, Rental],
) -> dict[str, int]:
    """What copying the checkpoint costs, on the offering it goes to, once the job begins there."""
    if isinstance(one, PlacementEnded) or one.placement is None or not one.iterations_done:
        return {}
    if one.outcome is not PlacementOutcome.STARTED and run.waits_for(
        lots_of(one.placement, rentals)
    ):
        return {}  # only when its instances are there
    first = one.placement.path[0].region_id
    rental, usd = rentals.get(first), state.copy_usd(run, first)
    return {rental.offering.offering_id: micro_usd(usd)} if rental is not None and usd else {}


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
        staying = [one for one in running if one[0].pipeline.job_id not in reasons]
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
        done = job_done(run, job)
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
            self._decide(run, PlacementOutcome.WAITING, why, iterations_done=done)

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
                one.gpus
                for one in (before.path if before is not None else ())
                if one.region_id == share.region_id
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
        self._decide(
            run,
            PlacementOutcome.REFUSED,
            f"the deadline is in {before_s:.0f} s, it could be done {when}",
            earliest_finish_ns=self.state.ns(earliest_s + wait_s) if possible else 0,
        )

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
    latest_ns = max(state.energy_since_ns[one.region.region_id] for one in ahead)
    return PricesAhead(start_s=state.seconds(latest_ns), usd_per_gpu_hour=np.array(rows))
