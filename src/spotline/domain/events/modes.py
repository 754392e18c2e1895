"""Which accounts are acted on: `modes.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountModeSet:
    """From now on an account ("provider/account") is in a mode; `by` says who wants it, and why.

    In any but `LIVE` nothing is bought there.
    """

    account: str
    mode: Mode
    by: str
    reason: str
    slot: int = -1
    ts_event_ns: int = 0
