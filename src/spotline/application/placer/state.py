"""What the placer knows: regions, links and pipelines, folded from the log.

Time is that of the last message. A clock in seconds, as methods need it, begins at the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.application.market_view import ClockReading
from spotline.application.placer.messages import PlacementPhase, PlacementStatus
from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.renting import (
    Rental,
    RentedCapacity,
    Told,
    backed_off,
    lots_of,
    on_whole_instances,
)
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
from spotline.domain.ledger.caps import is_our_limit
from spotline.domain.market.offering import CapacityType
from spotline.domain.placement.cost import egress_usd_per_iteration, usd_per_gpu_hour
from spotline.domain.placement.graph import FloatArray, Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis, PlacementMoment, Release, Residual
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
class PlacerState:
    """Everything observed and decided so far; `now_ns` 0 before the first message with a time.

    `clock` is that of the open slot, None before the first. `slot_changed` says that the open slot brought another rent, another count, or what was
    observed ahead of it. `energy_since_ns` says by region since when its present price of energy
    and those ahead of it are known. `renting` are the runs that hold instances or were told to;
    `short` is what the cloud refused or took since its last report.
    """

    basis: CostBasis
    now_ns: int = 0
    origin_ns: int = 0
    clock: ClockReading | None = None
    slot_changed: bool = False
    observed_ahead: bool = False
    rented: RentedCapacity = field(default_factory=RentedCapacity)
    renting: dict[str, PipelineRun] = field(default_factory=dict)
    short: set[tuple[str, bool]] = field(default_factory=set)
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
            rental = self.rented.rental(seen.region)
            if rental is not None:
                found[region_id] = rental
        return found

    def _usable(self, seen: RegionObserved) -> Region:
        """A region with what can be used of it, at the rent the market quotes."""
        region = seen.region
        gpus = 0 if seen.down else region.gpus
        if not region.offering_id:
            return replace(region, gpus=gpus)
        rental = self.rented.rental(region)
        if rental is None:
            return replace(region, gpus=0)
        whole = rental.offering.gpus_per_instance
        held = self._held_instances(region.offering_id, spot=region.spot)
        instances = int(min(gpus // whole, self.rented.available(rental, held)))
        return replace(
            region, gpus=instances * whole, rent_usd_per_gpu_hour=rental.usd_per_gpu_hour
        )

    def _held_instances(self, offering_id: str, *, spot: bool) -> int:
        lots = [run.held.get(offering_id) for run in self.renting.values()]
        return sum(lot.spot if spot else lot.on_demand for lot in lots if lot is not None)

    def quota_pool(self, offering_id: str) -> str:
        """The quota that an offering's instances count against; empty where it is not known."""
        offering = self.rented.offerings.get(offering_id)
        return "" if offering is None else offering.quota_pool

    def copy_usd(self, run: PipelineRun, destination: str) -> float:
        """Egress of the checkpoint, if there is one, to the first region of a new path."""
        link = self.links.get((run.checkpoint_region, destination))
        return run.job.checkpoint_gb * link.egress_usd_per_gb if link is not None else 0.0

    def moment(self, basis: CostBasis | None = None) -> PlacementMoment:
        """What is free now, what it costs, and when more will be free."""
        known = self.priced_graph(basis)
        rentals = self.rentals()
        held = [
            (run, on_whole_instances(run.placement, rentals))
            for run in self.running()
            if run.placement is not None
        ]
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
                self.rented.open_market(event)
                self._priced = None
            case SlotOpened():
                self._open_slot(event)
            case RegionObserved():
                self._bill_all()
                self._note_ahead(event)
                self._note_energy(event)
                self.regions[event.region.region_id] = event
                self._priced = None
            case LinkObserved():
                self._bill_all()
                self._note_ahead(event)
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
            case CostAccrued() if event.job_id in self.runs:
                self.runs[event.job_id].ledger_micro_usd += event.cost_micro_usd
            case _:
                self._fold_capacity(event)

    def _fold_capacity(self, event: Event) -> None:
        match event:
            case PipelineProvisioningCommanded() if event.job_id in self.runs:
                self._tell(self.runs[event.job_id], event)
            case SlotDecided():
                if self.rented.note_decided(event):
                    for run in self.renting.values():
                        run.carry()
            case LaunchRefused():
                self._note_refusal(event)
            case CapacityLost():
                self._note_loss(event)
            case CapacityReported():
                self._note_report(event)
            case _:
                pass

    def _note_energy(self, event: RegionObserved) -> None:
        """Remember when an hour's price was first seen: a region is looked at in mid-hour too."""
        before = self.regions.get(event.region.region_id)
        if before is None or _energy(before) != _energy(event):
            self.energy_since_ns[event.region.region_id] = event.ts_event_ns

    def _open_slot(self, event: SlotOpened) -> None:
        self.clock = ClockReading(
            market_ns=event.ts_event_ns, slot=event.slot, slot_s=event.slot_s, mode=event.runs_in
        )
        self._bill_all()
        before = self._terms()
        self.rented.open_slot(event)
        self.slot_changed = self.observed_ahead or before != self._terms()
        self.observed_ahead = False
        self._priced = None

    def _terms(self) -> list[tuple[str, float, int]]:
        """What placements depend on of what is rented."""
        usable = [self._usable(seen) for seen in self.regions.values() if seen.region.offering_id]
        return [(region.region_id, region.rent_usd_per_gpu_hour, region.gpus) for region in usable]

    def _note_ahead(self, event: RegionObserved | LinkObserved) -> None:
        """What comes before its slot is decided on with the slot, whose quotes belong to it."""
        rented = any(seen.region.offering_id for seen in self.regions.values())
        if rented and event.ts_event_ns > self.rented.opened_ns:
            self.observed_ahead = True

    def _tell(self, run: PipelineRun, event: PipelineProvisioningCommanded) -> None:
        run.told[event.target.offering_id] = Told(
            lot=event.target, command_id=event.command_id, quota_pool=event.quota_pool
        )
        self.renting[run.pipeline.job_id] = run
        self._priced = None

    def _note_refusal(self, event: LaunchRefused) -> None:
        run = self.runs.get(event.job_id)
        told = run.told.get(event.offering_id) if run is not None else None
        # An earlier command's refusal says nothing of what the pipeline wants now.
        if run is None or told is None or told.command_id != event.command_id:
            return
        kind = event.offering_id, event.capacity_type is CapacityType.SPOT
        run.backoff[kind] = backed_off(run.backoff.get(kind), event.slot)
        # A cap is the platform's: it says nothing of the region.
        if not is_our_limit(event):
            self.short.add(kind)
        detail = f": {event.detail}" if event.detail else ""
        self._break(
            run,
            f"{event.offering_id} granted {event.granted} of {event.requested} instances{detail}",
        )

    def _note_loss(self, event: CapacityLost) -> None:
        if event.slot == self.rented.slot:
            self._advance(self.rented.opened_ns + event.offset_s * NS_PER_S)
        run = self.runs.get(event.job_id)
        told = run.told.get(event.offering_id) if run is not None else None
        if run is None or told is None:
            return
        self.short.add((event.offering_id, told.lot.spot > 0))
        self._break(run, f"{event.offering_id} took {len(event.instance_ids)} back")

    def _break(self, run: PipelineRun, why: str) -> None:
        """It cannot go on where it is; the report that follows says what it still holds."""
        if run.placement is not None:
            run.broken = run.broken or why

    def _note_report(self, event: CapacityReported) -> None:
        self.rented.note_report(event)
        lots = {
            holding.job_id: {lot.offering_id: lot for lot in holding.lots}
            for holding in event.holdings
        }
        for job_id, run in list(self.renting.items()):
            run.report(lots.get(job_id, {}))
            if not run.told and not run.held:
                del self.renting[job_id]
            elif event.settled:
                # Refused without a word, or lost: it would wait without end.
                short = run.short_of()
                if short:
                    self._break(run, short)
        if event.slot == self.rented.slot:
            for offering_id, spot in self.short:
                held = self._held_instances(offering_id, spot=spot)
                self.rented.limits[offering_id, spot] = held
        self.short = set()
        self._priced = None

    def _advance(self, ts_event_ns: int) -> None:
        if not self.origin_ns:
            self.origin_ns = ts_event_ns
        self.now_ns = max(self.now_ns, ts_event_ns)

    def _decided(self, run: PipelineRun, event: PlacementDecided) -> None:
        self._bill(run, event.ts_event_ns)
        if event.outcome is PlacementOutcome.STARTED:
            self._begin(run, event)
            return
        placement = event.placement
        run.decided = True
        # What it lost is launched again with a revision, if it stays where it was.
        waits = bool(run.broken) or run.waits_for(lots_of(placement, self.rentals()))
        run.pending = placement is not None and waits
        run.broken = ""
        run.placement = placement
        run.done_before = event.iterations_done
        run.starts_ns, run.finish_ns = event.starts_ns, event.finish_ns
        run.earliest_finish_ns = event.earliest_finish_ns
        run.reason, run.method_id = event.reason, event.method_id
        if placement is not None and run.pending:
            run.phase = PlacementPhase.STARTING
        elif placement is not None:
            self._begin(run, event)
        elif event.outcome is PlacementOutcome.REFUSED:
            run.phase = PlacementPhase.REFUSED
            del self.open_runs[event.job_id]
        else:
            run.phase = PlacementPhase.WAITING

    def _begin(self, run: PipelineRun, event: PlacementDecided) -> None:
        """It holds what it needs: from now on it costs, and computes after its restart."""
        if event.placement is None:
            return
        first = event.placement.path[0].region_id
        if run.done_before:
            run.spent_usd += self.copy_usd(run, first)
        run.checkpoint_region = first
        run.moves += run.started
        run.pending, run.started = False, True
        run.phase = PlacementPhase.RUNNING
        run.starts_ns, run.finish_ns = event.starts_ns, event.finish_ns
        run.billed_ns = event.ts_event_ns
        run.backoff = {}

    def _ended(self, run: PipelineRun, event: PlacementEnded) -> None:
        completed = event.end is PlacementEnd.COMPLETED
        run.phase = PlacementPhase.COMPLETED if completed else PlacementPhase.RELEASED
        run.decided = True
        run.pending, run.broken = False, ""
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
        if placement is None or run.pending or until_ns <= run.billed_ns:
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


def after_ns(start_ns: int, seconds: float) -> int:
    """The time `seconds` later, rounded up to a nanosecond, and no later than a message holds.

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
