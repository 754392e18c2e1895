"""The placer's handler: pipelines get regions and links, again whenever something changes.

A scheduling pass runs when a pipeline comes or goes, and when a region or link is observed:

1. What is done by now ends. No report says so: it follows from the placement's iteration time
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

from collections.abc import Sequence

from spotline.application.placer.commanding import commands_for, corrections_for
from spotline.application.placer.options import PlacerOptions, named_method
from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.renting import lots_of
from spotline.application.placer.scheduling import SchedulingPass
from spotline.application.placer.state import PlacerState, after_ns, micro_usd
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked
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
        EntryParked,
    ),
    decides=(PlacementDecided, PlacementEnded, PipelineProvisioningCommanded),
)


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
            scheduling = SchedulingPass(state, self.method, {ending.job_id for ending in ended})
            scheduling.place()
            if self.options.moves and _changes_prices(state, event):
                scheduling.move()
            decided += scheduling.decided
        commands = commands_for(state, [*ended, *decided], ctx)
        if isinstance(event, CapacityReported) and event.settled:
            commands += corrections_for(state, {command.job_id for command in commands}, ctx)
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
