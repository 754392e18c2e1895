"""What was rebuilt from a bill: the jobs behind it, what else is on it, and what could not be told.

Readers of bills make these; whoever says what else the jobs would have cost reads nothing but them.
Money is integer micro-units of `RebuiltBill.currency`, net of refunds and credits unless it says
otherwise; times are whole seconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class BoughtAs(Enum):
    """How an instance run was bought."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"
    COMMITTED = "committed"


class Rebuilding(Enum):
    """By what the runs of a job were put together."""

    HISTORY = "history"
    TAG = "tag"
    OVERLAP = "overlap"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiredMachine:
    """What a job ran on. `zone` is "" where the bill names none; `gpus` is 0 where nobody knows."""

    provider: str
    region: str
    zone: str
    instance_type: str
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRun:
    """One instance from its first billed second to its last.

    `paid` is what the bill asks for it, discounts, credits and refunds taken off; `list_price` is the
    on-demand list price per instance-hour, 0 where the bill names none. Where it was `COMMITTED`,
    `paid` is the share of the commitment that it used.
    """

    instance_id: str
    machine: HiredMachine
    purchase: BoughtAs
    begin_s: int
    end_s: int
    paid_micro: int
    list_price_micro: int
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def seconds(self) -> int:
        """Seconds for which it was billed."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltJob:
    """A job that the runs tell of: so many instances at once, over so much time.

    `instances` were held together while it worked; `work_s` are the seconds in which they all were,
    what it would take without an interruption. `begin_s` to `end_s` also spans waits between runs.
    `restarts` counts how often runs of it ended and others took their place. `egress_micro` is what
    the bill asks for its traffic and disks, `failed_micro` what was paid for runs that ended too soon
    to have done anything (launches that failed); both are part of `paid_micro`. So is `committed_micro`,
    what was paid for the share `committed_ppm` of its instance-time that ran on commitments, and
    `spot_micro` for the share `spot_share_ppm` on spot, which by its list price, where one is known,
    would have been `spot_listed_micro`.
    """

    job_id: str
    owner: str
    machine: HiredMachine
    instances: int
    begin_s: int
    end_s: int
    work_s: int
    restarts: int
    paid_micro: int
    list_price_micro: int
    egress_micro: int = 0
    failed_micro: int = 0
    rebuilt_by: Rebuilding = Rebuilding.TAG
    spot_share_ppm: int = 0
    spot_micro: int = 0
    spot_listed_micro: int = 0
    committed_ppm: int = 0
    committed_micro: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFinding:
    """Something on the bill that is not a job, or that made one uncertain, and what it amounts to.

    `kind` is one of a closed list (`refund`, `credit`, `savings_plan`, `unused_commitment`,
    `shared_node`, `untagged`, `other_currency`, `clock_change`, `open_run`, ...); `what` says it to people
    in one sentence, with what was done about it.
    """

    kind: str
    rows: int
    micro: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPriceSeries:
    """Spot prices of a kind of machine in a zone: change points, ascending.

    `prices_micro[i]`, per instance-hour, holds from `times_s[i]` until the next.
    """

    machine: HiredMachine
    times_s: tuple[int, ...]
    prices_micro: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltBill:
    """A whole bill: `paid_micro` = jobs + commitments left unused + what is `apart`.

    `unused_micro` was paid for commitments that nothing used; `apart_micro` for what is no job
    (other services, machines without GPUs, untagged runs that overlap nothing), each with a finding.
    """

    source: str
    currency: str
    begin_s: int
    end_s: int
    paid_micro: int
    unused_micro: int
    apart_micro: int
    jobs: Sequence[RebuiltJob]
    findings: Sequence[BillFinding]
    prices: Sequence[SpotPriceSeries] = ()
