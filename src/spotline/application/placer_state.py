"""What the placer knows: regions, links and pipelines, folded from the log.

Time is that of the last message. A clock in seconds, as methods need it, begins at the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.application.placing import PlacementPhase, PlacementStatus
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
from spotline.domain.placement.cost import egress_usd_per_iteration, usd_per_gpu_hour
from spotline.domain.placement.graph import FloatArray, Link, RegionGraph
from spotline.domain.placement.interface import CostBasis, PlacementMoment, Release, Residual
from spotline.domain.placement.pipeline import PipelineJob, Placement
from spotline.domain.placement.submission import Pipeline
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S, S_PER_HOUR

# What a message holds at most; a finish beyond it is three centuries away.
_MOST_NS = 2**63 - 1

_TIMED = SlotOpened | RegionObserved | LinkObserved | PipelineSubmitted | PipelineReleased


@dataclass(frozen=True, slots=True)
class PricedGraph:
    """Regions and links that can be used now, and what a GPU-hour costs in each."""

    graph: RegionGraph
    usd_per_gpu_hour: FloatArray


@dataclass(slots=True, kw_only=True)
class PipelineRun:
    """One pipeline, from being handed over to its end.

    `done_before` iterations were done when the present placement began to compute, at `starts_ns`.
    `spent_usd` is what it cost up to `billed_ns`. `decided` is False before the first decision on
    it, `started` True once it was placed.
    """

    pipeline: Pipeline
    submitted_ns: int
    job: PipelineJob
    phase: PlacementPhase = PlacementPhase.WAITING
    decided: bool = False
    started: bool = False
    placement: Placement | None = None
    done_before: int = 0
    starts_ns: int = 0
    finish_ns: int = 0
    billed_ns: int = 0
    spent_usd: float = 0.0
    moves: int = 0
    checkpoint_region: str = ""
    earliest_finish_ns: int = 0
    reason: str = ""

    def done_by(self, at_ns: int) -> int:
        """Iterations done by a time, as the placement's own iteration time has it."""
        if self.placement is None:
            return self.done_before
        total = self.job.iterations
        if at_ns >= self.finish_ns:
            return total
        computed_s = max(0, at_ns - self.starts_ns) / NS_PER_S
        return min(self.done_before + int(computed_s / self.placement.iteration_s), total - 1)


@dataclass(slots=True, kw_only=True)
class PlacerState:
    """Everything observed and decided so far; `now_ns` 0 before the first message with a time."""

    basis: CostBasis
    now_ns: int = 0
    origin_ns: int = 0
    regions: dict[str, RegionObserved] = field(default_factory=dict)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    runs: dict[str, PipelineRun] = field(default_factory=dict)
    open_runs: dict[str, PipelineRun] = field(default_factory=dict)
    _priced: PricedGraph | None = None

    def seconds(self, at_ns: int) -> float:
        """A time on the methods' clock."""
        return (at_ns - self.origin_ns) / NS_PER_S

    def ns(self, at_s: float) -> int:
        """A time of the methods' clock, in nanoseconds since the epoch."""
        return after_ns(self.origin_ns, at_s)

    def running(self) -> list[PipelineRun]:
        """Those that have a place, by job id."""
        return [run for _, run in sorted(self.open_runs.items()) if run.placement is not None]

    def waiting(self) -> list[PipelineRun]:
        """Those that want one, by job id."""
        return [run for _, run in sorted(self.open_runs.items()) if run.placement is None]

    def priced_graph(self, basis: CostBasis | None = None) -> PricedGraph:
        """What can be used now; a link counts once both its regions were observed."""
        if self._priced is None:
            regions = [
                replace(seen.region, gpus=0) if seen.down else seen.region
                for seen in self.regions.values()
            ]
            links = [
                link
                for (source, destination), link in sorted(self.links.items())
                if source in self.regions and destination in self.regions
            ]
            graph = RegionGraph(regions, links)
            self._priced = PricedGraph(graph, usd_per_gpu_hour(graph, self.basis))
        if basis is None or basis is self.basis:
            return self._priced
        graph = self._priced.graph
        return PricedGraph(graph, usd_per_gpu_hour(graph, basis))

    def moment(self, basis: CostBasis | None = None) -> PlacementMoment:
        """What is free now, what it costs, and when more will be free."""
        known = self.priced_graph(basis)
        held = [(run, run.placement) for run in self.running() if run.placement is not None]
        return PlacementMoment(
            now_s=self.seconds(self.now_ns),
            usd_per_gpu_hour=known.usd_per_gpu_hour,
            residual=Residual.of(known.graph, [placement for _, placement in held]),
            releases=tuple(
                Release(at_s=self.seconds(run.finish_ns), placement=placement)
                for run, placement in held
            ),
        )

    def status(self, run: PipelineRun) -> PlacementStatus:
        """Where one pipeline stands now."""
        return PlacementStatus(
            pipeline=run.pipeline,
            phase=run.phase,
            submitted_ns=run.submitted_ns,
            placement=run.placement,
            iterations_done=run.done_by(self.now_ns),
            finish_ns=run.finish_ns,
            cost_micro_usd=micro_usd(run.spent_usd + self._unbilled_usd(run, self.now_ns)),
            moves=run.moves,
            earliest_finish_ns=run.earliest_finish_ns,
            reason=run.reason,
        )

    def cost_by(self, run: PipelineRun, at_ns: int) -> float:
        """What a pipeline has cost by a time not before the last observation, USD."""
        return run.spent_usd + self._unbilled_usd(run, at_ns)

    # --- fold -----------------------------------------------------------------------------------

    def fold(self, event: Event) -> None:
        """Apply an event."""
        if isinstance(event, _TIMED):
            self._advance(event.ts_event_ns)
        match event:
            case RegionObserved():
                self._bill_all()
                self.regions[event.region.region_id] = event
                self._priced = None
            case LinkObserved():
                self._bill_all()
                self.links[event.link.source, event.link.destination] = event.link
                self._priced = None
            case PipelineSubmitted() if event.pipeline.job_id not in self.runs:
                arrival_s = self.seconds(event.ts_event_ns)
                run = PipelineRun(
                    pipeline=event.pipeline,
                    submitted_ns=event.ts_event_ns,
                    job=event.pipeline.job(arrival_s),
                )
                self.runs[event.pipeline.job_id] = run
                self.open_runs[event.pipeline.job_id] = run
            case PlacementDecided() if event.job_id in self.open_runs:
                self._decided(self.open_runs[event.job_id], event)
            case PlacementEnded() if event.job_id in self.open_runs:
                self._ended(self.open_runs[event.job_id], event)
            case _:
                pass

    def _advance(self, ts_event_ns: int) -> None:
        if not self.origin_ns:
            self.origin_ns = ts_event_ns
        self.now_ns = max(self.now_ns, ts_event_ns)

    def _decided(self, run: PipelineRun, event: PlacementDecided) -> None:
        self._bill(run, event.ts_event_ns)
        if event.placement is not None:
            first = event.placement.path[0].region_id
            if run.started:
                run.moves += 1
                run.spent_usd += self._copy_usd(run, first)
            run.checkpoint_region = first
        run.decided = True
        run.placement = event.placement
        run.done_before = event.iterations_done
        run.starts_ns, run.finish_ns = event.starts_ns, event.finish_ns
        run.billed_ns = event.ts_event_ns
        run.earliest_finish_ns = event.earliest_finish_ns
        run.reason = event.reason
        if event.placement is not None:
            run.started = True
            run.phase = PlacementPhase.RUNNING
        elif event.outcome is PlacementOutcome.REFUSED:
            run.phase = PlacementPhase.REFUSED
            del self.open_runs[event.job_id]
        else:
            run.phase = PlacementPhase.WAITING

    def _ended(self, run: PipelineRun, event: PlacementEnded) -> None:
        completed = event.end is PlacementEnd.COMPLETED
        run.phase = PlacementPhase.COMPLETED if completed else PlacementPhase.RELEASED
        run.decided = True
        run.placement = None
        run.done_before = event.iterations_done
        run.finish_ns = event.ts_event_ns
        run.spent_usd = event.cost_micro_usd / MICRO_USD_PER_USD
        run.reason = event.end.value
        del self.open_runs[event.job_id]

    # --- money ----------------------------------------------------------------------------------

    def _bill_all(self) -> None:
        """Charge what ran so far, before a price changes."""
        for run in self.open_runs.values():
            self._bill(run, self.now_ns)

    def _bill(self, run: PipelineRun, until_ns: int) -> None:
        run.spent_usd += self._unbilled_usd(run, until_ns)
        run.billed_ns = max(run.billed_ns, until_ns)

    def _unbilled_usd(self, run: PipelineRun, until_ns: int) -> float:
        placement = run.placement
        until_ns = min(until_ns, run.finish_ns)
        if placement is None or until_ns <= run.billed_ns:
            return 0.0
        known = self.priced_graph()
        index = known.graph.index
        held_s = (until_ns - run.billed_ns) / NS_PER_S
        computed_s = max(0, until_ns - max(run.billed_ns, run.starts_ns)) / NS_PER_S
        path = [index[share.region_id] for share in placement.path]
        usd_per_hour = sum(
            float(known.usd_per_gpu_hour[region]) * share.gpus
            for region, share in zip(path, placement.path, strict=True)
        )
        egress_usd = egress_usd_per_iteration(run.job, known.graph, path)
        return usd_per_hour * held_s / S_PER_HOUR + egress_usd * computed_s / placement.iteration_s

    def _copy_usd(self, run: PipelineRun, destination: str) -> float:
        """Egress of the checkpoint to the first region of a new path."""
        link = self.links.get((run.checkpoint_region, destination))
        return run.job.checkpoint_gb * link.egress_usd_per_gb if link is not None else 0.0


def after_ns(start_ns: int, seconds: float) -> int:
    """A time so many seconds later, rounded up to a nanosecond, and no later than a message holds.

    Raises
    ------
    OverflowError
        `seconds` is infinite.
    """
    whole_s = int(seconds)
    fraction_ns = -int(-(seconds - whole_s) * NS_PER_S // 1)
    return min(start_ns + whole_s * NS_PER_S + fraction_ns, _MOST_NS)


def micro_usd(usd: float) -> int:
    """Micro-dollars of an amount that was summed in floats; nearest."""
    return min(max(round(usd * MICRO_USD_PER_USD), -_MOST_NS), _MOST_NS)
