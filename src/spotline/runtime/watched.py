"""A running service as its metrics are read off it: what it has done, and how it stands."""

from __future__ import annotations

from collections import Counter as Counter_
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, kw_only=True)
class HostCounters:
    """What one host has done since it started; `parked` is by kind, `not_believed` are of those."""

    handled: int = 0
    dead_lettered: int = 0
    published: int = 0
    parked: Counter_[str] = field(default_factory=Counter_)
    not_believed: int = 0
    snapshots_set_aside: int = 0


class Watched(Protocol):
    """A running service, as its metrics are read off it."""

    counters: HostCounters

    @property
    def backlog(self) -> int:
        """Inputs that are stored for it and not taken yet."""
        ...

    @property
    def lag_s(self) -> float:
        """How long the last input had waited, 0 when nothing waits."""
        ...

    @property
    def started_s(self) -> float:
        """When it was started, Unix time."""
        ...

    @property
    def healthy(self) -> bool:
        """Whether it is well."""
        ...
