"""A deadline-bound job, as its owner states it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from spotline.domain.configuration.provenance import JobConfiguration
from spotline.domain.jobs.run import Run
from spotline.domain.problems import refuse_any
from spotline.domain.units import NS_PER_S


class DeadlineKind(Enum):
    """What a late finish means: a failure, or a smaller value."""

    HARD = "hard"
    SOFT = "soft"


class Topology(Enum):
    """How far apart a job's instances may be."""

    ONE_ZONE = "one_zone"
    ONE_REGION = "one_region"
    ANY = "any"


class OnLimit(Enum):
    """What happens to a job that has reached its limit.

    It waits until that is raised, or is stopped, or goes on as long as finishing costs less than is
    still to be gained.
    """

    WAIT = "wait"
    STOP = "stop"
    FINISH = "finish"


WORK_UNITS = ("gpu_hours", "instance_hours", "tokens", "samples", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An amount of work in a named unit."""

    amount: float
    unit: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.amount) and self.amount > 0):
            raise ValueError(f"work.amount must be finite and > 0, was {self.amount}")
        if self.unit not in WORK_UNITS:
            raise ValueError(f"work.unit must be one of {', '.join(WORK_UNITS)}, was {self.unit!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When a job must be, or had better be, done.

    A hard deadline has `expires_ns == at_ns`. A soft one keeps its full value until `at_ns` and
    loses it linearly until `expires_ns` (gamma * d in the paper's terms). Where its owner stated
    seconds after the submission, `after_s` and `expires_after_s` hold them (0: a time was stated).
    """

    kind: DeadlineKind
    at_ns: int
    expires_ns: int
    after_s: int = 0
    expires_after_s: int = 0

    def __post_init__(self) -> None:
        if self.after_s < 0 or self.expires_after_s < 0:
            raise ValueError("deadline.after_s and deadline.expires_after_s must be >= 0")
        if self.kind is DeadlineKind.HARD and self.expires_ns != self.at_ns:
            raise ValueError("deadline.expires_ns must equal deadline.at_ns for a hard deadline")
        if self.kind is DeadlineKind.SOFT and self.expires_ns <= self.at_ns:
            raise ValueError(
                "deadline.expires_ns must lie after deadline.at_ns for a soft deadline"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Work units per hour on n instances: alpha * n + beta, or `table[n - 1]` where given.

    `offering` names the offering id or the instance type it holds for; "*" is any.
    """

    offering: str
    alpha: float = 0.0
    beta: float = 0.0
    table: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"throughput.{name} must be finite, was {getattr(self, name)}")
        if any(not (math.isfinite(rate) and rate >= 0) for rate in self.table):
            raise ValueError(f"throughput.table must hold finite rates >= 0, was {self.table}")

    def rate_per_hour(self, instances: int) -> float:
        """Work units per hour on `instances` (0 on none).

        Raises
        ------
        ValueError
            The table ends before `instances`.
        """
        if instances == 0:
            return 0.0
        if self.table:
            if instances > len(self.table):
                raise ValueError(
                    f"throughput.table must reach {instances} instances, has {len(self.table)}"
                )
            return self.table[instances - 1]
        return self.alpha * instances + self.beta


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Seconds without progress after each kind of change of the held set.

    `launch` starts from nothing, `grow` adds or replaces instances (a swap of spot for on-demand
    is one), `shrink` only releases, `migrate` changes the offering, `interrupted` follows a
    reclaim. A change may not be cheaper than a smaller one: shrink <= grow <= migrate.
    """

    launch_s: int
    grow_s: int
    shrink_s: int
    migrate_s: int
    interrupted_s: int

    def __post_init__(self) -> None:
        for name in ("launch_s", "grow_s", "shrink_s", "migrate_s", "interrupted_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"overheads.{name} must be >= 0, was {getattr(self, name)}")
        if not self.shrink_s <= self.grow_s <= self.migrate_s:
            raise ValueError(
                "overheads must satisfy shrink_s <= grow_s <= migrate_s, were "
                f"{self.shrink_s}, {self.grow_s}, {self.migrate_s}"
            )


# What a job has that does not say, `docs/job-file.md`.
DEFAULT_OVERHEADS = Overheads(
    launch_s=180, grow_s=180, shrink_s=90, migrate_s=300, interrupted_s=180
)
DEFAULT_CHECKPOINT_INTERVAL_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How a job saves its state.

    With a notice of at least `save_s` an interruption loses no work; without one it is charged
    the whole `interval_s` since the last checkpoint (the worst case).
    """

    interval_s: int
    save_s: int
    size_gb: float = 0.0
    location: str = ""

    def __post_init__(self) -> None:
        if self.interval_s < 0 or self.save_s < 0:
            raise ValueError("checkpoint.interval_s and checkpoint.save_s must be >= 0")
        if not (math.isfinite(self.size_gb) and self.size_gb >= 0):
            raise ValueError(f"checkpoint.size_gb must be finite and >= 0, was {self.size_gb}")

    def lost_s(self, notice_lead_s: int) -> int:
        """Seconds of work an interruption with this much notice throws away."""
        return 0 if notice_lead_s >= self.save_s else self.interval_s


# What a job has that does not say, in files and on the wire alike.
DEFAULT_CHECKPOINT = Checkpoint(interval_s=DEFAULT_CHECKPOINT_INTERVAL_S, save_s=120)
DEFAULT_TOPOLOGY = Topology.ONE_ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work with a deadline and a value; may start from `start_ns`.

    `allowed_counts` are the instance counts it can run on, ascending (gangs, batch divisibility).
    `offerings` restricts it to these offering ids or instance types; empty means any that has a
    throughput. `value_micro_usd` is what finishing on time is worth; `budget_micro_usd` (0: none)
    bounds what may be spent, and `on_limit` says what follows (None: `domain/limits/judgement.py`
    chooses by its deadline; without limits it waits). `configuration` says
    how it is run where Spotline filled that in. Its program is started again after a failure
    `retries` times; with `awaits_exit` done work finishes it only once its program has ended.
    `run` says how Spotline runs that program (None: somebody else does), `egress_budget_micro_usd`
    (0: none stated) bounds what copying its checkpoints may cost. With `value_from_quote` its owner states
    no value: the server that takes it sets value and budget from the on-demand quote, and keeps that
    in `on_demand_quote_micro_usd` (0: none was needed).
    """

    job_id: str
    tenant: str
    client_request_id: str
    name: str
    work: Work
    deadline: Deadline
    value_micro_usd: int
    start_ns: int
    allowed_counts: tuple[int, ...]
    throughputs: tuple[Throughput, ...]
    topology: Topology
    checkpoint: Checkpoint
    overheads: Overheads
    offerings: tuple[str, ...] = ()
    budget_micro_usd: int = 0
    configuration: JobConfiguration | None = None
    retries: int = 0
    on_limit: OnLimit | None = None
    awaits_exit: bool = False
    run: Run | None = None
    egress_budget_micro_usd: int = 0
    value_from_quote: bool = False
    on_demand_quote_micro_usd: int = 0

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        for name in ("job_id", "tenant", "client_request_id"):
            if not getattr(self, name):
                yield f"{name} of a job must not be empty"
        counts = self.allowed_counts
        ascend = bool(counts) and counts[0] >= 1 and list(counts) == sorted(set(counts))
        if not ascend:
            yield f"allowed_counts must ascend from >= 1 without repeats, were {counts}"
        money = ("value_micro_usd", "budget_micro_usd", "egress_budget_micro_usd")
        for name in (*money, "on_demand_quote_micro_usd", "retries"):
            if getattr(self, name) < 0:
                yield f"{name} must be >= 0, was {getattr(self, name)}"
        if self.deadline.at_ns - self.start_ns < NS_PER_S:
            yield "deadline must lie after the job's start"
        if not self.throughputs:
            yield "throughputs must name at least one offering, instance type or *"
        for throughput in self.throughputs if ascend else ():
            yield from _rate_problems(throughput, counts)

    @property
    def max_instances(self) -> int:
        """The largest allowed count."""
        return self.allowed_counts[-1]

    @property
    def egress_cap_micro_usd(self) -> int | None:
        """What copying its checkpoints may cost over its life, None for no cap.

        Of a job that Spotline runs it is a tenth of the value where none is stated.
        """
        if self.egress_budget_micro_usd:
            return self.egress_budget_micro_usd
        return self.value_micro_usd // 10 if self.run is not None else None

    def throughput_on(self, offering_id: str, instance_type: str) -> Throughput | None:
        """The most specific throughput stated for an offering, None where it cannot run there."""
        if self.offerings and not {offering_id, instance_type} & set(self.offerings):
            return None
        for key in (offering_id, instance_type, "*"):
            for throughput in self.throughputs:
                if throughput.offering == key:
                    return throughput
        return None


def _rate_problems(throughput: Throughput, counts: tuple[int, ...]) -> Iterator[str]:
    try:
        if any(throughput.rate_per_hour(count) <= 0 for count in counts):
            yield f"throughput on {throughput.offering} must be > 0 for every allowed count"
    except ValueError as error:
        yield str(error)
