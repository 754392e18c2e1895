"""Whether a command can be traced to a job: what the actuator must have seen before it buys.

A command is carried out where its job is admitted and not closed, a decision of the open slot and
of its revision says so, with the same lots, and the job itself allows that count and that offering.
Anything else is parked, and nothing follows from it; what is held stays. The fold takes from the
log what is needed for that; of a job that ended nothing is kept.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.tenancy import check_tenant
from spotline.application.unfit import Unproven
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityReported,
    CostAccrued,
    ProbeCommanded,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobClosed,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    RegionObserved,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import Offering
from spotline.domain.placement.graph import Region
from spotline.domain.placement.pipeline import Placement

PROVEN_BY = (
    *(MarketOpened, SlotOpened, JobSubmitted, JobUpdated, JobAdmitted, JobClosed),
    *(AllocationDecided, SlotDecided, CapacityReported),
    *(RegionObserved, PipelineSubmitted, PlacementDecided, PlacementEnded),
    IncarnationBegun,
)
"""All that the fold takes."""

_NO_LOTS: Mapping[str, Lot] = {}


@dataclass(slots=True)
class Proofs:
    """What the log says of jobs and decisions, so far as commands are proved by it.

    Parameters
    ----------
    jobs, admitted
        All jobs that were submitted and have not closed, and the ids of those that were admitted.
    slot, revision
        The open slot, and the last revision of it that was carried out; -1 for none.
    lost_slot
        The last slot that opened in a part of the log that is lost; -1 for none.
    decided
        The decisions of the revision `deciding`, by job.
    latest
        The last decision of each job that has not closed.
    held
        The most instances that each job was reported to hold since the slot opened.
    tenants, placements
        Of each pipeline that was submitted, and where it was placed last.
    """

    offerings: dict[str, Offering] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)
    slot: int = -1
    lost_slot: int = -1
    revision: int = -1
    deciding: int = -1
    decided: dict[str, AllocationDecided] = field(default_factory=dict)
    latest: dict[str, AllocationDecided] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    placements: dict[str, Placement | None] = field(default_factory=dict)

    # --- the fold -----------------------------------------------------------------------------

    def fold(self, event: Event, closed: Container[str] = ()) -> None:
        """Apply an event; nothing else changes it. `closed` are jobs that have."""
        match event:
            case MarketOpened():
                self.offerings |= {offering.offering_id: offering for offering in event.offerings}
            case SlotOpened() if event.slot > self.slot:
                self.slot, self.revision, self.deciding = event.slot, -1, -1
                self.decided = {}
                self.held = dict(self.reported)
            case JobSubmitted() if event.job.job_id not in closed:
                self.jobs.setdefault(event.job.job_id, event.job)
            case JobUpdated() if event.job_id in self.jobs:
                self.jobs[event.job_id] = event.job
            case JobAdmitted():
                self.admitted.add(event.job_id)
            case JobClosed():
                self.jobs.pop(event.job_id, None)
                self.admitted.discard(event.job_id)
                self.latest.pop(event.job_id, None)
            case AllocationDecided() if event.slot == self.slot:
                if event.revision != self.deciding:
                    self.deciding, self.decided = event.revision, {}
                self.decided[event.job_id] = self.latest[event.job_id] = event
            case SlotDecided() if event.slot == self.slot:
                self.revision = event.revision
            case CapacityReported():
                self._report(event)
            case IncarnationBegun():
                self.lost_slot = max(self.lost_slot, event.last_slot_before)
            case _:
                self._fold_pipeline(event)

    def _fold_pipeline(self, event: Event) -> None:
        match event:
            case RegionObserved():
                self.regions[event.region.region_id] = event.region
            case PipelineSubmitted():
                self.tenants.setdefault(event.pipeline.job_id, event.pipeline.tenant)
            case PlacementDecided():
                self.placements[event.job_id] = event.placement
            case PlacementEnded():
                self.placements[event.job_id] = None
            case _:
                pass

    def _report(self, event: CapacityReported) -> None:
        self.reported = {
            holding.job_id: sum(lot.spot + lot.on_demand for lot in holding.lots)
            for holding in event.holdings
        }
        for job_id, instances in self.reported.items():
            self.held[job_id] = max(self.held.get(job_id, 0), instances)

    # --- the checks ---------------------------------------------------------------------------

    def check(
        self,
        event: Event,
        waiting: Sequence[ProvisioningCommanded],
        closed: Container[str],
    ) -> None:
        """Look whether the log bears an event out; change nothing.

        Parameters
        ----------
        waiting
            The commands that wait for their revision to be complete.
        closed
            The jobs that have closed.

        Raises
        ------
        Unproven
            It does not.
        """
        check_tenant(event, self.tenant_of)
        match event:
            # A slot to come would count as recorded in full, and its bills as missing.
            case CapacityReported():
                self._check_slot(event.slot)
            # What was charged in a part of the log that is lost is told again.
            case CostAccrued() if event.slot > self.lost_slot:
                self._check_slot(event.slot)
            case JobAdmitted():
                self._submitted(event.job_id)
            case AllocationDecided() if event.slot >= self.slot:
                self._check_decision(event)
            case ProvisioningCommanded() if event.slot >= self.slot:
                self._check_command(event, waiting, closed)
            case ProbeCommanded() if event.slot >= self.slot:
                self._check_probe(event)
            case SlotDecided() if event.slot == self.slot:
                self._check_revision(event.revision)
            case PlacementDecided() | PlacementEnded():
                self._check_placed(event.job_id)
            case PipelineProvisioningCommanded():
                self._check_pipeline(event)
            case _:
                pass

    def tenant_of(self, job_id: str) -> str | None:
        """Whose a job or a pipeline is, None where that is not known."""
        job = self.jobs.get(job_id)
        return self.tenants.get(job_id) if job is None else job.tenant

    def _submitted(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        if job is None:
            raise Unproven("job_id", "a job that was submitted and has not closed", job_id)
        return job

    def _check_revision(self, revision: int) -> None:
        if revision <= self.revision:
            raise Unproven("revision", f"> {self.revision}, which is carried out", revision)

    def _check_slot(self, slot: int) -> None:
        if slot > self.slot:
            opened = max(self.slot, self.lost_slot)
            raise Unproven("slot", f"one that has opened (<= {opened})", slot)

    def _check_decision(self, event: AllocationDecided) -> None:
        job = self._submitted(event.job_id)
        if event.job_id not in self.admitted:
            raise Unproven("job_id", "a job that was admitted", event.job_id)
        self._check_slot(event.slot)
        self._check_revision(event.revision)
        known = self.decided.get(event.job_id) if event.revision == self.deciding else None
        if known is not None and known != event:
            raise Unproven("lots", f"those decided before ({_said(known.lots)})", _said(event.lots))
        total = sum(lot.spot + lot.on_demand for lot in event.lots)
        most = self.held.get(event.job_id, 0)
        if total and total not in job.allowed_counts and total > most:
            counts = ", ".join(map(str, job.allowed_counts))
            raise Unproven("lots", f"of {counts} instances in all, or <= {most} as held", total)
        for lot in event.lots:
            if lot.spot + lot.on_demand:
                self._check_offering(job, lot.offering_id)

    def _check_offering(self, job: Job, offering_id: str) -> None:
        offering = self.offerings.get(offering_id)
        if offering is None:
            raise Unproven("offering_id", "an offering of the market", offering_id)
        if job.throughput_on(offering_id, offering.instance_type) is None:
            raise Unproven("offering_id", f"one that {job.job_id} can run on", offering_id)

    def _check_command(
        self,
        event: ProvisioningCommanded,
        waiting: Sequence[ProvisioningCommanded],
        closed: Container[str],
    ) -> None:
        self._check_slot(event.slot)
        self._check_revision(event.revision)
        target = event.target
        decision = self.decided.get(event.job_id) if event.revision == self.deciding else None
        if decision is None:
            self._check_release(event, closed)
        else:
            lots = {lot.offering_id: lot for lot in decision.lots}
            wanted = lots.get(target.offering_id, Lot(offering_id=target.offering_id))
            if target != wanted:
                raise Unproven("target", f"{_said((wanted,))}, as decided", _said((target,)))
        _check_money(event, decision)
        for other in waiting:
            same = (other.slot, other.revision) == (event.slot, event.revision)
            if (
                same
                and other.job_id == event.job_id
                and other.target.offering_id == target.offering_id
            ):
                raise Unproven("command_id", f"{other.command_id}, the one", event.command_id)

    def _check_release(self, event: ProvisioningCommanded, closed: Container[str]) -> None:
        """What this revision decides nothing for is only released.

        Its job has closed, or it turned up beside what the job was decided to hold last.
        """
        latest, offering_id = self.latest.get(event.job_id), event.target.offering_id
        beside = latest is not None and all(lot.offering_id != offering_id for lot in latest.lots)
        if event.job_id not in closed and not beside:
            raise Unproven("job_id", "a job that this revision decides", event.job_id)
        if event.target.spot + event.target.on_demand:
            expected = "of no instance: nothing is decided for it there"
            raise Unproven("target", expected, _said((event.target,)))

    def _check_probe(self, event: ProbeCommanded) -> None:
        """A probe is of an admitted job, where that can run, and for no more than it could hold."""
        self._check_slot(event.slot)
        self._check_revision(event.revision)
        job = self._submitted(event.job_id)
        if event.job_id not in self.admitted:
            raise Unproven("job_id", "a job that was admitted", event.job_id)
        self._check_offering(job, event.offering_id)
        if not 0 < event.instances <= job.max_instances:
            raise Unproven("instances", f"in 1..{job.max_instances}", event.instances)

    # --- pipelines ----------------------------------------------------------------------------

    def _check_placed(self, job_id: str) -> None:
        if job_id not in self.tenants:
            raise Unproven("job_id", "a pipeline that was submitted", job_id)

    def _check_pipeline(self, event: PipelineProvisioningCommanded) -> None:
        self._check_placed(event.job_id)
        if event.job_id not in self.placements:
            raise Unproven("job_id", "a pipeline that was placed", event.job_id)
        target = event.target
        wanted = self._lots_of(self.placements[event.job_id])
        lot = wanted.get(target.offering_id, Lot(offering_id=target.offering_id))
        # Less than was placed is commanded where a region is not quoted any more.
        if target != lot and target.spot + target.on_demand:
            raise Unproven("target", f"{_said((lot,))}, as placed", _said((target,)))

    def _lots_of(self, placement: Placement | None) -> Mapping[str, Lot]:
        """What a placement has to hold, by offering, in whole instances of each of its regions."""
        if placement is None:
            return _NO_LOTS
        lots: dict[str, Lot] = {}
        for share in placement.path:
            region = self.regions.get(share.region_id)
            offering = self.offerings.get(region.offering_id) if region is not None else None
            if region is None or offering is None:
                continue
            instances = -(-share.gpus // offering.gpus_per_instance)
            before = lots.get(offering.offering_id, Lot(offering_id=offering.offering_id))
            lots[offering.offering_id] = Lot(
                offering_id=offering.offering_id,
                spot=before.spot + (instances if region.spot else 0),
                on_demand=before.on_demand + (0 if region.spot else instances),
            )
        return lots


def _check_money(event: ProvisioningCommanded, decision: AllocationDecided | None) -> None:
    """What a command costs beside instances, and what it may buy against a stop."""
    copied = 0
    if decision is not None and decision.move is not None and decision.lots:
        arrives = decision.lots[0].offering_id == event.target.offering_id
        copied = decision.move.cost_micro_usd if arrives else 0
    if event.transfer_cost_micro_usd != copied:
        found = event.transfer_cost_micro_usd
        raise Unproven("transfer_cost_micro_usd", f"{copied}, as decided", found)
    most = event.target.on_demand
    if event.excepted_on_demand > most:
        raise Unproven("excepted_on_demand", f"<= {most}", event.excepted_on_demand)


def _said(lots: Sequence[Lot]) -> str:
    """Lots for people."""
    if not lots:
        return "nothing"
    return " and ".join(
        f"{lot.spot} spot + {lot.on_demand} on-demand of {lot.offering_id}" for lot in lots
    )
