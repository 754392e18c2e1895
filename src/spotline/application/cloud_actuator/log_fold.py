"""What the log says of jobs, money and instances, as the actuator folds it: small, and bounded.

Of a job that ended only its id and the slot are kept, and its spend as one number: without them a
ledger could not be told from one that admitted or charged what nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spotline.contracts.mapping import digest
from spotline.domain.events.agreement import IncarnationBegun, OrphanFound, OrphanSettled
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted, JobUpdated
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.placement import PipelineProvisioningCommanded
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.agreement import LogSays, OpenJob
from spotline.domain.limits.freezes import Freeze, FreezeReason
from spotline.domain.modes import Mode

FOLDED = (
    *(JobSubmitted, JobUpdated, JobClosed, PipelineProvisioningCommanded, SlotOpened, SlotDecided),
    *(CapacityReported, CapacityLost, CostAccrued, IncarnationBegun),
    *(BuyingFrozen, BuyingUnfrozen, OrphanFound, OrphanSettled, AccountModeSet),
)
"""All that the fold takes."""

OURS = frozenset({FreezeReason.UNDECIDED, FreezeReason.CRASH_LOOP})
"""The reasons of freezes that the actuator begins and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInstance:
    """An instance that reports name: whose it is, and since which moment of which slot."""

    job_id: str
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedInstance:
    """An instance that reports name no more: since when it was held, and until when."""

    job_id: str
    slot: int
    offset_s: int
    end_slot: int
    end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What the log says at one entry. Mappings are the fold's own: to be read, never changed.

    Parameters
    ----------
    digests
        What each open job was when it was submitted.
    named
        The instances of the last report, by id; None where it does not name all that it counts.
    ended
        Instances that were held in slots that may not be billed yet, and are no more, by id.
    recent
        Micro-USD by job of slots that may not be recorded in full, by slot.
    tenants
        By job, of all that was ever accrued and of open jobs.
    freezes, accepted
        Freezes of the actuator's reasons that are in force, and the detail of those that a person
        has ended.
    accounts
        "provider/account" of every offering.
    commands
        Those of the last revision.
    mode
        How far decisions of the log reach.
    account_modes
        By "provider/account", where one was said.
    """

    says: LogSays
    digests: Mapping[str, str]
    named: Mapping[str, NamedInstance] | None
    recent: Mapping[int, Mapping[str, int]]
    tenants: Mapping[str, str]
    freezes: Mapping[str, Freeze]
    accepted: Mapping[str, str]
    orphans: Mapping[str, OrphanFound]
    accounts: Mapping[str, str]
    commands: tuple[ProvisioningCommanded, ...] = ()
    ended: Mapping[str, EndedInstance] = field(default_factory=dict)
    mode: Mode = Mode.LIVE
    account_modes: Mapping[str, Mode] = field(default_factory=dict)


@dataclass(slots=True)
class LogFold:
    """The fold; `says` is the only way out."""

    last_slot: int = -1
    decided_s: int = 0
    reported_slot: int = -1
    incarnation: int = 0
    jobs: dict[str, OpenJob] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    accrued: dict[str, int] = field(default_factory=dict)
    recent: dict[int, dict[str, int]] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    named: dict[str, NamedInstance] | None = field(default_factory=dict)
    ended: dict[str, EndedInstance] = field(default_factory=dict)
    freezes: dict[str, Freeze] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    orphans: dict[str, OrphanFound] = field(default_factory=dict)
    mode: Mode = Mode.LIVE
    account_modes: dict[str, Mode] = field(default_factory=dict)

    def view(
        self,
        last_seq: int,
        accounts: Mapping[str, str],
        commands: Sequence[ProvisioningCommanded] = (),
    ) -> LogView:
        """What is folded by the entry `last_seq`."""
        named = self.named or {}
        return LogView(
            says=LogSays(
                last_seq=last_seq,
                last_slot=self.last_slot,
                reported_slot=self.reported_slot,
                incarnation=self.incarnation,
                jobs=self.jobs,
                closed=self.closed,
                others=self.others.keys(),
                accrued=self.accrued,
                complete_slot=self.reported_slot - 1,
                held={instance_id: known.job_id for instance_id, known in named.items()},
            ),
            digests=self.digests,
            named=self.named,
            ended=self.ended,
            recent=self.recent,
            tenants=self.tenants,
            freezes=self.freezes,
            accepted=self.accepted,
            orphans=self.orphans,
            accounts=accounts,
            commands=tuple(commands),
            mode=self.mode,
            account_modes=self.account_modes,
        )

    def fold(self, event: Event) -> None:
        """Apply an event; nothing else changes it."""
        match event:
            case JobSubmitted():
                self._open(event.job)
                self.digests.setdefault(event.job.job_id, digest(event.job))
            case JobUpdated() if event.job_id in self.jobs:
                self._open(event.job)
            case JobClosed():
                self._close(event.job_id)
            case PipelineProvisioningCommanded():
                self._commanded(event)
            case SlotOpened():
                self.last_slot = max(self.last_slot, event.slot)
                self.mode = event.runs_in
            case AccountModeSet():
                self.account_modes[event.account] = event.mode
            case SlotDecided() if event.slot == self.last_slot:
                self.decided_s = event.offset_s
            # Of a slot that is not open yet, or was over by the last one, it is nobody's report: told
            # again, or made up. Bills that are still to come would look as if the ledger lacked them.
            case CapacityReported() if self.reported_slot <= event.slot <= self.last_slot:
                self._reported(event)
            case CapacityLost() if event.slot == self.last_slot:
                for instance_id in event.instance_ids:
                    self._end(instance_id, event.job_id, event.offset_s)
            case CostAccrued():
                slot = self.recent.setdefault(event.slot, {})
                slot[event.job_id] = slot.get(event.job_id, 0) + event.cost_micro_usd
                self.tenants.setdefault(event.job_id, event.tenant)
            case _:
                self._note_own(event)

    def _note_own(self, event: Event) -> None:
        """What the actuator said itself of this, and what people answered."""
        match event:
            case IncarnationBegun():
                self.incarnation = event.incarnation
            case BuyingFrozen() if event.freeze.reason in OURS:
                self.freezes.setdefault(event.freeze.freeze_id, event.freeze)
            case BuyingUnfrozen():
                self._unfrozen(event)
            case OrphanFound():
                self.orphans[event.instance_id] = event
            case OrphanSettled():
                self.orphans.pop(event.instance_id, None)
            case _:
                pass

    def _open(self, job: Job) -> None:
        if job.job_id in self.closed:
            return
        deadline_ns = job.deadline.expires_ns
        self.jobs[job.job_id] = OpenJob(
            tenant=job.tenant, deadline_ns=deadline_ns, allowed_counts=job.allowed_counts
        )
        self.tenants.setdefault(job.job_id, job.tenant)

    def _close(self, job_id: str) -> None:
        self.jobs.pop(job_id, None)
        self.digests.pop(job_id, None)
        self.closed[job_id] = self.last_slot

    def _commanded(self, event: PipelineProvisioningCommanded) -> None:
        """What holds nothing any more is over, for as long as nothing else is commanded."""
        lots = self.others.setdefault(event.job_id, {})
        lots[event.target.offering_id] = event.target.spot + event.target.on_demand
        if any(lots.values()):
            self.closed.pop(event.job_id, None)
        else:
            del self.others[event.job_id]
            self._close(event.job_id)

    def _reported(self, event: CapacityReported) -> None:
        """All of the slots before a report is recorded: their bills came before it."""
        self.reported_slot = max(self.reported_slot, event.slot)
        for slot in sorted(slot for slot in self.recent if slot < self.reported_slot):
            for job_id, cost in self.recent.pop(slot).items():
                self.accrued[job_id] = self.accrued.get(job_id, 0) + cost
        counted = sum(
            lot.spot + lot.on_demand for holding in event.holdings for lot in holding.lots
        )
        self.ended = {
            instance_id: ended
            for instance_id, ended in self.ended.items()
            if ended.end_slot >= self.reported_slot
        }
        before, named = self.named or {}, dict[str, NamedInstance]()
        for holding in event.holdings:
            for instance_id in holding.instance_ids:
                named[instance_id] = before.get(instance_id) or NamedInstance(
                    job_id=holding.job_id, slot=event.slot, offset_s=self.decided_s
                )
        for instance_id, known in before.items():
            if instance_id not in named:
                self._end(instance_id, known.job_id, self.decided_s)
        self.named = named if len(named) == counted else None

    def _end(self, instance_id: str, job_id: str, end_s: int) -> None:
        """Note until when an instance was held; one that no report named came with the revision."""
        known = (self.named or {}).get(instance_id) or NamedInstance(
            job_id=job_id, slot=self.last_slot, offset_s=self.decided_s
        )
        ended = EndedInstance(
            job_id=known.job_id,
            slot=known.slot,
            offset_s=known.offset_s,
            end_slot=self.last_slot,
            end_s=end_s,
        )
        self.ended.setdefault(instance_id, ended)

    def _unfrozen(self, event: BuyingUnfrozen) -> None:
        ended = self.freezes.pop(event.freeze_id, None)
        if ended is None:
            return
        if event.by:
            self.accepted[event.freeze_id] = ended.detail
        else:
            self.accepted.pop(event.freeze_id, None)
