"""What the actuator needs from outside: a cloud that sells instances, and a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spotline.application.cloud_actuator.messages import Moment
from spotline.contracts.errors import SpotlineError
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import Charge, HeldInterval
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult
from spotline.domain.market.offering import CapacityType, Quote


class ActuatorMode(Enum):
    """How much the actuator may do.

    `OBSERVE` ledgers every command and refuses it, `SHADOW` executes against the simulated cloud
    whatever the market is, `LIVE` against the configured cloud.
    """

    OBSERVE = "observe"
    SHADOW = "shadow"
    LIVE = "live"


class OwnerFenced(SpotlineError):
    """Another process has taken over this owner's ledger and instances: stop at once."""

    def __init__(self, owner: Owner, epoch: int) -> None:
        super().__init__(
            f"{owner.name}: epoch {owner.epoch} is over, epoch {epoch} has taken over; "
            "stop this process, the newer one goes on"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose instances: a partition's name, and the epoch of the process that acts for it."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """Instances to launch, tagged with owner, job and token."""

    token: str
    owner: Owner
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    instances: int
    at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A running instance as its cloud knows it. `ready_ns` is market time; billing began before."""

    instance_id: str
    token: str
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    ready_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a launch got: as many instances as requested, fewer, or none, and why fewer."""

    instances: tuple[Instance, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSignal:
    """The cloud takes `instance` back, noticed at `noticed_s` and gone at `lost_s` into the slot.

    `announced` says that its notice was given when the slot was observed.
    """

    instance: Instance
    kind: InterruptionKind
    noticed_s: int
    lost_s: int
    announced: bool = False


class CloudProvider(Protocol):
    """A cloud that sells instances. Every method may raise `ProviderUnavailable`: call again."""

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice given by `observe` and the loss."""
        ...

    async def observe(self, at: Moment, quotes: Sequence[Quote]) -> Sequence[Instance]:
        """Tell the cloud that a slot opened; return the instances it now wants back.

        Idempotent per slot. A real cloud knows its market and returns none.
        """
        ...

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch up to `request.instances`. Idempotent by token: the first grant is the answer.

        Raises
        ------
        OwnerFenced
            A newer epoch of the owner has been seen.
        """
        ...

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """End instances. Idempotent: those gone or never known are ended.

        Raises
        ------
        OwnerFenced
            A newer epoch of the owner has been seen.
        """
        ...

    async def list_instances(self, owner_name: str) -> Sequence[Instance]:
        """All running instances that carry the owner's tag, in launch order."""
        ...

    async def signals(self, token: str, at: Moment) -> Sequence[CloudSignal]:
        """What the cloud takes back next, after `at` in its slot: all that go at one moment.

        Idempotent by `token`: asked again with the same one, it says the same.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLaunch:
    """A granted instance, held from `slot`, `offset_s` on for one attempt at a command."""

    instance: Instance
    command_id: str
    attempt: int
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEnd:
    """An instance is held no more from `slot`, `offset_s` on; `reason` is released, lost, ..."""

    instance_id: str
    slot: int
    offset_s: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Everything one step of the actuator did, written as one transaction.

    `call_key` and `answers` (if there is a key) are what performing that call again returns.
    """

    call_key: str = ""
    slot: int = 0
    answers: tuple[Event, ...] = ()
    results: tuple[IntentResult, ...] = ()
    launched: tuple[LedgerLaunch, ...] = ()
    ended: tuple[LedgerEnd, ...] = ()
    noticed: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIntent:
    """An intent as the ledger holds it; `result` is None while it is pending."""

    intent: Intent
    result: IntentResult | None = None


class Ledger(Protocol):
    """The authority on spend: every command that can cost money, before and after.

    Writes are atomic, idempotent by key, and raise `OwnerFenced` when a newer epoch exists. What is
    written is stored when the call returns.
    """

    @property
    def owner(self) -> Owner:
        """Whose ledger this is, at the epoch of this process."""
        ...

    async def answers(self, call_key: str) -> tuple[Event, ...] | None:
        """What a call was answered, None if it was never finished."""
        ...

    async def intents(self, command_ids: Sequence[str]) -> Mapping[str, LedgerIntent]:
        """The latest attempt at each of these commands that has any."""
        ...

    async def pending(self) -> Sequence[Intent]:
        """Intents without a result, in the order they were written."""
        ...

    async def held(self) -> Sequence[HeldInstance]:
        """What we hold, in launch order."""
        ...

    async def intervals(self, slot: int, slot_s: int) -> Sequence[HeldInterval]:
        """Who held what when inside a slot."""
        ...

    async def spend_by_job(self) -> Mapping[str, int]:
        """Micro-USD charged so far, by job."""
        ...

    async def launches_since(self, ts_ns: int) -> int:
        """Instances we set out to launch after `ts_ns` of market time."""
        ...

    async def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        ...

    async def record(self, entry: LedgerEntry) -> None:
        """Record what was done."""
        ...
