"""What the actuator's handler asks to have done: the calls it makes, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.domain.canonical import canonical_as
from spotline.domain.events.capacity import ProvisioningCommanded
from spotline.domain.ledger.billing import SlotPrices
from spotline.domain.ledger.cooldowns import OfferingPlace
from spotline.domain.market.offering import CapacityType, Quote


@canonical_as("Moment", "slot slot_s offset_s ts_ns")
@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of the market: `offset_s` into a slot of `slot_s` seconds, at `ts_ns`."""

    slot: int
    slot_s: int
    offset_s: int
    ts_ns: int


@canonical_as("OpenSlotRequest", "at quotes unbilled")
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlotRequest:
    """Bill the slots that are over and show the cloud the new one."""

    at: Moment
    quotes: tuple[Quote, ...]
    unbilled: tuple[SlotPrices, ...]


@canonical_as("StoppedLaunch", "command_id capacity_type freeze_id detail yields")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedLaunch:
    """A stop of buying stands against what a command launches; `yields` to hard deadlines."""

    command_id: str
    capacity_type: CapacityType
    freeze_id: str
    detail: str
    yields: bool


@canonical_as("ApplyRevisionRequest", "revision at prices commands last", later="places stops")
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRevisionRequest:
    """Carry out a revision's commands and report. `last`: no later slot will bill this one.

    `places` are those of the offerings commanded, as far as known, `stops` what stands against
    launches; they are no part of its digest.
    """

    revision: int
    at: Moment
    prices: SlotPrices
    commands: tuple[ProvisioningCommanded, ...] = field(default=())
    last: bool = False
    places: tuple[OfferingPlace, ...] = field(default=(), repr=False)
    stops: tuple[StoppedLaunch, ...] = field(default=(), repr=False)


@canonical_as("SignalRequest", "at revision")
@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest:
    """Learn what the cloud has to tell. `revision` is the slot's last one, -1 before the first."""

    at: Moment
    revision: int


@canonical_as("AdmitRequest", "job_id tenant job_digest")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitRequest:
    """Hold a submitted job in the ledger."""

    job_id: str
    tenant: str
    job_digest: str
