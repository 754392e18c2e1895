"""What follows from the mode of an account: in any but live, nothing is bought there."""

from __future__ import annotations

from spotline.domain.events.modes import AccountModeSet
from spotline.domain.limits.freezes import Freeze, FreezeReason, Freezes, FreezeScope
from spotline.domain.modes import Mode


def mode_freeze_id(account: str) -> str:
    """The id of the stop of buying in an account ("provider/account") that is not live."""
    return f"mode:{account}"


def note_mode(freezes: Freezes, event: AccountModeSet) -> None:
    """Stop buying in an account, or let it go on; the last that was said of it counts."""
    freeze_id = mode_freeze_id(event.account)
    freezes.end(freeze_id)
    if event.mode is Mode.LIVE:
        return
    freezes.begin(
        Freeze(
            freeze_id=freeze_id,
            scope=FreezeScope.ACCOUNT,
            key=event.account,
            reason=FreezeReason.NOT_LIVE,
            detail=f"the account is in mode {event.mode.value}: {event.reason}",
            continue_with=f"spotline promote {event.account} --to live --reason WHY",
            slot=event.slot,
            ts_event_ns=event.ts_event_ns,
        )
    )
