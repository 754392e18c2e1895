"""A trail that keeps what it is told, and whose disk can be full."""

from __future__ import annotations

from spotline.application.identity.audit import Act
from spotline.contracts.errors import AuditUnavailable


class MemoryTrail:
    """The port `AuditTrail` in memory; nothing can be begun while it is `full`."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.full = False

    async def write(self, act: Act) -> int:
        """Record an act."""
        if self.full:
            raise AuditUnavailable("the disk is full")
        self.acts.append(act)
        return len(self.acts)

    async def settle(self, act: Act) -> None:
        """Record what came of something."""
        self.acts.append(act)

    def note(self, act: Act) -> None:
        """Record an act that nothing waits for."""
        self.acts.append(act)

    def outcomes(self) -> list[tuple[str, str]]:
        """What came of each, and why."""
        return [(act.outcome, act.reason) for act in self.acts]
