"""Who makes the call that is being answered: known to all that is done for it, and to nothing else."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field

from spotline.contracts.access import Caller
from spotline.contracts.reasons import Reason
from spotline.runtime.metrics import REASON, Readings

_caller: ContextVar[Caller | None] = ContextVar("spotline_caller", default=None)


def current_caller() -> Caller | None:
    """Who makes the call that is being answered; None where nobody is asked who he is."""
    return _caller.get()


def answer_for(caller: Caller) -> None:
    """Take what the present task does from now on as done for `caller`.

    Servers answer each call in a task of its own, so nothing is to be put back.
    """
    _caller.set(caller)


@dataclass(slots=True)
class Denials:
    """How often callers were turned away at a door since the start, by the reason."""

    by_reason: Counter[Reason] = field(
        default_factory=lambda: Counter(
            {Reason.UNAUTHENTICATED: 0, Reason.ROLE_DENIED: 0, Reason.TENANT_DENIED: 0}
        )
    )

    def note(self, reason: Reason) -> None:
        """Count one."""
        self.by_reason[reason] += 1

    def readings(self) -> Readings:
        """The counts as a metric has them."""
        return [
            (float(count), {REASON: reason.name.lower()})
            for reason, count in tuple(self.by_reason.items())
        ]
