"""The conditions of a service and of the system: their names, limits and form.

A rule gets facts and the time they were collected at, and answers with a `Judged`; nothing here
reads a clock. Times are seconds of a clock that never goes back, except where a name says slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from spotline.application.operations.messages import Condition

# What it is made of may be anybody's, and it travels with every heartbeat.
_LONGEST_DETAIL = 400


class ConditionKind(Enum):
    """What is asked; those of the system as a whole come last. Meanings: docs/operating.md."""

    LOG = "log"
    BUS = "bus"
    PUBLISHING = "publishing"
    STORAGE = "storage"
    SLOTS = "slots"
    QUOTES = "quotes"
    FEEDS = "feeds"
    DISK = "disk"
    SNAPSHOT = "snapshot"
    LOOP = "loop"
    TASKS = "tasks"
    AGREEMENT = "agreement"
    PARKED = "parked"
    FREEZES = "freezes"
    ORPHANS = "orphans"
    HEARD = "heard"


OF_THE_SYSTEM = frozenset(
    {
        ConditionKind.AGREEMENT,
        ConditionKind.PARKED,
        ConditionKind.FREEZES,
        ConditionKind.ORPHANS,
        ConditionKind.HEARD,
    }
)
"""What the allocator's process judges of all of them together; no service's own."""

STOPS_EVENTS = frozenset(
    {
        ConditionKind.LOG,
        ConditionKind.BUS,
        ConditionKind.PUBLISHING,
        ConditionKind.STORAGE,
        ConditionKind.SLOTS,
        ConditionKind.QUOTES,
        ConditionKind.DISK,
        ConditionKind.TASKS,
    }
)
"""With one of these unhealthy a service is not ready: events do not flow, or soon will not.

The others cost time, money or sleep, but what is asked of the service is still answered rightly.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """From when on something is not as it should be.

    Parameters
    ----------
    stall_s
        Entries wait and none was taken, or ever more wait.
    backlog
        As few may wait however long.
    bus_silent_s
        The broker has not said how the log is.
    slot_lengths, slot_least_s
        No slot opened, in slot lengths as they pass by the wall; never less than `slot_least_s`.
    disk_free_bytes
        So much is free at least where store or ledger are.
    storage_free_ppm
        So much of JetStream's limit is free at least, parts per million.
    loop_blocked_s
        The event loop stood still.
    heard_s
        A service has told nothing.
    agreement_slots, freeze_slots
        Log, ledger and cloud were not compared; a stop of buying is in force.
    """

    stall_s: float = 60.0
    backlog: int = 1000
    bus_silent_s: float = 10.0
    slot_lengths: int = 3
    slot_least_s: float = 60.0
    disk_free_bytes: int = 256 * 1024 * 1024
    storage_free_ppm: int = 50_000
    loop_blocked_s: float = 10.0
    heard_s: float = 15.0
    agreement_slots: int = 24
    freeze_slots: int = 6

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{limit.name} must be finite and >= 0, was {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A condition with the figure that it was judged by, None where there is none to show.

    Where it `is_partial` events flow all the same.

    The figure's unit is that of the metric which shows it (`runtime.metrics.CONDITION_FIGURES`).
    """

    kind: ConditionKind
    healthy: bool
    detail: str
    figure: float | None = None
    continue_with: str = ""
    is_partial: bool = False

    @property
    def stops_events(self) -> bool:
        """Whether the service is not ready because of it."""
        return not self.healthy and not self.is_partial and self.kind in STOPS_EVENTS

    def condition(self) -> Condition:
        """As it is told; what continues is said only of what is not well."""
        return Condition(
            name=self.kind.value,
            healthy=self.healthy,
            detail=_one_line(self.detail),
            continue_with="" if self.healthy else self.continue_with,
        )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_DETAIL else f"{line[:_LONGEST_DETAIL]} ..."


def lasting(seconds: float) -> str:
    """How long, for people: `34 s`, `12 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def size(count: float) -> str:
    """How many bytes, for people: `12 MB`."""
    for unit, bytes_of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= bytes_of:
            return f"{count / bytes_of:.1f} {unit}"
    return f"{count:.0f} B"
