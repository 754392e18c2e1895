"""What each job held and when, what happened to it, how far it came, and what that was billed at.

Long series are kept flat, in integers: a log of many jobs is copied often.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.lifecycle import (
    JobAdvanced,
    JobClosed,
    JobExited,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointFailed,
    JobSilent,
    JobStalled,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason

SPOT, ON_DEMAND, RESERVED = "spot", "on-demand", "reserved"
"""How what is held is paid for."""

_STANDING_WIDTH, _COURSE_WIDTH = 4, 2


class SignKind(Enum):
    """What is marked in a job's life; the value is what it is called."""

    NOTICED = "notice"
    LOST = "taken back"
    WITHDRAWN = "notice withdrawn"
    REFUSED = "launch refused"
    MOVED = "moved"
    SAFETY_NET = "safety net"
    LIMITED = "held back by its budget"
    SAVED = "checkpoint saved"
    NOT_SAVED = "checkpoint failed"
    EXITED = "program failed"
    RETRIED = "started again"
    SILENT = "silent or stalled"
    CHANGED = "changed by its owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSign:
    """Something that happened to a job, to how many of its instances (0: to none), and where.

    `detail` are the words of whoever said it; `refusal` is the class of a refused launch.
    """

    at_ns: int
    kind: SignKind
    slot: int
    seq: int
    instances: int = 0
    offering_id: str = ""
    detail: str = ""
    refusal: RefusalClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LotSpan:
    """Instances of an offering that a job held for a time; `until_ns` is 0 where it still does."""

    offering_id: str
    paid: str
    instances: int
    from_ns: int
    until_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRecord:
    """Instances that the provider took back, `noticed` of them with notice.

    `done_ppm` is the share of its work that the decisions had counted then.
    """

    at_ns: int
    slot: int
    seq: int
    lots: tuple[Lot, ...]
    instances: int
    noticed: int
    done_ppm: int


class JobStanding(NamedTuple):
    """Where a job stood when a slot was over, and what it had spent by the decisions."""

    at_ns: int
    slot: int
    progress_ppm: int
    spent_micro_usd: int


class BillLine(NamedTuple):
    """What an offering and kind was billed at in all; `copies` are those of a checkpoint."""

    offering_id: str
    paid: str
    instance_s: int
    cost_micro_usd: int
    bills: int


@dataclass(slots=True)
class JobPast:
    """One job's past; only `HoldingsChapter.fold` changes it."""

    spans: list[LotSpan] = field(default_factory=list)
    open_spans: dict[tuple[str, str], LotSpan] = field(default_factory=dict)
    marks: list[JobSign] = field(default_factory=list)
    losses: list[LossRecord] = field(default_factory=list)
    closed_ns: int = 0
    counted: tuple[int, int, int] = (0, 0, 0)
    reason: DecisionReason | None = None
    _standings: array[int] = field(default_factory=lambda: array("q"))
    _billed: array[int] = field(default_factory=lambda: array("q"))
    _bills: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def standings(self) -> Iterator[JobStanding]:
        """Where it stood at the end of each slot, oldest first."""
        kept = self._standings
        for at in range(0, len(kept), _STANDING_WIDTH):
            yield JobStanding(*kept[at : at + _STANDING_WIDTH])

    def billed(self) -> Iterator[tuple[int, int]]:
        """Moments (ns) and what had been billed until then, micro-USD, oldest first."""
        kept = self._billed
        for at in range(0, len(kept), _COURSE_WIDTH):
            yield kept[at], kept[at + 1]

    def bill(self) -> list[BillLine]:
        """What was billed, the dearest first."""
        lines = [BillLine(*key, *sums) for key, sums in self._bills.items()]
        return sorted(lines, key=lambda line: (-line.cost_micro_usd, line.offering_id, line.paid))

    def all_spans(self) -> list[LotSpan]:
        """What it held and holds, by when that began."""
        spans = [*self.spans, *self.open_spans.values()]
        return sorted(spans, key=lambda span: (span.from_ns, span.offering_id, span.paid))

    def stand(self, at_ns: int, event: JobAdvanced) -> None:
        """Note where it stands at the end of a slot."""
        self._standings.extend((at_ns, event.slot, event.progress_ppm, event.cost_micro_usd))

    def charge(self, at_ns: int, paid: str, event: CostAccrued) -> None:
        """Note a bill of a slot that ends at `at_ns`."""
        sums = self._bills.setdefault((event.offering_id, paid), [0, 0, 0])
        sums[0] += event.instances * event.held_s
        sums[1] += event.cost_micro_usd
        sums[2] += 1
        before = self._billed[-1] if self._billed else 0
        if self._billed and self._billed[-2] >= at_ns:
            self._billed[-1] = before + event.cost_micro_usd
        else:
            self._billed.extend((at_ns, before + event.cost_micro_usd))

    def hold(self, at_ns: int, held: dict[tuple[str, str], int]) -> None:
        """Note what it holds from a moment on."""
        for key, span in list(self.open_spans.items()):
            if held.get(key) != span.instances:
                del self.open_spans[key]
                if at_ns > span.from_ns:
                    self.spans.append(
                        LotSpan(
                            offering_id=span.offering_id,
                            paid=span.paid,
                            instances=span.instances,
                            from_ns=span.from_ns,
                            until_ns=at_ns,
                        )
                    )
        for (offering_id, paid), instances in held.items():
            if (offering_id, paid) not in self.open_spans:
                self.open_spans[offering_id, paid] = LotSpan(
                    offering_id=offering_id, paid=paid, instances=instances, from_ns=at_ns
                )


COPY = "checkpoint copies"
"""How a bill without instances is named."""


@dataclass(slots=True)
class HoldingsChapter:
    """The past of every job, by its id."""

    of_job: dict[str, JobPast] = field(default_factory=dict)
    _holding: set[str] = field(default_factory=set)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event; `jobs` has it already."""
        event = told.event
        if isinstance(event, JobSubmitted):
            self.of_job.setdefault(event.job.job_id, JobPast())
            return
        if isinstance(event, CapacityReported):
            self._report(told, event, jobs)
            return
        past = self.of_job.get(str(getattr(event, "job_id", "")))
        if past is None:
            return
        self._fold_job(past, told, jobs)
        self._count_losses(past, told, jobs, str(getattr(event, "job_id", "")))

    def _fold_job(self, past: JobPast, told: Applied, jobs: JobsState) -> None:
        event = told.event
        board = jobs.board
        match event:
            case JobAdvanced():
                past.stand(board.at_ns(event.slot + 1, 0), event)
            case CostAccrued():
                paid = _paid(event.offering_id, event.capacity_type, jobs)
                past.charge(
                    board.at_ns(event.slot + 1, 0), paid if event.instances else COPY, event
                )
            case JobClosed():
                entry = board.entries.get(event.job_id)
                past.closed_ns = told.market_ns if entry is None else entry.closed_ns
            case AllocationDecided():
                _mark_decision(past, told, event)
            case JobRetryScheduled() | LaunchRefused():
                # They have a slot alone: they happen when the log has come so far in it.
                _mark(past, replace(told, market_ns=max(told.market_ns, board.now_ns)))
            case _:
                _mark(past, told)

    def _report(self, told: Applied, event: CapacityReported, jobs: JobsState) -> None:
        at_ns = jobs.board.at_ns(event.slot, event.offset_s)
        reported = {holding.job_id: holding.lots for holding in event.holdings}
        for job_id in sorted(self._holding | reported.keys()):
            past = self.of_job.get(job_id)
            if past is None:
                continue
            held: dict[tuple[str, str], int] = {}
            for lot in reported.get(job_id, ()):
                for kind, count in (
                    (CapacityType.SPOT, lot.spot),
                    (CapacityType.ON_DEMAND, lot.on_demand),
                ):
                    if count:
                        key = lot.offering_id, _paid(lot.offering_id, kind, jobs)
                        held[key] = held.get(key, 0) + count
            past.hold(at_ns, held)
            (self._holding.add if held else self._holding.discard)(job_id)
            self._count_losses(past, told, jobs, job_id)

    def _count_losses(self, past: JobPast, told: Applied, jobs: JobsState, job_id: str) -> None:
        """Mark what the board has counted since: it alone knows what nobody announced."""
        entry = jobs.board.entries.get(job_id)
        if entry is None:
            return
        counts = entry.counts
        taken = counts.interruptions - past.counted[0]
        noticed = counts.noticed - past.counted[1]
        moves = counts.moves - past.counted[2]
        if taken > 0:
            past.losses.append(
                LossRecord(
                    at_ns=entry.lost_ns or told.market_ns,
                    slot=told.slot,
                    seq=told.seq,
                    lots=entry.lost,
                    instances=taken,
                    noticed=noticed,
                    done_ppm=entry.progress_ppm,
                )
            )
            past.marks.append(
                JobSign(
                    at_ns=entry.lost_ns or told.market_ns,
                    kind=SignKind.LOST,
                    slot=told.slot,
                    seq=told.seq,
                    instances=taken,
                    offering_id=entry.lost[0].offering_id if entry.lost else entry.offering_id,
                    detail=_notice_text(taken, noticed),
                )
            )
        if moves > 0:
            past.marks.append(
                JobSign(
                    at_ns=told.market_ns,
                    kind=SignKind.MOVED,
                    slot=told.slot,
                    seq=told.seq,
                    offering_id=entry.offering_id,
                    detail=f"from {entry.moved_from}" if entry.moved_from else "",
                )
            )
        past.counted = (counts.interruptions, counts.noticed, counts.moves)


def _paid(offering_id: str, kind: CapacityType, jobs: JobsState) -> str:
    """How an instance of an offering is paid for; what is reserved is bought as on-demand."""
    if kind is CapacityType.SPOT:
        return SPOT
    for offering in jobs.recent.offerings:
        if offering.offering_id == offering_id and offering.reservation is not None:
            return RESERVED
    return ON_DEMAND


def _mark_decision(past: JobPast, told: Applied, event: AllocationDecided) -> None:
    before, past.reason = past.reason, event.reason
    kinds = {
        DecisionReason.SAFETY_NET: SignKind.SAFETY_NET,
        DecisionReason.BUDGET: SignKind.LIMITED,
    }
    kind = kinds.get(event.reason)
    if kind is not None and event.reason is not before:
        where = event.lots[0].offering_id if event.lots else ""
        past.marks.append(
            JobSign(
                at_ns=told.market_ns,
                kind=kind,
                slot=event.slot,
                seq=told.seq,
                offering_id=where,
                detail=event.explanation,
            )
        )


def _mark(past: JobPast, told: Applied) -> None:
    """Mark what happened, where it is one of the kinds."""
    found = _marked(told.event)
    if found is None:
        return
    kind, instances, detail = found
    event = told.event
    past.marks.append(
        JobSign(
            at_ns=told.market_ns,
            kind=kind,
            slot=told.slot,
            seq=told.seq,
            instances=instances,
            offering_id=str(getattr(event, "offering_id", "")),
            detail=detail,
            refusal=event.refusal_class if isinstance(event, LaunchRefused) else None,
        )
    )


def _marked(event: object) -> tuple[SignKind, int, str] | None:
    match event:
        case InterruptionNoticed():
            lead = f"{event.lead_s} s before: {_names(event.instance_ids)}"
            return SignKind.NOTICED, len(event.instance_ids), lead
        case InterruptionWithdrawn():
            return SignKind.WITHDRAWN, len(event.instance_ids), _names(event.instance_ids)
        case LaunchRefused():
            kind = SPOT if event.capacity_type is CapacityType.SPOT else ON_DEMAND
            detail = f"{event.granted} of {event.requested} {kind} granted"
            if event.detail:
                detail = f"{detail}: {event.detail}"
            return SignKind.REFUSED, event.requested - event.granted, detail
        case CheckpointCommitted():
            return SignKind.SAVED, 0, f"step {event.step}, {event.kind.value}, in {event.save_s} s"
        case CheckpointFailed():
            said = event.fault.value.replace("_", " ")
            return SignKind.NOT_SAVED, 0, f"step {event.step}: {said} {event.detail}".strip()
        case JobExited() if event.exit_code:
            return SignKind.EXITED, 0, f"exit code {event.exit_code} {event.detail}".strip()
        case JobRetryScheduled():
            return SignKind.RETRIED, 0, f"retry {event.retry}: {event.detail}"
        case JobSilent():
            return SignKind.SILENT, 1, f"agent of {event.instance_id} is silent"
        case JobStalled():
            return SignKind.SILENT, 0, "its program reports nothing"
        case JobUpdated():
            return SignKind.CHANGED, 0, "deadline, value or budget"
        case _:
            return None


def _notice_text(taken: int, noticed: int) -> str:
    if noticed >= taken:
        return "with notice"
    return f"{noticed} of {taken} with notice" if noticed else "without notice"


def _names(instance_ids: Sequence[str]) -> str:
    shown = ", ".join(instance_ids[:4])
    return f"{shown} and {len(instance_ids) - 4} more" if len(instance_ids) > 4 else shown
