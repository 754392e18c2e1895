"""What a policy sees, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.solvers.value_table import ValueTable

Memory = tuple[int, ...]
START: Memory = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowForecast:
    """Predicted price (micro-USD per instance-hour) and spot count for steps 1, 2, ... ahead.

    `spot_available` is the median of the forecast's distribution: on all-or-nothing capacity a
    mean is a count that never occurs.
    """

    spot_price: tuple[int, ...]
    spot_available: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.spot_price) != len(self.spot_available):
            raise ValueError(
                "spot_price and spot_available must have one length, had "
                f"{len(self.spot_price)} and {len(self.spot_available)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a job's life is worth from here on: its value table, and where the market is in it."""

    table: ValueTable
    run_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """All a policy may know when it decides one slot of one job.

    `elapsed_slots` counts slots of the job's life before this one. `state` is where the job
    stands now, with what it held until now; `interrupted` says that some of its spot is gone, and
    then `state` is what that left of its work (`JobProgress.fallen`).
    Prices are micro-USD per instance-hour, counts what this job may still take. `slot_left_s` is
    shorter than the slot when a decision is made inside it. `spot_firm` says that spot taken now
    stays for the slot; otherwise the safety net credits it with nothing. `outlook` is None until
    the job's value table is ready.

    `reserve_slots` is for how many slots a launch of on-demand may stay out of stock (0: there is
    always some); a stock-out hits launches, never what is held. `rescue_instances` is the count
    that on-demand is ever in stock for, 0 for the job's largest. `nets_soft_deadlines` says that the
    safety net guards a soft deadline too, whatever the policy says of it.
    """

    program: JobProgram
    elapsed_slots: int
    state: JobProgress
    interrupted: bool
    spot_price: int
    on_demand_price: int
    spot_available: int
    on_demand_available: int
    forecast: WindowForecast | None
    slot_left_s: int
    spent_micro_usd: int = 0
    spot_firm: bool = True
    outlook: Outlook | None = None
    reserve_slots: int = 0
    rescue_instances: int = 0
    nets_soft_deadlines: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to hold for the rest of the slot, and what to remember until the next."""

    holding: Holding
    memory: Memory = START


class Policy(Protocol):
    """A rule for one job, one slot at a time. Pure: equal views and memories, equal choices.

    The choice may ask for more than there is or break the deadline: `decide_slot` makes it
    feasible, sizes the last slot and applies the safety net.
    """

    @property
    def policy_id(self) -> str:
        """Unique name, with parameters."""
        ...

    @property
    def needs_forecast(self) -> bool:
        """Whether the policy cannot decide without one."""
        ...

    @property
    def nets_soft_deadlines(self) -> bool:
        """Whether the safety net also guards a soft deadline (a hard one always is)."""
        ...

    @property
    def forecast_slots(self) -> int:
        """How many slots of a forecast the policy looks at, 0 for none."""
        ...

    @property
    def uses_table(self) -> bool:
        """Whether the policy looks into the job's value table."""
        ...

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Choose for this slot; `memory` is `START` in a job's first."""
        ...
