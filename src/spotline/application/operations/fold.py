"""What is not as it should be, folded from the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.account_modes import note_mode
from spotline.domain.events.agreement import (
    AgreementChecked,
    IncarnationBegun,
    OrphanFound,
    OrphanSettled,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.limits.freezes import Freezes

OPERATIONS_EVENTS = (
    EntryParked,
    ParkedEntryRetried,
    ParkedEntryDropped,
    BuyingFrozen,
    BuyingUnfrozen,
    AgreementChecked,
    IncarnationBegun,
    OrphanFound,
    OrphanSettled,
    AccountModeSet,
)
"""All that the fold takes."""
_TAKEN = frozenset(OPERATIONS_EVENTS)

ParkedKey = tuple[str, str]
"""The service that parked an event, and the event's id."""


@dataclass(slots=True)
class OperationsState:
    """What a person who runs Spotline is to know.

    `parked` are the entries that nobody has dealt with, oldest first, `orphans` the instances that
    belong to no job, by id, `modes` the last that was said of an account, by account, `agreement` the last comparison of log, ledger and cloud.
    """

    parked: dict[ParkedKey, EntryParked] = field(default_factory=dict)
    freezes: Freezes = field(default_factory=Freezes)
    agreement: AgreementChecked | None = None
    incarnation: IncarnationBegun | None = None
    orphans: dict[str, OrphanFound] = field(default_factory=dict)
    modes: dict[str, AccountModeSet] = field(default_factory=dict)

    def fold(self, event: Event) -> None:
        """Apply an event; nothing else changes it."""
        if type(event) not in _TAKEN:
            return
        match event:
            case EntryParked():
                self.parked.setdefault((event.service, event.event_id), event)
            case ParkedEntryRetried() | ParkedEntryDropped():
                self.parked.pop((event.service, event.event_id), None)
            case BuyingFrozen():
                self.freezes.begin(event.freeze)
            case BuyingUnfrozen():
                self.freezes.end(event.freeze_id)
            case AccountModeSet():
                self.modes[event.account] = event
                note_mode(self.freezes, event)
            case AgreementChecked():
                self.agreement = event
            case IncarnationBegun():
                self.incarnation = event
            case OrphanFound():
                self.orphans[event.instance_id] = event
            case OrphanSettled():
                self.orphans.pop(event.instance_id, None)
            case _:
                pass
