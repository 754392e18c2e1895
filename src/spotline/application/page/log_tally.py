"""What the log is made of, and what was stopped, parked and mended in it: the system's chapter."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.agreement import (
    AgreementChecked,
    IncarnationBegun,
    OrphanFound,
    OrphanReapRequested,
    OrphanSettled,
)
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried

MOST_LINES = 300


@dataclass(slots=True)
class KindTally:
    """How often a kind of event was applied, and where and when last (market ns)."""

    events: int = 0
    last_seq: int = 0
    last_slot: int = -1
    last_wall_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemLine:
    """Something that happened to the system itself, in words."""

    seq: int
    slot: int
    market_ns: int
    what: str
    text: str
    by: str = ""


@dataclass(slots=True)
class TallyChapter:
    """Events by kind, and the last `MOST_LINES` lines of what happened to the system."""

    kinds: dict[str, KindTally] = field(default_factory=dict)
    lines: deque[SystemLine] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    checks: int = 0

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        tally = self.kinds.setdefault(told.kind, KindTally())
        tally.events += 1
        tally.last_seq, tally.last_slot = told.seq, told.slot
        tally.last_wall_ns = told.wall_ns
        said = self._said(told)
        if said is not None:
            what, text, by = said
            line = SystemLine(
                seq=told.seq,
                slot=told.slot,
                market_ns=told.market_ns,
                what=what,
                text=text,
                by=by,
            )
            self.lines.append(line)

    def _said(self, told: Applied) -> tuple[str, str, str] | None:
        match event := told.event:
            case BuyingFrozen(freeze=freeze):
                scope = f"{freeze.scope.value} {freeze.key}".strip()
                reason = freeze.reason.value.replace("_", " ")
                return "buying stopped", f"{scope}, {reason}: {freeze.detail}", ""
            case BuyingUnfrozen():
                return "buying goes on", event.detail or "its reason is gone", event.by
            case BuyingExcepted():
                text = f"{event.instances} in {event.offering_id} against {event.against}"
                return "bought all the same", f"{text}, for a hard deadline", ""
            case EntryParked():
                text = f"{event.service} could not take {event.kind} of entry {event.seq:,}"
                return "entry parked", f"{text}: {event.error}", ""
            case ParkedEntryRetried():
                return "parked entry retried", f"for {event.service}", event.by
            case ParkedEntryDropped():
                return "parked entry dropped", f"of {event.service}. {event.detail}", event.by
            case AccountModeSet():
                text = f"{event.account} is in {event.mode.value}: {event.reason}"
                return "mode set", text, event.by
            case _:
                return self._said_of_records(told)

    def _said_of_records(self, told: Applied) -> tuple[str, str, str] | None:
        """The same of what log, ledger and cloud hold."""
        match event := told.event:
            case AgreementChecked():
                self.checks += 1
                if event.disagreements:
                    return "records differ", event.disagreements[0].detail, ""
            case IncarnationBegun():
                return "log begun anew", f"incarnation {event.incarnation}: {event.detail}", ""
            case OrphanFound():
                return "orphan found", f"{event.instance_id}: {event.detail}", ""
            case OrphanReapRequested():
                return "orphans to be ended", ", ".join(event.instance_ids), event.by
            case OrphanSettled():
                how = "ended" if event.reaped else "no concern any more"
                return "orphan settled", f"{event.instance_id}, {how}: {event.detail}", event.by
            case _:
                pass
        return None
