"""What programs that Spotline runs have shown: one fold, for the selector and the job board.

Both correct a job by it, each from the log; value tables fit only if they come to the same.

A start of the program (a generation) is put down to the change of the held set before it. What it
takes is counted from that change: instances boot and join before their restart is measured, and the
program that ran before saves. Where the clock of those who tell is not the market's, the restart
counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spotline.domain.events.capacity import CapacityLost, CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.training import (
    CheckpointCommitted,
    GenerationFormed,
    TrainingRestarted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import JobHolding, Lot, holding_of
from spotline.domain.jobs.measured import NOTHING, Change, Measured, corrected, planned_lead_s
from spotline.domain.units import NS_PER_S

MEASURED = (
    CapacityLost,
    CapacityReported,
    CheckpointCommitted,
    GenerationFormed,
    TrainingRestarted,
)
"""The events that are measured by, beside slots and the lives of jobs."""
_TAKEN = frozenset({*MEASURED, SlotOpened, JobSubmitted, JobClosed})

# How much longer than the latest slot a moment of the market's clock can lie ahead of its opening.
_SLOTS_AHEAD = 2

_WEIGHT = {change: weight for weight, change in enumerate(Change)}


@dataclass(slots=True)
class Followed:
    """A job whose program Spotline runs, as its owner `stated` it, and what it has shown.

    It holds `lots`, those instances where they were named, and ran last on `home`. `change` is the latest change of them that no generation
    has answered, at `changed_ns`; `answered` that of the present generation until it makes
    progress, `waited_s` before its members were complete.
    """

    stated: Job
    measured: Measured = NOTHING
    lots: tuple[Lot, ...] = ()
    instance_ids: tuple[str, ...] = ()
    home: str = ""
    interrupted: bool = False
    change: Change | None = None
    changed_ns: int = 0
    generation: int = 0
    answered: Change | None = None
    waited_s: int = 0

    def corrected(self, job: Job) -> Job:
        """The job as it is believed, with what was measured."""
        return corrected(job, self.stated, self.measured)


@dataclass(slots=True)
class Measuring:
    """What all running programs have shown, by job; jobs without a `run` are not followed."""

    followed: dict[str, Followed] = field(default_factory=dict)
    slot: int = -1
    slot_s: int = 0
    opened_ns: int = 0

    def lead_s(self, job: Job, notice_lead_s: int | None) -> int | None:
        """The notice to plan a job with where `notice_lead_s` is that of the offering."""
        followed = self.followed.get(job.job_id)
        return planned_lead_s(
            job, notice_lead_s, NOTHING if followed is None else followed.measured
        )

    def fold(self, event: Event) -> Followed | None:
        """Apply an event; return the job that is believed otherwise than before, if one is."""
        if type(event) not in _TAKEN:
            return None
        match event:
            case SlotOpened() if event.slot > self.slot:
                self._open(event)
            case JobSubmitted() if event.job.run is not None:
                self.followed.setdefault(event.job.job_id, Followed(stated=event.job))
            case JobClosed():
                self.followed.pop(event.job_id, None)
            case CapacityReported() if event.slot == self.slot:
                self._note_held(event)
            case CapacityLost() if event.slot == self.slot and event.job_id in self.followed:
                self.followed[event.job_id].interrupted = True
            case GenerationFormed() | TrainingRestarted() | CheckpointCommitted():
                return self._fold_training(event)
            case _:
                pass
        return None

    def _open(self, event: SlotOpened) -> None:
        self.slot, self.slot_s, self.opened_ns = event.slot, event.slot_s, event.ts_event_ns
        spot = {
            quoted.quote.offering_id: quoted.quote.spot_available.instances
            for quoted in event.quotes
            if quoted.quote.spot_available.known
        }
        for followed in self.followed.values():
            # At an opening the count says what the provider took.
            if any(lot.spot > spot.get(lot.offering_id, lot.spot) for lot in followed.lots):
                followed.interrupted = True

    def _note_held(self, event: CapacityReported) -> None:
        at_ns = self.opened_ns + event.offset_s * NS_PER_S
        held = {holding.job_id: holding for holding in event.holdings}
        for job_id, followed in self.followed.items():
            _hold(followed, held.get(job_id) or JobHolding(job_id=job_id, lots=()), at_ns)

    def _fold_training(
        self, event: GenerationFormed | TrainingRestarted | CheckpointCommitted
    ) -> Followed | None:
        # Platforms may speak of jobs that are over, or were never submitted here.
        followed = self.followed.get(event.job_id)
        if followed is None:
            return None
        before = followed.measured.believed
        match event:
            case GenerationFormed() if event.generation > followed.generation:
                followed.generation = event.generation
                # Where nothing has changed, the program is started on what it ran on.
                followed.answered = followed.change or Change.SHRINK
                changed = followed.change is not None
                followed.waited_s = self._waited_s(followed, event.ts_event_ns) if changed else 0
                followed.change = None
            case TrainingRestarted() if event.generation == followed.generation:
                if followed.answered is not None:
                    followed.measured = followed.measured.restarted(
                        followed.answered, followed.waited_s + event.restart_s
                    )
                    followed.answered = None
            case CheckpointCommitted():
                followed.measured = followed.measured.saved(event.save_s, event.size_bytes)
            case _:
                pass
        return followed if followed.measured.believed != before else None

    def _waited_s(self, followed: Followed, formed_ns: int) -> int:
        if formed_ns > self.opened_ns + _SLOTS_AHEAD * self.slot_s * NS_PER_S:
            return 0
        return max(0, (formed_ns - followed.changed_ns) // NS_PER_S)


def _hold(followed: Followed, holding: JobHolding, at_ns: int) -> None:
    """Take what a job holds now, and tell which change that is."""
    lots = tuple(lot for lot in holding.lots if lot.spot + lot.on_demand)
    interrupted, followed.interrupted = followed.interrupted, False
    added = not set(holding.instance_ids) <= set(followed.instance_ids)
    if lots == followed.lots and not added:
        return
    change = _change(followed, lots, at_ns, interrupted=interrupted, added=added)
    followed.lots, followed.instance_ids = lots, holding.instance_ids
    followed.home = next(_elsewhere(followed, lots), followed.home)
    followed.change, followed.changed_ns = change, at_ns


def _change(
    followed: Followed, lots: tuple[Lot, ...], at_ns: int, *, interrupted: bool, added: bool
) -> Change | None:
    """The change that led to holding `lots`, None for going idle without a loss."""
    pending = followed.change
    if not lots:
        return Change.INTERRUPTED if interrupted else None
    if followed.home and any(_elsewhere(followed, lots)):
        return Change.MIGRATE
    if not followed.lots:
        # What replaces a lost set at the moment of the loss answers the loss.
        replaced = pending is Change.INTERRUPTED and followed.changed_ns == at_ns
        return Change.INTERRUPTED if replaced else Change.LAUNCH
    before, after = holding_of(followed.lots), holding_of(lots)
    grown = added and bool(followed.instance_ids)
    grown = grown or after.spot > before.spot or after.on_demand > before.on_demand
    now = Change.GROW if grown else Change.SHRINK
    if interrupted:
        now = Change.INTERRUPTED
    if pending is None:
        return now
    return max(now, pending, key=_WEIGHT.__getitem__)


def _elsewhere(followed: Followed, lots: Iterable[Lot]) -> Iterator[str]:
    return (lot.offering_id for lot in lots if lot.offering_id != followed.home)
