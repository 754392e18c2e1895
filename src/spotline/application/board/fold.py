"""Where jobs stand, folded from the log: facts and when they came about; `view.py` words them.

The fold is cheap: nothing is worked out for an event that nobody may look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spotline.application.board.entry import BoardEntry
from spotline.application.board.offers import OfferBook
from spotline.application.market_view import MarketFold
from spotline.application.unfit import NOT_BELIEVED
from spotline.contracts.build import job_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobProgressReported,
    JobQuoted,
    JobRetryScheduled,
    JobSubmitted,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointFailed,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    NoticeAcknowledged,
    TrainingRestarted,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.limits.freezes import Freezes
from spotline.domain.policies.answer import DecisionReason, Yielded
from spotline.domain.units import NS_PER_S, PPM

BOARD_EVENTS: tuple[type[Event], ...] = (
    *(BuyingFrozen, BuyingUnfrozen),
    *(MarketOpened, SlotOpened),
    *(JobSubmitted, JobCancelled, JobAdmitted, JobQuoted, JobAdvanced, JobRetryScheduled),
    *(JobClosed, JobProgressReported, JobExited, AllocationDecided, LaunchRefused),
    *(CapacityReported, CapacityLost, InterruptionNoticed, InterruptionWithdrawn, CostAccrued),
    *(GenerationFormed, TrainingRestarted, JobSilent, JobHeard),
    *(CheckpointCommitted, CheckpointFailed, NoticeAcknowledged, JobStalled, JobStallEnded),
    SlotDecided,
)
"""What the board is folded from; others change nothing."""

REPORTS = (
    *(JobProgressReported, TrainingRestarted, CheckpointCommitted, CheckpointFailed),
    *(NoticeAcknowledged, JobExited),
)
"""What a program says of itself, or its agent of it: with each it is heard of."""


_SHOWN_OF_ID = 8


@dataclass(slots=True, kw_only=True)
class BoardState:
    """All jobs by id, in the order of their submission; `fold` alone changes it.

    `holding` are those that hold something, `deciding` those on whose last decision the cloud has
    not reported yet. `short` is by how much the spot that all jobs hold exceeded an offering's count
    when the slot opened: the provider has taken it, and says so no other way. `now_ns` is the latest moment of the open slot that the log has told of.
    `fairness_cost_micro_usd` is what fairness between tenants has cost all jobs together.
    `parked` are the jobs of entries that a service left out; `left_out` counts the events that the
    board itself could not take, `last_left_out` says why the last one was. `freezes` say where buying
    is stopped.
    """

    entries: dict[str, BoardEntry] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)
    deciding: set[str] = field(default_factory=set)
    offers: OfferBook = field(default_factory=OfferBook)
    short: dict[str, int] = field(default_factory=dict)
    now_ns: int = 0
    slot: int = -1
    slot_s: int = 0
    opened_ns: int = 0
    ended: bool = False
    parked: dict[tuple[str, str], str] = field(default_factory=dict)
    freezes: Freezes = field(default_factory=Freezes)
    fairness_cost_micro_usd: int = 0
    left_out: int = 0
    last_left_out: str = ""

    def fold(self, event: Event, market: MarketFold) -> None:
        """Apply an event; `market` is as it is with it."""
        self.offers.fold(event)
        match event:
            case MarketOpened() | SlotOpened():
                self._open(market)
            case JobSubmitted():
                self._submit(event)
            case CapacityReported():
                self._report(event)
            case SlotDecided():
                self.fairness_cost_micro_usd += event.fairness_cost_micro_usd
            case BuyingFrozen():
                self.freezes.begin(event.freeze)
            case BuyingUnfrozen():
                self.freezes.end(event.freeze_id)
            case EntryParked():
                self._park(event)
            case ParkedEntryRetried() | ParkedEntryDropped():
                job_id = self.parked.pop((event.service, event.event_id), None)
                if job_id is not None:
                    del self.entries[job_id].parked[event.service, event.event_id]
            case _ if type(event) in _OF_A_JOB:
                # A platform may speak of a job that was never submitted here.
                entry = self.entries.get(getattr(event, "job_id", ""))
                if entry is not None:
                    self._fold_job(entry, event)
            case _:
                pass

    def leave_out(self, event: Event, error: Exception) -> None:
        """Take note that `fold` failed on an event: what it shows may lack part of that."""
        self.left_out += 1
        self.last_left_out = f"{type(event).__name__}: {type(error).__name__}: {error}"
        entry = self.entries.get(job_of(event).job_id)
        if entry is not None:
            entry.unseen = type(event).__name__

    def at_ns(self, slot: int, offset_s: int) -> int:
        """A moment inside a slot, ns since the epoch."""
        return self.opened_ns + ((slot - self.slot) * self.slot_s + offset_s) * NS_PER_S

    def _park(self, event: EntryParked) -> None:
        """Show at a job what was left out of it; what was not believed says nothing of it."""
        entry = self.entries.get(event.job_id)
        if entry is not None and event.error_type not in NOT_BELIEVED:
            key = event.service, event.event_id
            self.parked[key] = event.job_id
            entry.parked[key] = f"{event.service} could not take {event.kind}"

    def _open(self, market: MarketFold) -> None:
        self.slot_s, self.opened_ns = market.slot_s, market.now_ns
        if market.opened is not None:
            self.slot, self.ended = market.opened.slot, market.opened.last
            self._note_counts(market.opened)
        self.now_ns = max(self.now_ns, self.opened_ns)

    def _note_counts(self, opened: SlotOpened) -> None:
        self.short.clear()
        if not self.holding:
            return
        counts = {
            quoted.quote.offering_id: quoted.quote.spot_available.instances
            for quoted in opened.quotes
            if quoted.quote.spot_available.known
        }
        for job_id in self.holding:
            for lot in self.entries[job_id].held:
                if lot.spot and lot.offering_id in counts:
                    counts[lot.offering_id] -= lot.spot
        self.short.update({key: -left for key, left in counts.items() if left < 0})

    def _reach(self, ts_ns: int) -> int:
        """Note that it is that time now, at most the end of the open slot; return what it is."""
        latest_ns = self.opened_ns + self.slot_s * NS_PER_S
        said_ns = min(ts_ns, latest_ns)
        self.now_ns = max(self.now_ns, said_ns)
        return said_ns or self.now_ns

    def _submit(self, event: JobSubmitted) -> None:
        job = event.job
        self.entries.setdefault(
            job.job_id,
            BoardEntry(
                tenant=job.tenant,
                is_run=job.run is not None,
                awaits_exit=job.awaits_exit,
                work_amount=job.work.amount,
                submitted_ns=event.ts_event_ns,
                name=job.name,
                idle_ns=event.ts_event_ns,
            ),
        )

    def _fold_job(self, entry: BoardEntry, event: Event) -> None:
        match event:
            case JobAdmitted() | JobAdvanced() | JobClosed() | JobQuoted() | AllocationDecided():
                self._fold_decision(entry, event)
            case JobCancelled() | JobRetryScheduled() | JobExited():
                self._fold_end(entry, event)
            case CostAccrued():
                entry.billed_micro_usd += event.cost_micro_usd
                if not event.instances:
                    entry.egress_micro_usd += event.cost_micro_usd
            case LaunchRefused():
                entry.tally(refusals=1)
                entry.refused, entry.refusal = True, event.refusal_class
            case CapacityLost():
                self._lose(entry, event)
            case InterruptionNoticed():
                noticed_ns = self._reach(self.at_ns(event.slot, event.offset_s))
                gone_ns = noticed_ns + event.lead_s * NS_PER_S
                entry.saves_ns = entry.saves_ns if entry.notices else noticed_ns
                entry.notices.update(dict.fromkeys(event.instance_ids, gone_ns))
                entry.noticed_ids.update(event.instance_ids)
            case InterruptionWithdrawn():
                self._reach(self.at_ns(event.slot, event.offset_s))
                entry.noticed_ids.difference_update(event.instance_ids)
                _end_notices(entry, event.instance_ids)
            case _:
                self._fold_program(entry, event)

    def _fold_decision(self, entry: BoardEntry, event: Event) -> None:
        match event:
            case JobAdmitted():
                entry.policy_id, entry.offering_id = event.policy_id, event.offering_id
                entry.first_slot = event.slot
                entry.first_slot_start_ns = self.at_ns(event.slot, 0)
            case JobAdvanced():
                self._advance(entry, event)
            case JobClosed():
                entry.outcome = event.outcome
                ends_ns = self.at_ns(event.slot + 1, 0)
                # What ends a job when the market is over takes effect at its very end.
                entry.closed_ns = ends_ns if self.ended else min(self.now_ns, ends_ns)
                entry.progress_ppm = event.progress_ppm
                entry.spent_micro_usd = event.cost_micro_usd
                entry.wanted, entry.wanted_ns = (), entry.closed_ns
                entry.trains_ns = 0
            case JobQuoted():
                entry.quoted = event.outlook
            case AllocationDecided():
                self._decide(entry, event)
            case _:
                pass

    def _decide(self, entry: BoardEntry, event: AllocationDecided) -> None:
        decided_ns = self._reach(self.at_ns(event.slot, event.offset_s))
        if event.lots:
            entry.offering_id = event.lots[0].offering_id
        if event.move is not None and entry.launched:
            entry.tally(moves=1)
            entry.moved_ns, entry.moved_from = decided_ns, event.move.from_offering_id
            entry.trains_ns = 0
        entry.wanted, entry.wanted_ns = event.lots, decided_ns
        entry.settled_ns = 0
        self.deciding.add(event.job_id)
        entry.reason, entry.explanation = event.reason, event.explanation
        entry.yielded, entry.yielded_to = event.yielded, self._named(event.yielded)
        if event.reason is not DecisionReason.LAUNCH_REFUSED:
            entry.refused, entry.refusal = False, None

    def _named(self, yielded: Yielded | None) -> str:
        """The job to which spot was yielded, as its owner knows it."""
        if yielded is None or not yielded.to_job_id:
            return ""
        other = self.entries.get(yielded.to_job_id)
        return (other.name if other is not None else "") or yielded.to_job_id[:_SHOWN_OF_ID]

    def _advance(self, entry: BoardEntry, event: JobAdvanced) -> None:
        more = event.progress_ppm > entry.progress_ppm
        entry.progress_ppm = event.progress_ppm
        entry.progress_ns = self.at_ns(event.slot + 1, 0)
        entry.spent_micro_usd = event.cost_micro_usd
        if event.progress_ppm >= PPM and not entry.finished_ns:
            entry.finished_ns = self.opened_ns
        if more and event.lots and not entry.is_run and self._after_changes(entry, event.slot):
            # What the formula credits is all that is known of such a program.
            changed_ns = max(entry.lost_ns, entry.moved_ns)
            self._train(entry, max(self.at_ns(event.slot, 0), changed_ns))

    def _after_changes(self, entry: BoardEntry, slot: int) -> bool:
        """Whether progress in a slot was made after the last loss or move."""
        changed_ns = max(entry.lost_ns, entry.moved_ns)
        return self.at_ns(slot + 1, 0) > changed_ns and (
            self.at_ns(slot, 0) >= changed_ns or bool(entry.held)
        )

    def _fold_end(self, entry: BoardEntry, event: Event) -> None:
        match event:
            case JobCancelled():
                entry.cancelled_ns = self._reach(event.ts_event_ns)
            case JobExited():
                exited_ns = self._reach(event.ts_event_ns)
                self._hear(entry, exited_ns)
                entry.trains_ns = 0
                if event.exit_code:
                    entry.failed_ns = exited_ns
                    entry.failure = event.detail or f"exit code {event.exit_code}"
            case JobRetryScheduled():
                entry.tally(retries=1)
                entry.failed_ns = entry.failed_ns or self.now_ns
                entry.not_before_ns = event.not_before_ns
                entry.failure = event.detail
                entry.wanted, entry.wanted_ns = (), self.now_ns
                entry.trains_ns = 0
            case _:
                pass

    def _fold_program(self, entry: BoardEntry, event: Event) -> None:
        """What agents and programs say."""
        said_ns = self._reach(getattr(event, "ts_event_ns", 0))
        match event:
            case GenerationFormed():
                entry.tally(starts=1)
                entry.generation = max(entry.generation, event.generation)
                entry.trains_ns = 0
            case TrainingRestarted():
                self._hear(entry, said_ns)
                if event.generation >= entry.generation:
                    entry.done = event.resumed_done
                    self._train(entry, said_ns)
            case JobProgressReported():
                self._hear_progress(entry, event, said_ns)
            case CheckpointCommitted():
                entry.tally(checkpoints=1)
                self._hear(entry, said_ns)
            case CheckpointFailed():
                entry.tally(failed_checkpoints=1)
                self._hear(entry, said_ns)
            case NoticeAcknowledged():
                self._hear(entry, said_ns)
            case JobSilent():
                entry.silent.add(event.instance_id)
            case JobHeard():
                entry.silent.discard(event.instance_id)
            case _:
                pass

    def _hear_progress(self, entry: BoardEntry, event: JobProgressReported, said_ns: int) -> None:
        entry.has_reported = True
        self._hear(entry, said_ns)
        more = event.done > (entry.done or 0.0)
        if event.generation >= entry.generation:
            # Work done may fall with a new start of the program.
            newer = event.generation > 0
            entry.done = event.done if newer or more else entry.done
            entry.progress_ns = (
                max(entry.progress_ns, said_ns) if entry.is_run else entry.progress_ns
            )
        shows = more or (entry.is_run and event.generation == entry.generation)
        if shows and entry.held and said_ns >= max(entry.lost_ns, entry.moved_ns):
            self._train(entry, said_ns)

    def _hear(self, entry: BoardEntry, said_ns: int) -> None:
        entry.last_report_ns = max(entry.last_report_ns, said_ns)

    def _train(self, entry: BoardEntry, since_ns: int) -> None:
        entry.trains_ns = entry.trains_ns or since_ns
        entry.lost_ns = entry.moved_ns = 0
        entry.lost, entry.moved_from = (), ""
        entry.failed_ns = 0

    def _lose(self, entry: BoardEntry, event: CapacityLost) -> None:
        lost_ns = self._reach(self.at_ns(event.slot, event.offset_s))
        count = len(event.instance_ids)
        self._take_short(event.offering_id, count)
        held = [lot.spot for lot in entry.held if lot.offering_id == event.offering_id]
        spot = min(count, sum(held)) if held else count
        lost = Lot(offering_id=event.offering_id, spot=spot, on_demand=count - spot)
        _interrupt(entry, lost, event.instance_ids, lost_ns)

    def _take_short(self, offering_id: str, count: int) -> int:
        """Put the end of so many spot instances down to what the provider has taken; say how many."""
        short = min(count, self.short.get(offering_id, 0))
        if short:
            self.short[offering_id] -= short
        return short

    def _report(self, event: CapacityReported) -> None:
        at_ns = self._reach(self.at_ns(event.slot, event.offset_s))
        reported = {holding.job_id: holding for holding in event.holdings}
        for job_id in sorted(self.holding | reported.keys()):
            entry = self.entries.get(job_id)
            if entry is None:
                continue
            holding = reported.get(job_id)
            lots = () if holding is None else holding.lots
            self._hold(entry, lots, () if holding is None else holding.instance_ids, at_ns)
            if entry.held:
                self.holding.add(job_id)
            else:
                self.holding.discard(job_id)
        for job_id in self.deciding:
            self.entries[job_id].settled_ns = at_ns
        self.deciding.clear()

    def _hold(
        self, entry: BoardEntry, lots: tuple[Lot, ...], instance_ids: tuple[str, ...], at_ns: int
    ) -> None:
        held = tuple(lot for lot in lots if lot.spot or lot.on_demand)
        for before in entry.held:
            after = sum(lot.spot for lot in held if lot.offering_id == before.offering_id)
            taken = self._take_short(before.offering_id, max(0, before.spot - after))
            if taken and entry.outcome is None:
                # Logs from before 0.3.0 name no instances: those with a notice are meant.
                named = entry.instance_ids or tuple(sorted(entry.noticed_ids))
                ended = tuple(name for name in named if name not in instance_ids)
                lot = Lot(offering_id=before.offering_id, spot=taken)
                _interrupt(entry, lot, ended, at_ns)
        if held and not entry.held:
            entry.held_ns = at_ns
            if not entry.is_run and not entry.lost_ns and not entry.moved_ns:
                self._train(entry, at_ns)
        if not held:
            if entry.held:
                entry.idle_ns = at_ns
            entry.held_ns = entry.trains_ns = 0
        entry.launched = entry.launched or bool(held)
        entry.held, entry.instance_ids = held, instance_ids
        if instance_ids or not held:
            _end_notices(entry, [name for name in entry.notices if name not in instance_ids])


def _interrupt(entry: BoardEntry, lost: Lot, instance_ids: tuple[str, ...], lost_ns: int) -> None:
    """Note that the provider took instances; `instance_ids` may name more than were lost."""
    noticed = entry.noticed_ids.intersection(instance_ids)
    count = lost.spot + lost.on_demand
    entry.tally(interruptions=count, noticed=min(count, len(noticed)))
    entry.noticed_ids -= noticed
    _end_notices(entry, instance_ids)
    entry.times_interrupted += entry.lost_ns != lost_ns
    entry.lost = _merged(entry.lost, lost) if entry.lost_ns == lost_ns else (lost,)
    entry.lost_ns = lost_ns
    entry.trains_ns = 0


def _merged(lots: Sequence[Lot], more: Lot) -> tuple[Lot, ...]:
    """Lots with those of the same offering put together."""
    others = tuple(lot for lot in lots if lot.offering_id != more.offering_id)
    same = [more, *(lot for lot in lots if lot.offering_id == more.offering_id)]
    spot, on_demand = sum(lot.spot for lot in same), sum(lot.on_demand for lot in same)
    return (*others, Lot(offering_id=more.offering_id, spot=spot, on_demand=on_demand))


def _end_notices(entry: BoardEntry, instance_ids: Sequence[str]) -> None:
    for name in instance_ids:
        entry.notices.pop(name, None)
    if not entry.notices:
        entry.saves_ns = 0


_OF_A_JOB = frozenset(BOARD_EVENTS) - {
    *(MarketOpened, SlotOpened, JobSubmitted, CapacityReported),
    *(BuyingFrozen, BuyingUnfrozen, SlotDecided),
}
