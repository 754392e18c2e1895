"""Jobs of which an entry is parked: nothing is bought for them until somebody has looked at it."""

from __future__ import annotations

from spotline.application.selector.job_run import RunPhase
from spotline.application.selector.state import SelectorState
from spotline.application.unfit import NOT_BELIEVED
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope


def freeze_id_of(service: str, event_id: str) -> str:
    """The id of the freeze that a parked entry leads to."""
    return f"parked/{service}/{event_id}"


def frozen_by(state: SelectorState, parked: EntryParked) -> tuple[Event, ...]:
    """Stop buying for the job that a parked entry is about; nothing where it is about none.

    What was not believed is about nobody: a forged entry must stop no job.
    """
    if parked.error_type in NOT_BELIEVED:
        return ()
    run = state.runs.get(parked.job_id)
    over = run is not None and run.phase is RunPhase.CLOSED
    freeze_id = freeze_id_of(parked.service, parked.event_id)
    if not parked.job_id or over or freeze_id in state.freezes.by_id:
        return ()
    which = f"{parked.service} {parked.event_id}"
    freeze = Freeze(
        freeze_id=freeze_id,
        scope=FreezeScope.JOB,
        key=parked.job_id,
        reason=FreezeReason.PARKED,
        detail=f"{parked.service} could not take {parked.kind} at seq {parked.seq}: {parked.error}",
        continue_with=f"spotline parked retry {which} (or: spotline parked drop {which})",
        slot=state.slot,
        ts_event_ns=0 if state.opened is None else state.opened.ts_event_ns,
    )
    return (BuyingFrozen(freeze=freeze),)


def unfrozen_by(
    state: SelectorState, settled: ParkedEntryRetried | ParkedEntryDropped
) -> tuple[Event, ...]:
    """Go on buying: somebody has dealt with the entry."""
    freeze_id = freeze_id_of(settled.service, settled.event_id)
    if freeze_id not in state.freezes.by_id:
        return ()
    if isinstance(settled, ParkedEntryRetried):
        detail = f"the entry was published again as {settled.retried_as}"
    else:
        detail = f"the entry was given up: {settled.detail}" if settled.detail else "given up"
    return (
        BuyingUnfrozen(
            freeze_id=freeze_id,
            by=settled.by,
            detail=detail,
            slot=state.slot,
            ts_event_ns=0 if state.opened is None else state.opened.ts_event_ns,
        ),
    )
