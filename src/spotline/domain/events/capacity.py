"""Events of provisioning: what is commanded, held, lost and paid: `capacity.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.canonical import canonical_as
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.market.offering import CapacityType


class InterruptionKind(Enum):
    """Why the provider takes an instance back."""

    CAPACITY_RECLAIMED = "capacity_reclaimed"
    INSTANCE_FAILED = "instance_failed"


class RefusalClass(Enum):
    """Why a launch was refused, which is what decides the reaction; see `capacity.proto`."""

    NO_CAPACITY = "no_capacity"
    QUOTA = "quota"
    UNSUPPORTED = "unsupported"
    UNAUTHORISED = "unauthorised"
    THROTTLED = "throttled"
    SERVER = "server"
    NETWORK = "network"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - a class of refusals
    UNKNOWN_OUTCOME = "unknown_outcome"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """The cloud granted fewer instances than a command asked for.

    `detail` are the provider's words. Nothing is asked for again before `retry_after_s` seconds
    have passed. `refusal_class` is None in logs from before 0.3.0. `limit_scope` is for what the limit
    of ours holds that refused it: it says nothing of the cloud, nor of others; None: none did, or it
    was not said.
    """

    command_id: str
    job_id: str
    tenant: str
    offering_id: str
    capacity_type: CapacityType
    slot: int
    requested: int
    granted: int
    detail: str
    refusal_class: RefusalClass | None = None
    retry_after_s: int = 0
    limit_scope: FreezeScope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySignalled:
    """The cloud has something to say between two revisions, at `offset_s` into the slot."""

    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNoticed:
    """The cloud will take these instances back `lead_s` seconds after `offset_s` into the slot."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int
    lead_s: int
    kind: InterruptionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionWithdrawn:
    """The cloud has taken its notice back: these instances stay."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLost:
    """Instances are gone without our asking."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesEnded:
    """Instances that were released, and took a while to end, have ended; this was seen then."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReported:
    """What every job holds after the commands of a revision were carried out.

    `offset_s` is the moment inside the slot the report describes. `settled` says that nothing is
    left to decide in this slot: no launch was refused and no instance lost since the decision.
    """

    slot: int
    revision: int
    offset_s: int
    settled: bool
    holdings: tuple[JobHolding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAccrued:
    """The bill of one lot over part of a slot; with 0 instances, that of copying a checkpoint.

    Of an `estimated` one nobody saw until when the instances were held: it is charged until their
    leases ended.
    """

    job_id: str
    tenant: str
    offering_id: str
    quota_pool: str
    capacity_type: CapacityType
    slot: int
    instances: int
    held_s: int
    price_micro_usd: int
    cost_micro_usd: int
    estimated: bool = False


@canonical_as(
    "ProvisioningCommanded",
    "command_id job_id tenant quota_pool slot revision offset_s target transfer_cost_micro_usd",
    later="excepted_on_demand quote_left_micro_usd keep_until_granted",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningCommanded:
    """Bring what a job holds of one offering to these counts.

    `transfer_cost_micro_usd` is what copying its checkpoint there costs, where it moves. Its hard
    deadline needs `excepted_on_demand` instances: they are launched even against a stop or a limit
    that yields to deadlines. `quote_left_micro_usd` is what is left of its quote before. With
    `keep_until_granted` what is launched replaces what is released, and of that as many are kept as
    are not granted.
    """

    command_id: str
    job_id: str
    tenant: str
    quota_pool: str
    slot: int
    revision: int
    offset_s: int
    target: Lot
    transfer_cost_micro_usd: int = 0
    excepted_on_demand: int = 0
    quote_left_micro_usd: int = 0
    keep_until_granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecided:
    """All commands of this revision are out.

    `fairness_cost_micro_usd` is what fairness between tenants cost all jobs together in it.
    """

    slot: int
    revision: int
    offset_s: int
    commands: int
    fairness_cost_micro_usd: int = 0


@canonical_as(
    "ProbeCommanded",
    "command_id job_id tenant quota_pool slot revision offset_s offering_id instances "
    "gain_micro_usd price_micro_usd",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCommanded:
    """Ask an offering for spot, and end at once what is granted: only the answer is of use.

    `job_id` is whose move it serves, and who pays. It expects to gain `gain_micro_usd` by the answer,
    which costs at most `price_micro_usd`.
    """

    command_id: str
    job_id: str
    tenant: str
    quota_pool: str
    slot: int
    revision: int
    offset_s: int
    offering_id: str
    instances: int
    gain_micro_usd: int
    price_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingProbed:
    """What a probe was granted, ended by now, and what it cost.

    Where that is less than requested, `refusal_class` says why, and `detail` are the provider's
    words. Nothing is asked for again before `retry_after_s` seconds have passed.
    """

    command_id: str
    job_id: str
    tenant: str
    offering_id: str
    slot: int
    requested: int
    granted: int
    cost_micro_usd: int
    refusal_class: RefusalClass | None = None
    detail: str = ""
    retry_after_s: int = 0
