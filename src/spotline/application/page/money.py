"""What was charged, and the decision that each charge follows from, as the pages of money fold it.

A charge is a bill of the ledger over part of a slot. Rows lie flat in arrays: a log of many jobs has
a hundred thousand of them, and a state must be copied fast.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spotline.application.allocation.on_demand_quote import on_demand_quote_micro_usd
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, ProvisioningCommanded
from spotline.domain.events.lifecycle import JobAdmitted, JobAdvanced, JobClosed
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineProvisioningCommanded
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import PPM, S_PER_HOUR, cost_micro_usd

MOST_CHARGES = 100_000
"""So many charges are kept to be listed; older ones are counted together."""

_COMMANDS_KEPT = 8
_SLOTS_OF_PRICES = 4


class Command(NamedTuple):
    """What was commanded for a job on an offering; `decided` says that a decision of its slot did."""

    slot: int
    revision: int
    seq: int
    spot: int
    on_demand: int
    copies: int
    decided: int


class BilledCharge(NamedTuple):
    """A bill; money is micro-USD, a price that of an instance-hour.

    `kind` is "spot", "on_demand", "reserved" (paid for already) or "egress" (a copy of a checkpoint:
    no instances). `on_demand_micro_usd` is what the same instances for as long would have cost on
    on-demand there and then. `command_slot` is -1 where no command got what is charged for, and
    `decided` is false where no decision of that job stands behind it; `of_pipeline`: the placer
    commanded it.
    """

    seq: int
    job_id: str
    tenant: str
    offering_id: str
    kind: str
    slot: int
    instances: int
    held_s: int
    price_micro_usd: int
    cost_micro_usd: int
    on_demand_micro_usd: int
    estimated: bool
    command_slot: int
    command_revision: int
    command_seq: int
    decided: bool
    of_pipeline: bool

    @property
    def explained(self) -> bool:
        """Whether a decision stands behind it."""
        return self.decided or self.of_pipeline


class SlotProgress(NamedTuple):
    """How far a job came in a slot.

    `worth_micro_usd` is that share of the work at what all of it was quoted on on-demand alone (below
    0 where work was lost), `needed_instance_s` the instance-seconds that the progress takes without
    any overhead (-1: not known). `late`: its deadline had passed when the slot opened.
    """

    job_id: str
    slot: int
    progress_ppm: int
    worth_micro_usd: int
    needed_instance_s: int
    late: bool


_KINDS = ("spot", "on_demand", "reserved", "egress")
_CHARGE_INTS = 15
_STEP_INTS = 6


@dataclass(slots=True)
class MoneyChapter:
    """All charges of late, the commands behind them, and how far each job came in each slot.

    `forgotten_micro_usd` is what was charged in `forgotten` charges that are no longer listed, all
    before the oldest that is. `closed` is the last slot that each job which is over was decided for.
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    forgotten: int = 0
    forgotten_micro_usd: int = 0
    quoted_micro_usd: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    _jobs: list[str] = field(default_factory=list)
    _job_at: dict[str, int] = field(default_factory=dict)
    _tenant_of: dict[str, str] = field(default_factory=dict)
    _offerings: list[str] = field(default_factory=list)
    _offering_at: dict[str, int] = field(default_factory=dict)
    _commands: dict[tuple[str, str], tuple[Command, ...]] = field(default_factory=dict)
    _pipelines: set[str] = field(default_factory=set)
    _decided: dict[str, tuple[int, int]] = field(default_factory=dict)
    _on_demand: dict[int, dict[str, int]] = field(default_factory=dict)
    _progress: dict[str, int] = field(default_factory=dict)
    _worth: dict[str, int] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        match event:
            case MarketOpened():
                self.reserved = frozenset(
                    offer.offering_id for offer in event.offerings if offer.reservation is not None
                )
            case SlotOpened():
                self._on_demand[event.slot] = {
                    quoted.quote.offering_id: quoted.quote.on_demand_price_micro_usd
                    for quoted in event.quotes
                }
                for old in sorted(self._on_demand)[:-_SLOTS_OF_PRICES]:
                    del self._on_demand[old]
            case JobAdmitted():
                self.quoted_micro_usd[event.job_id] = _quoted(event, jobs)
            case AllocationDecided():
                self._decided[event.job_id] = (event.slot, event.revision)
            case ProvisioningCommanded():
                decided = self._decided.get(event.job_id, (-1, -1))[0] == event.slot
                self._command(event, event.slot, event.revision, told.seq, decided=decided)
            case PipelineProvisioningCommanded():
                self._pipelines.add(event.job_id)
                self._command(event, told.slot, 0, told.seq, decided=False)
            case CostAccrued():
                self._charge(event, told.seq)
            case JobAdvanced():
                self._step(event.job_id, event.slot, event.progress_ppm, event.lots, jobs)
            case JobClosed():
                if event.progress_ppm != self._progress.get(event.job_id, 0):
                    self._step(event.job_id, event.slot, event.progress_ppm, (), jobs)
                self.closed[event.job_id] = event.slot
                self._forget_job(event.job_id)
            case _:
                pass

    @property
    def count(self) -> int:
        """How many charges are kept."""
        return len(self.rows) // _CHARGE_INTS

    def charges(self) -> Iterator[BilledCharge]:
        """The charges that are kept, in the order of the log."""
        rows = self.rows
        for at in range(0, len(rows), _CHARGE_INTS):
            job_id = self._jobs[rows[at + 1]]
            yield BilledCharge(
                seq=rows[at],
                job_id=job_id,
                tenant=self._tenant_of[job_id],
                offering_id=self._offerings[rows[at + 2]],
                kind=_KINDS[rows[at + 3]],
                slot=rows[at + 4],
                instances=rows[at + 5],
                held_s=rows[at + 6],
                price_micro_usd=rows[at + 7],
                cost_micro_usd=rows[at + 8],
                on_demand_micro_usd=rows[at + 9],
                estimated=bool(rows[at + 10]),
                command_slot=rows[at + 11],
                command_revision=rows[at + 12],
                command_seq=rows[at + 13],
                decided=rows[at + 14] == 1,
                of_pipeline=rows[at + 14] == 2,
            )

    def taken(self) -> Iterator[BilledCharge]:
        """The charges that are kept, which are then let go of; so are the steps, unread."""
        yield from self.charges()
        del self.rows[:]
        del self.steps[:]

    def all_steps(self) -> Iterator[SlotProgress]:
        """How far jobs came, in the order of the log."""
        steps = self.steps
        for at in range(0, len(steps), _STEP_INTS):
            yield SlotProgress(
                job_id=self._jobs[steps[at]],
                slot=steps[at + 1],
                progress_ppm=steps[at + 2],
                worth_micro_usd=steps[at + 3],
                needed_instance_s=steps[at + 4],
                late=bool(steps[at + 5]),
            )

    def _command(
        self,
        event: ProvisioningCommanded | PipelineProvisioningCommanded,
        slot: int,
        revision: int,
        seq: int,
        *,
        decided: bool,
    ) -> None:
        key = event.job_id, event.target.offering_id
        self._job(event.job_id, event.tenant)
        command = Command(
            slot=slot,
            revision=revision,
            seq=seq,
            spot=event.target.spot,
            on_demand=event.target.on_demand,
            copies=int(event.transfer_cost_micro_usd > 0),
            decided=int(decided),
        )
        self._commands[key] = (*self._commands.get(key, ())[1 - _COMMANDS_KEPT :], command)

    def _behind(self, event: CostAccrued, kind: str) -> Command | None:
        """The last command by its slot that wanted what is charged for."""
        for command in reversed(self._commands.get((event.job_id, event.offering_id), ())):
            wanted = {"spot": command.spot, "egress": command.copies}.get(kind, command.on_demand)
            if command.slot <= event.slot and wanted:
                return command
        return None

    def _charge(self, event: CostAccrued, seq: int) -> None:
        kind = self._kind(event)
        on_demand = event.cost_micro_usd
        if event.instances:
            price = self._on_demand.get(event.slot, {}).get(
                event.offering_id, event.price_micro_usd
            )
            on_demand = cost_micro_usd(price, event.instances, event.held_s)
        command = self._behind(event, kind)
        by = 2 if event.job_id in self._pipelines else 0
        if command is not None and command.decided:
            by = 1
        self.rows.extend(
            (
                seq,
                self._job(event.job_id, event.tenant),
                self._offering(event.offering_id),
                _KINDS.index(kind),
                *(event.slot, event.instances, event.held_s),
                *(event.price_micro_usd, event.cost_micro_usd, on_demand, int(event.estimated)),
                *((-1, -1, -1) if command is None else command[:3]),
                by,
            )
        )
        if self.count > MOST_CHARGES:
            self._forget(MOST_CHARGES // 10)

    def _kind(self, event: CostAccrued) -> str:
        if not event.instances:
            return "egress"
        if event.capacity_type is CapacityType.SPOT:
            return "spot"
        return "reserved" if event.offering_id in self.reserved else "on_demand"

    def _forget(self, charges: int) -> None:
        """Let go of the oldest, and of all steps before what is left."""
        end = charges * _CHARGE_INTS
        self.forgotten += charges
        self.forgotten_micro_usd += sum(self.rows[8:end:_CHARGE_INTS])
        del self.rows[:end]
        first = self.rows[4]
        kept = array("q")
        for at in range(0, len(self.steps), _STEP_INTS):
            if self.steps[at + 1] >= first:
                kept.extend(self.steps[at : at + _STEP_INTS])
        self.steps = kept

    def _step(
        self, job_id: str, slot: int, progress_ppm: int, lots: tuple[Lot, ...], jobs: JobsState
    ) -> None:
        before = self._progress.get(job_id, 0)
        if job_id not in self._job_at and not lots and progress_ppm == before:
            # Nothing was ever commanded for it: there is nothing to tell apart.
            return
        status = jobs.statuses.get(job_id)
        if status is None:
            return
        worth = self.quoted_micro_usd.get(job_id, 0) * progress_ppm // PPM
        needed = _needed_instance_s(status.job, lots, progress_ppm - before, jobs)
        late = 0 <= status.deadline_slot < slot
        self.steps.extend(
            (
                self._job(job_id, status.job.tenant),
                slot,
                progress_ppm - before,
                worth - self._worth.get(job_id, 0),
                needed,
                int(late),
            )
        )
        self._progress[job_id], self._worth[job_id] = progress_ppm, worth

    def _forget_job(self, job_id: str) -> None:
        for known in (self._progress, self._worth, self._decided):
            known.pop(job_id, None)

    def _job(self, job_id: str, tenant: str) -> int:
        if job_id not in self._job_at:
            self._job_at[job_id] = len(self._jobs)
            self._jobs.append(job_id)
            self._tenant_of[job_id] = tenant
        return self._job_at[job_id]

    def _offering(self, offering_id: str) -> int:
        if offering_id not in self._offering_at:
            self._offering_at[offering_id] = len(self._offerings)
            self._offerings.append(offering_id)
        return self._offering_at[offering_id]


def _quoted(event: JobAdmitted, jobs: JobsState) -> int:
    """What all of the job would cost on on-demand alone, by what is known when it is admitted."""
    status = jobs.statuses.get(event.job_id)
    if event.on_demand_quote_micro_usd or status is None:
        return event.on_demand_quote_micro_usd
    market = jobs.market()
    stated = status.job.on_demand_quote_micro_usd
    return stated or (0 if market is None else on_demand_quote_micro_usd(market, status.job))


def _needed_instance_s(job: Job, lots: tuple[Lot, ...], progress_ppm: int, jobs: JobsState) -> int:
    """Instance-seconds that so much progress takes on what was held; -1 where that is not known."""
    instances = sum(lot.spot + lot.on_demand for lot in lots)
    offering_ids = {lot.offering_id for lot in lots}
    if not instances or len(offering_ids) != 1 or progress_ppm <= 0:
        return -1
    offering_id = offering_ids.pop()
    types = (o.instance_type for o in jobs.recent.offerings if o.offering_id == offering_id)
    throughput = job.throughput_on(offering_id, next(types, ""))
    if throughput is None or (throughput.table and instances > len(throughput.table)):
        return -1
    rate = throughput.rate_per_hour(instances)
    if rate <= 0:
        return -1
    return round(instances * job.work.amount * progress_ppm / PPM / rate * S_PER_HOUR)
