"""Acts that are recorded by their sums, so that a flood of them does not fill the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from spotline.application.identity.audit import Act, ActTally, AuditDoor
from spotline.application.identity.ports import AuditTrail
from spotline.contracts.access import Caller
from spotline.contracts.reasons import Reason
from spotline.domain.units import NS_PER_S

DENIALS_ONE_BY_ONE = 20
DENIALS_WINDOW_S = 600
REPORTS_WINDOW_S = 3_600

NowNs = Callable[[], int]


class TalliedActs:
    """Records the first acts of a kind in a window one by one, the others as a sum at its end.

    For one event loop; nothing waits for the disk.
    """

    def __init__(
        self, trail: AuditTrail, *, singles: int, window_s: int, now_ns: NowNs = time.time_ns
    ) -> None:
        self._trail = trail
        self._tally = ActTally(singles=singles, window_ns=window_s * NS_PER_S)
        self._window_s = window_s
        self._now_ns = now_ns
        self._ending: asyncio.TimerHandle | None = None

    def note(self, kind: tuple[str, ...], act: Act) -> None:
        """Record an act of a kind, now or in a sum."""
        self._write(self._tally.note(kind, act))
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(self._window_s, self._end_windows)

    def close(self) -> None:
        """Record the sums so far. Safe to repeat."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._write(self._tally.rest())

    def _end_windows(self) -> None:
        self._ending = None
        self._write(self._tally.due(self._now_ns()))
        if self._tally.open:
            self._ending = asyncio.get_running_loop().call_later(self._window_s, self._end_windows)

    def _write(self, acts: tuple[Act, ...]) -> None:
        for act in acts:
            self._trail.note(act)


class DeniedCallers:
    """Records who was turned away at a door, and why."""

    def __init__(self, trail: AuditTrail, door: AuditDoor, *, now_ns: NowNs = time.time_ns) -> None:
        self._door = door
        self._now_ns = now_ns
        self._acts = TalliedActs(
            trail, singles=DENIALS_ONE_BY_ONE, window_s=DENIALS_WINDOW_S, now_ns=now_ns
        )

    def note(
        self,
        action: str,
        outcome: str,
        reason: Reason,
        *,
        caller: Caller | None = None,
        peer: str = "",
        target: str = "",
    ) -> None:
        """Record that a caller was turned away; None: he did not prove who he is."""
        act = Act(
            ts_ns=self._now_ns(),
            door=self._door,
            action=action,
            outcome=outcome,
            reason=reason.name,
            peer=peer,
            target=target,
        )
        # By reason: whoever has no token hides nobody that has one.
        self._acts.note((reason.name,), made_by(act, caller))

    def close(self) -> None:
        """Record what was only counted so far. Safe to repeat."""
        self._acts.close()


def made_by(act: Act, caller: Caller | None) -> Act:
    """The act with its caller; None: he did not prove who he is."""
    if caller is None:
        return act
    return replace(
        act,
        subject=caller.subject,
        role=caller.role.value,
        tenant=caller.tenant,
        credential_id=caller.credential_id,
    )
