"""What a run leaves behind, for the oracles to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spotline.bench.faults.scenario import Scenario
from spotline.contracts.envelope import StoredEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """A run that is over.

    Parameters
    ----------
    entries
        The log as the broker holds it in the end.
    lost
        What was in the log once and was lost, in the order in which it was lost.
    ledger, cloud
        Files of SQLite: the ledger, and the simulated cloud's own memory.
    accepted
        Tenants of the jobs whose submission was acknowledged, by job id.
    faults
        How many faults changed a state.
    stalled
        Why it did not come to its end, empty where it did.
    crashes
        What ended services that nobody killed, by service.
    points
        How often each fail point was reached; `killed` are those where a service was killed.
    notes
        What a family wants to show its oracle.
    """

    scenario: Scenario
    # Not shown: asyncio shows a task's result whenever it takes its signal handler away.
    entries: Sequence[StoredEntry] = field(repr=False)
    ledger: Path
    cloud: Path
    accepted: Mapping[str, str]
    faults: int
    stalled: str = ""
    crashes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    points: Counter[str] = field(default_factory=Counter)
    killed: frozenset[str] = frozenset()
    notes: Mapping[str, object] = field(default_factory=dict)
    lost: Sequence[StoredEntry] = field(repr=False, default=())
