"""What is asked of the stateless allocation and what it answers, as frozen values.

A value maps to the message of the same name, or to the one its `message_name` says. Money is
micro-USD, times nanoseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spotline.domain.beliefs.probes import ProbeOdds, ProbeWorth
from spotline.domain.crowd.tenants import SlotFairness, TenantWeight
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason, JobAnswer, SpotWorth
from spotline.domain.solvers.table_spec import TableUse
from spotline.domain.units import PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotStay:
    """How long spot of an offering lasts: its law by name, where it is in that, and its shadow price.

    Spot of the slots to come is taken to cost `spot_surcharge_micro_usd` per instance-hour more than
    its price.
    """

    law_id: str
    run_state: int
    spot_surcharge_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An offering that a job could move to, with its value table there or, without one, a `stay`.

    Where jobs are served in turn nothing is valued, and it has neither.

    Moving takes `migrate_s` seconds without progress (more where more is pending) and
    `move_cost_micro_usd` for copying the checkpoint. Where nobody publishes what spot is there, none is
    with a chance of `spot_risk_ppm`; `probe` is what asking for it would tell, None where none may.
    """

    offering_id: str
    instance_type: str
    table_use: TableUse | None
    migrate_s: int
    move_cost_micro_usd: int
    on_demand_reserve_slots: int = 0
    rescue_instances: int = 0
    notice_lead_s: int | None = None
    spot_risk_ppm: int = 0
    probe: ProbeOdds | None = None
    stay: SpotStay | None = None

    def __post_init__(self) -> None:
        if self.table_use is not None and self.stay is not None:
            raise ValueError("an alternative must not have both table_use and stay")
        if not 0 <= self.spot_risk_ppm <= PPM:
            raise ValueError(f"spot_risk_ppm must lie in 0..{PPM}, was {self.spot_risk_ppm}")
        if self.migrate_s < 0 or self.move_cost_micro_usd < 0:
            raise ValueError(
                f"migrate_s and move_cost_micro_usd must be >= 0, were "
                f"{self.migrate_s}, {self.move_cost_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQuota:
    """The instances that all tasks together may hold of a quota pool, and its offerings, by id."""

    quota_pool: str
    instances: int
    offering_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ValueError(f"instances of {self.quota_pool} must be >= 0, was {self.instances}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """A job as it stands when a slot is decided.

    `first_slot_start_ns` is the origin of the job's slot grid, `elapsed_slots` its slots before
    this one. `holding` is what it holds now, after interruptions; `spot_firm` says that spot taken
    now stays for the rest of the slot. `table_use` is None in its first slot, and
    `alternatives` are offerings it may move to. For `on_demand_reserve_slots` (0: on-demand is
    always there) and `rescue_instances` see `PolicyView`. A loss without notice throws away
    `unsaved_quanta` of the progress; `notice_lead_s` is that of the offering. Where buying is
    stopped, it may hold no more than `most_spot` and `most_on_demand` (None: no such bound). At home
    `excepted_on_demand` instances count in no quota: its deadline needs them.
    """

    job: Job
    policy_id: str
    offering_id: str
    instance_type: str
    first_slot_start_ns: int
    elapsed_slots: int
    progress_quanta: int
    holding: Lot
    interrupted: bool
    pending_overhead_s: int
    spent_micro_usd: int
    memory: tuple[int, ...]
    spot_firm: bool
    table_use: TableUse | None = None
    alternatives: tuple[Alternative, ...] = ()
    on_demand_reserve_slots: int = 0
    rescue_instances: int = 0
    unsaved_quanta: int = 0
    notice_lead_s: int | None = None
    most_spot: int | None = None
    most_on_demand: int | None = None
    excepted_on_demand: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest:
    """Decide one slot for several jobs, in their order, each on what those before it left.

    With `clearing` all jobs bid, and all bids are cleared together. Of an offering among
    `reclaimed_offering_ids` there was less spot, when the slot opened, than jobs held: whose spot
    falls there was interrupted; elsewhere it yields. With `strict_reclaims` bids count on that also
    where a job falls of its own accord. With `nets_soft_deadlines` the safety net guards soft
    deadlines too where a table counts on a shadow price, and others take of the spot there is. With `brief_search` the search for a better
    clearing ends after a tenth of the work. With `keeps_spot` a job yields spot that it holds only where
    others gain clearly more by it. With `serves_in_turn` jobs do not bid where no tenant weighs more than others and
    the limits on all allow what is served: tasks are served in their order (`turns`). With
    `late_on_spot` what is late runs on spot that no other job has use for, where that is worth more than
    on demand (`late`).

    With `tenant_weights` bids count by tenant, and the answer says what that costs.

    Where bids are cleared, all tasks together hold no more of quota pools than `quotas` say, and what
    they hold costs no more than `budget_micro_usd` until the slot is over, at the dearest prices that
    anybody says, copies of checkpoints included (None: no such bound).

    `reason` says why there is no forecast, or why it is decided again; otherwise it is `POLICY`.
    `laws` are those that the tasks' value tables are solved on. `taken` is what jobs served before
    got, where this is a part of a request.
    """

    slot: int
    revision: int
    offset_s: int
    slot_s: int
    quotes: tuple[SlotQuote, ...]
    forecast: ForecastIssued | None
    reason: DecisionReason
    tasks: tuple[JobTask, ...]
    laws: tuple[NamedLaw, ...] = ()
    taken: tuple[Lot, ...] = ()
    clearing: bool = False
    reclaimed_offering_ids: tuple[str, ...] = ()
    tenant_weights: tuple[TenantWeight, ...] = ()
    quotas: tuple[PoolQuota, ...] = ()
    budget_micro_usd: int | None = None
    strict_reclaims: bool = False
    nets_soft_deadlines: bool = False
    brief_search: bool = False
    keeps_spot: bool = False
    serves_in_turn: bool = False
    late_on_spot: bool = False

    def __post_init__(self) -> None:
        if self.slot_s < 1:
            raise ValueError(f"slot_s must be >= 1, was {self.slot_s}")
        if not 0 <= self.offset_s < self.slot_s:
            raise ValueError(f"offset_s must lie in 0..{self.slot_s - 1}, was {self.offset_s}")
        if (self.budget_micro_usd or 0) < 0:
            raise ValueError(f"budget_micro_usd must be >= 0, was {self.budget_micro_usd}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateAnswer:
    """One answer per task, in order; `request_digest` is the SHA-256 of what was asked.

    `spot_worth` is what scarce spot was worth to all of them, by offering id, where bids were cleared,
    `fairness` what weights of tenants cost, None where there were none. `probe_worths` is what asking
    would be worth where a probe may be sent, by job and offering.
    """

    message_name: ClassVar[str] = "AllocateResponse"

    answers: tuple[JobAnswer, ...]
    request_digest: str = ""
    spot_worth: tuple[SpotWorth, ...] = ()
    fairness: SlotFairness | None = None
    probe_worths: tuple[ProbeWorth, ...] = ()
