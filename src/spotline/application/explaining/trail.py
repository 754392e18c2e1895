"""What the log holds around a decision: what led to it, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.allocator.happenings import probe_text
from spotline.application.explaining.facts import DecidedTurn, counted, lot_text, usd_text
from spotline.application.explaining.messages import CauseLink
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMark:
    """Where an event is: its place in the log, its id, and when it was, 0 for no time of its own."""

    seq: int
    event_id: str
    ts_event_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailEvent:
    """An event near a decision."""

    event: Event
    kind: str
    mark: LogMark
    causation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """All that is read of the log to explain a decision, beside the state it was made in.

    `events` are those of its slot and until its bills are in, in the order of the log. The marks
    are of the latest such event before the decision; `laws` by law id.
    """

    decision: AllocationDecided
    mark: LogMark
    cause_id: str
    events: Sequence[TrailEvent]
    admitted: LogMark | None = None
    progress: LogMark | None = None
    checkpoint: LogMark | None = None
    capacity: LogMark | None = None
    table: LogMark | None = None
    laws: Mapping[str, LogMark] = field(default_factory=dict)

    def before(self) -> Iterator[TrailEvent]:
        """The events of the slot before the decision."""
        return (found for found in self.events if found.mark.seq < self.mark.seq)

    def refusals(self) -> list[LaunchRefused]:
        """The launches refused in the slot before the decision."""
        slot = self.decision.slot
        refused = (found.event for found in self.before())
        return [
            event for event in refused if isinstance(event, LaunchRefused) and event.slot == slot
        ]

    def billed_micro_usd(self) -> int:
        """What the slot was billed to the job with."""
        return sum(event.cost_micro_usd for event in self._bills())

    def _bills(self) -> Iterator[CostAccrued]:
        job_id, slot = self.decision.job_id, self.decision.slot
        for found in self.events:
            event = found.event
            if isinstance(event, CostAccrued) and (event.job_id, event.slot) == (job_id, slot):
                yield event


def chain_of(trail: Trail, turn: DecidedTurn) -> tuple[CauseLink, ...]:
    """From the quote to the bill: what this decision came of, and what came of it."""
    opened_ns = turn.market.opened.ts_event_ns
    links = []
    for found in trail.events:
        text = _said(found, trail, turn)
        if not text:
            continue
        event, mark = found.event, found.mark
        ts_ns = getattr(event, "ts_event_ns", 0) or mark.ts_event_ns
        offset_s = getattr(event, "offset_s", None)
        if isinstance(event, CostAccrued | JobClosed):
            ts_ns = opened_ns + turn.market.opened.slot_s * NS_PER_S
        elif getattr(event, "slot", -1) == trail.decision.slot and offset_s is not None:
            ts_ns = opened_ns + offset_s * NS_PER_S
        links.append(
            CauseLink(
                kind="bill" if isinstance(event, CostAccrued) else found.kind,
                seq=mark.seq,
                event_id=mark.event_id,
                ts_event_ns=ts_ns or turn.market.now_ns,
                text=text,
            )
        )
    return tuple(links)


def _said(found: TrailEvent, trail: Trail, turn: DecidedTurn) -> str:
    """What an event of the chain says, empty for what is none of it."""
    decision, event = trail.decision, found.event
    of_job = getattr(event, "job_id", decision.job_id) == decision.job_id
    if getattr(event, "slot", decision.slot) != decision.slot or not of_job:
        return ""
    before = found.mark.seq <= trail.mark.seq
    match event:
        case SlotOpened():
            return f"slot {event.slot} opened with {counted(len(event.quotes), 'quote')}"
        case ForecastIssued() if before:
            return f"forecast by {event.model_id}"
        case ForecastOverdue() if before:
            return f"no forecast within {event.waited_ms / 1000:g} s"
        case AllocationAnswered() if found.mark.event_id == trail.cause_id:
            return _answered(event)
        case AllocationDecided() if found.mark.event_id == trail.mark.event_id:
            return f"decided: {lot_text(event.lots)} ({event.reason.value.replace('_', ' ')})"
        case _:
            return _came_of_it(event, found, trail, turn)


def _came_of_it(event: Event, found: TrailEvent, trail: Trail, turn: DecidedTurn) -> str:
    decision = trail.decision
    revision = getattr(event, "revision", decision.revision)
    match event:
        case ProvisioningCommanded() if revision == decision.revision:
            wanted = lot_text((event.target,))
            if wanted == "nothing":
                wanted = f"nothing on {event.target.offering_id}"
            copy = event.transfer_cost_micro_usd
            return f"commanded: {wanted}" + (f", a copy for {usd_text(copy)}" if copy else "")
        case ProbeCommanded() | OfferingProbed():
            return probe_text(event)
        case LaunchRefused():
            name = event.capacity_type.value.replace("_", "-")
            return f"refused: {event.granted} of {event.requested} {name} granted: {event.detail}"
        case InterruptionNoticed():
            return (
                f"notice: {counted(len(event.instance_ids), 'instance')} to go in {event.lead_s} s"
            )
        case CapacityLost():
            return f"lost: {counted(len(event.instance_ids), 'instance')}"
        case CapacityReported() if revision == decision.revision:
            held = next((h.lots for h in event.holdings if h.job_id == decision.job_id), ())
            return f"holds {lot_text(held)}"
        case CostAccrued():
            return _billed(event)
        case JobClosed():
            return f"over: {event.outcome.value.replace('_', ' ')}"
        case _:
            return ""


def _answered(event: AllocationAnswered) -> str:
    if event.outcome is CallOutcome.ANSWERED:
        return f"the allocator answered for {counted(len(event.answers), 'job')}"
    return f"the allocator did not answer: {event.outcome.value.replace('_', ' ')}: {event.detail}"


def _billed(event: CostAccrued) -> str:
    cost = usd_text(event.cost_micro_usd)
    if not event.instances:
        return f"{cost} for copying the checkpoint"
    kind = event.capacity_type.value.replace("_", "-")
    price = usd_text(event.price_micro_usd)
    return f"{cost}: {event.instances} {kind} for {event.held_s} s at {price}/h each"
