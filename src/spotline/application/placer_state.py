"""What the placer knows: regions, links and pipelines, folded from the log.

Time is that of the last message. A clock in seconds, as methods need it, begins at the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.application.placing import PlacementPhase, PlacementStatus
from spotline.application.renting import Rental, rental_of
from spotline.domain.events import (
    CapacityLost,
    CostAccrued,
    Event,
    LaunchRefused,
    LinkObserved,
    Lot,
    MarketOpened,
    PipelineProvisioningCommanded,
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
    RegionObserved,
    SlotOpened,
)
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.placement.cost import egress_usd_per_iteration, usd_per_gpu_hour
from spotline.domain.placement.graph import FloatArray, Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis, PlacementMoment, Release, Residual
from spotline.domain.placement.pipeline import PipelineJob, Placement
from spotline.domain.placement.submission import Pipeline
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S, S_PER_HOUR

# What a message holds at most; a finish beyond it is three centuries away.
_MOST_NS = 2**63 - 1

# More than any region has: what the market has, however little of it is set aside.
_MANY_GPUS = 1 << 40

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
    it, `started` True once it was placed. `commanded` is what it was told to hold, by offering;
    `broken` says why its present place has not all of that (empty: it has).
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
    commanded: dict[str, Lot] = field(default_factory=dict)
    broken: str = ""
    ledger_micro_usd: int = 0

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
    """Everything observed and decided so far; `now_ns` 0 before the first message with a time.

    `sold_out` are regions whose cloud refused or took instances in the open slot: nothing beyond
    what pipelines hold there is looked for before the next one. `slot_changed` says that the
    open slot brought another rent or another count. `energy_since_ns` says by region since when
    its present price of energy and those ahead of it are known.
    """

    basis: CostBasis
    now_ns: int = 0
    origin_ns: int = 0
    slot_opened_ns: int = 0
    slot_changed: bool = False
    offerings: dict[str, Offering] = field(default_factory=dict)
    quotes: dict[str, Quote] = field(default_factory=dict)
    sold_out: set[str] = field(default_factory=set)
    energy_since_ns: dict[str, int] = field(default_factory=dict)
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
            regions = [self._usable(seen) for seen in self.regions.values()]
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

    def rentals(self) -> dict[str, Rental]:
        """What regions are rented as, of those that are."""
        found = {}
        for region_id, seen in sorted(self.regions.items()):
            rental = rental_of(seen.region, self.offerings, self.quotes)
            if rental is not None:
                found[region_id] = rental
        return found

    def held_gpus(self, region_id: str) -> int:
        """GPUs that unbroken placements hold in a region, on whole instances."""
        rental = rental_of(self.regions[region_id].region, self.offerings, self.quotes)
        total = 0
        for run in self.running():
            for share in run.placement.path if run.placement and not run.broken else ():
                if share.region_id == region_id:
                    whole = 1 if rental is None else rental.offering.gpus_per_instance
                    total += -(-share.gpus // whole) * whole
        return total

    def _usable(self, seen: RegionObserved) -> Region:
        """A region with what can be used of it, at the rent the market quotes."""
        region = seen.region
        gpus = 0 if seen.down else region.gpus
        if not region.offering_id:
            return replace(region, gpus=gpus)
        rental = rental_of(region, self.offerings, self.quotes)
        if rental is None:
            return replace(region, gpus=0)
        gpus = rental.usable_gpus(gpus)
        if region.region_id in self.sold_out:
            gpus = min(gpus, self.held_gpus(region.region_id))
        return replace(region, gpus=gpus, rent_usd_per_gpu_hour=rental.usd_per_gpu_hour)

    def copy_usd(self, run: PipelineRun, destination: str) -> float:
        """Egress of the checkpoint to the first region of a new path."""
        link = self.links.get((run.checkpoint_region, destination))
        return run.job.checkpoint_gb * link.egress_usd_per_gb if link is not None else 0.0

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
            ledger_micro_usd=run.ledger_micro_usd,
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
            case MarketOpened():
                self.offerings = {one.offering_id: one for one in event.offerings}
                self._priced = None
            case SlotOpened():
                self._open_slot(event)
            case RegionObserved():
                self._bill_all()
                self._note_energy(event)
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
            case PipelineProvisioningCommanded() if event.job_id in self.runs:
                self._commanded(self.runs[event.job_id], event.target)
            case LaunchRefused() | CapacityLost():
                self._break(event)
            case CostAccrued() if event.job_id in self.runs:
                self.runs[event.job_id].ledger_micro_usd += event.cost_micro_usd
            case _:
                pass

    def _note_energy(self, event: RegionObserved) -> None:
        """Remember when an hour's price was first seen: a region is looked at in mid-hour too."""
        before = self.regions.get(event.region.region_id)
        if before is None or _energy(before) != _energy(event):
            self.energy_since_ns[event.region.region_id] = event.ts_event_ns

    def _open_slot(self, event: SlotOpened) -> None:
        self._bill_all()
        self.slot_opened_ns = event.ts_event_ns
        before = self.rentals(), self.sold_out
        self.quotes = {one.quote.offering_id: one.quote for one in event.quotes}
        self.sold_out = set()
        self.slot_changed = _terms(before[0]) != _terms(self.rentals()) or bool(before[1])
        if self.slot_changed:
            self._priced = None

    def _commanded(self, run: PipelineRun, target: Lot) -> None:
        if target.spot or target.on_demand:
            run.commanded[target.offering_id] = target
        else:
            run.commanded.pop(target.offering_id, None)

    def _break(self, event: LaunchRefused | CapacityLost) -> None:
        """A pipeline has not all it was told to hold: it cannot go on where it is."""
        offering_id = event.offering_id
        if isinstance(event, CapacityLost):
            self._advance(self.slot_opened_ns + event.offset_s * NS_PER_S)
        run = self.open_runs.get(event.job_id)
        if run is None or run.placement is None or offering_id not in run.commanded:
            return
        if isinstance(event, CapacityLost):
            run.broken = f"{offering_id} took {len(event.instance_ids)} instances back"
        else:
            detail = f": {event.detail}" if event.detail else ""
            granted = f"granted {event.granted} of {event.requested} instances"
            run.broken = f"{offering_id} {granted}{detail}"
        if not run.done_by(self.now_ns):
            run.started = False  # nothing to resume, and nothing to copy
        self.sold_out |= {
            region_id
            for region_id, seen in self.regions.items()
            if seen.region.offering_id == offering_id
        }
        self._priced = None

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
                run.spent_usd += self.copy_usd(run, first)
            run.checkpoint_region = first
        run.decided = True
        run.broken = ""
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
        self._forget_what_is_held()

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
        self._forget_what_is_held()

    def _forget_what_is_held(self) -> None:
        if self.sold_out:
            self._priced = None

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


def _energy(seen: RegionObserved) -> tuple[float, ...]:
    return (seen.region.energy_usd_per_kwh, *seen.energy_ahead_usd_per_kwh)


def _terms(rentals: dict[str, Rental]) -> list[tuple[str, float, int]]:
    """What a placement depends on of the quotes."""
    return [
        (region_id, one.usd_per_gpu_hour, one.usable_gpus(_MANY_GPUS))
        for region_id, one in rentals.items()
    ]


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
