"""What a recorded log is asked on the page of replays, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from spotline.domain.jobs.lot import Lot

PAGE_SIZE = 100


class ReplayVerdict(Enum):
    """What verification says of an entry."""

    SAME = "same"
    DIVERGED = "diverged"
    INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryVerdict:
    """An event of the log: a recomputed decision of a service, or an input that others decide on."""

    seq: int
    kind: str
    service: str
    verdict: ReplayVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceShown:
    """A decision that is not what its service decides on the same inputs, field by field."""

    seq: int
    cause_seq: int
    service: str
    kind: str
    recorded: str
    recomputed: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceVerified:
    """How many decisions of a service were made again, and the hash of all of them."""

    service: str
    decisions: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `spotline replay verify` finds; `problem` is why nothing was replayed, empty for nothing.

    `elsewhere` are the ways in which the log was recorded under other circumstances than these.
    """

    entries: int = 0
    answers: int = 0
    skipped: int = 0
    parked: int = 0
    open_inputs: int = 0
    sha256: str = ""
    services: tuple[ServiceVerified, ...] = ()
    divergences: tuple[DivergenceShown, ...] = ()
    verdicts: tuple[EntryVerdict, ...] = ()
    elsewhere: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def same(self) -> bool:
        """Whether every recorded decision was made again."""
        return not (self.divergences or self.elsewhere or self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAsked:
    """What is changed: a rule instead of what was decided, deadlines as `+6h` or `x1.5`, factors.

    `gone` is an offering that has nothing from a slot to a slot (empty: to the log's ends),
    `gone_cloud` a provider that has nothing at all, `counts` the share that is left of every count.
    """

    rule: str = "spotline"
    deadline: str = ""
    spot_factor: str = ""
    on_demand_factor: str = ""
    gone: str = ""
    gone_from: int | None = None
    gone_to: int | None = None
    gone_cloud: str = ""
    counts: str = ""


class SlotLived(NamedTuple):
    """A slot of a job: what it held, what it had cost by its end (micro-USD), and how far it was."""

    slot: int
    lots: tuple[Lot, ...]
    cost_micro_usd: int
    progress_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBeside:
    """A job as it was, and as it would have been; money is micro-USD.

    Where it could not be run again, `other` values are None and `why` says why. `slots` are those
    in which it ran, `other_slots` those in which it would have.
    """

    job_id: str
    name: str
    deadline_ns: int
    cost_micro_usd: int
    on_time: bool
    other_cost_micro_usd: int | None
    other_on_time: bool | None
    why: str = ""
    other_deadline_ns: int = 0
    slots: tuple[SlotLived, ...] = ()
    other_slots: tuple[SlotLived, ...] = ()

    @property
    def more_micro_usd(self) -> int | None:
        """How much more it would have cost."""
        other = self.other_cost_micro_usd
        return None if other is None else other - self.cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBeside:
    """What was, beside what would have been; `changed` and `assumptions` are for people to read."""

    rule: str = ""
    jobs: tuple[JobBeside, ...] = ()
    changed: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    problem: str = ""

    @property
    def compared(self) -> Sequence[JobBeside]:
        """The jobs that were run again."""
        return [job for job in self.jobs if job.other_cost_micro_usd is not None]

    @property
    def cost_micro_usd(self) -> int:
        """What these jobs cost."""
        return sum(job.cost_micro_usd for job in self.compared)

    @property
    def other_cost_micro_usd(self) -> int:
        """What they would have cost."""
        return sum(job.other_cost_micro_usd or 0 for job in self.compared)

    @property
    def on_time(self) -> int:
        """How many of them were on time."""
        return sum(job.on_time for job in self.compared)

    @property
    def other_on_time(self) -> int:
        """How many of them would have been."""
        return sum(bool(job.other_on_time) for job in self.compared)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAsked:
    """What a log is asked: to be verified, what if, or nothing yet."""

    verify: bool = False
    what_if: WhatIfAsked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayShown:
    """What is known of a log by now: `running` while something is worked out.

    `rules` are the names that a what-if may be asked with.
    """

    log: str
    rules: tuple[str, ...]
    running: bool = False
    verified: Verified | None = None
    beside: RunBeside | None = None
