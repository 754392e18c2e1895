"""The breaker in the selector: what it hears of instances, and what it says as a slot opens."""

from __future__ import annotations

from collections.abc import Iterator

from spotline.application.selector.state import SelectorState
from spotline.domain.events.capacity import (
    CapacityLost,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.training import JobHeard, JobSilent


def note_health(state: SelectorState, event: Event) -> None:
    """Take in what an event says of instances' health."""
    breaker = state.breaker
    match event:
        case InterruptionNoticed():
            _note_noticed(state, event)
        case InterruptionWithdrawn():
            for instance_id in event.instance_ids:
                breaker.note_well(instance_id)
        case CapacityLost():
            _note_lost(state, event)
        case JobSilent() if event.job_id in state.runs:
            account = _account_of(state, state.runs[event.job_id].offering_id)
            breaker.note_failed(event.instance_id, account, event.ts_event_ns, gone=False)
        case JobHeard():
            breaker.note_well(event.instance_id)
        case SlotOpened():
            breaker.note_slot(event.ts_event_ns)
        case BuyingFrozen():
            breaker.note_frozen(event.freeze)
        case BuyingUnfrozen():
            breaker.note_unfrozen(event.freeze_id, event.ts_event_ns)
        case _:
            pass


def _note_noticed(state: SelectorState, event: InterruptionNoticed) -> None:
    for instance_id in event.instance_ids:
        if event.kind is InterruptionKind.INSTANCE_FAILED:
            account = _account_of(state, event.offering_id)
            state.breaker.note_failed(instance_id, account, _now_ns(state), gone=False)
        else:
            state.breaker.note_reclaim(instance_id, _now_ns(state))


def _note_lost(state: SelectorState, event: CapacityLost) -> None:
    """Instances are gone: without the notice that their cloud promises, they have failed."""
    offering = state.offerings.get(event.offering_id)
    promised = offering is not None and bool(offering.notice_lead_s)
    for instance_id in event.instance_ids:
        known = instance_id in state.breaker.unwell
        if promised or known:
            account = _account_of(state, event.offering_id)
            state.breaker.note_failed(instance_id, account, _now_ns(state), gone=True)


def tripped(state: SelectorState) -> Iterator[Event]:
    """The breakers that trip as a slot opens, and those that let buying go on."""
    held: dict[str, int] = {}
    for run in state.running():
        for lot in run.held_lots:
            account = _account_of(state, lot.offering_id)
            held[account] = held.get(account, 0) + lot.spot + lot.on_demand
    begun, ended = state.breaker.judge(held, _now_ns(state), state.slot)
    for freeze in begun:
        yield BuyingFrozen(freeze=freeze)
    for freeze_id in ended:
        yield BuyingUnfrozen(
            freeze_id=freeze_id,
            detail="fewer instances are unwell: buying is tried again",
            slot=state.slot,
            ts_event_ns=_now_ns(state),
        )


def _account_of(state: SelectorState, offering_id: str) -> str:
    offering = state.offerings.get(offering_id)
    return "" if offering is None else offering.account_key


def _now_ns(state: SelectorState) -> int:
    return 0 if state.opened is None else state.opened.ts_event_ns
