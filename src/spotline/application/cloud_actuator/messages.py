"""What the actuator's handler asks to have done: the calls it makes, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.application.cloud_actuator.log_fold import LogView
from spotline.domain.canonical import canonical_as
from spotline.domain.events.capacity import ProbeCommanded, ProvisioningCommanded
from spotline.domain.ledger.billing import SlotPrices
from spotline.domain.ledger.cooldowns import OfferingPlace
from spotline.domain.ledger.job_records import JobRecord
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.limits.raised import NewLimit
from spotline.domain.market.offering import CapacityType, Quote


@canonical_as("Moment", "slot slot_s offset_s ts_ns")
@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of the market: `offset_s` into a slot of `slot_s` seconds, at `ts_ns`."""

    slot: int
    slot_s: int
    offset_s: int
    ts_ns: int


@canonical_as("OpenSlotRequest", "at quotes unbilled", later="log")
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlotRequest:
    """Bill the slots that are over and show the cloud the new one.

    `log` is what the log says by now, which ledger and cloud are compared with; no part of its
    digest.
    """

    at: Moment
    quotes: tuple[Quote, ...]
    unbilled: tuple[SlotPrices, ...]
    log: LogView | None = field(default=None, repr=False, compare=False)


@canonical_as("StoppedLaunch", "command_id capacity_type freeze_id detail yields", later="scope")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedLaunch:
    """A stop of buying stands against what a command launches; `yields` to hard deadlines."""

    command_id: str
    capacity_type: CapacityType
    freeze_id: str
    detail: str
    yields: bool
    scope: FreezeScope = FreezeScope.SYSTEM


@canonical_as(
    "ApplyRevisionRequest",
    "revision at prices commands last",
    later="places stops log urgent limits probes",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRevisionRequest:
    """Carry out a revision's commands and report. `last`: no later slot will bill this one.

    `places` are those of the offerings commanded, as far as known, `stops` what stands against
    launches, `log` what the log says by now, `urgent` the commands whose on-demand a deadline cannot
    wait for any longer, `limits` what people have set in the place of stated ones; they are no part of
    its digest. `probes` are launched behind all commands, and ended at once.
    """

    revision: int
    at: Moment
    prices: SlotPrices
    commands: tuple[ProvisioningCommanded, ...] = field(default=())
    last: bool = False
    places: tuple[OfferingPlace, ...] = field(default=(), repr=False)
    stops: tuple[StoppedLaunch, ...] = field(default=(), repr=False)
    log: LogView | None = field(default=None, repr=False, compare=False)
    urgent: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    limits: tuple[NewLimit, ...] = field(default=(), repr=False, compare=False)
    probes: tuple[ProbeCommanded, ...] = ()

    @property
    def replacing(self) -> frozenset[str]:
        """The commands whose releases wait for what is launched in their place."""
        return frozenset(each.command_id for each in self.commands if each.keep_until_granted)


@canonical_as("SignalRequest", "at revision", later="log")
@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest:
    """Learn what the cloud has to tell. `revision` is the slot's last one, -1 before the first.

    `log` is what the log says by now; no part of its digest.
    """

    at: Moment
    revision: int
    log: LogView | None = field(default=None, repr=False, compare=False)


@canonical_as("ReapRequest", "at request_id instance_ids by", later="log")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRequest:
    """End instances that belong to no job, because somebody asks for it."""

    at: Moment
    request_id: str
    instance_ids: tuple[str, ...]
    by: str
    log: LogView | None = field(default=None, repr=False, compare=False)


@canonical_as("AdmitRequest", "job_id tenant job_digest", later="record")
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitRequest:
    """Hold a submitted job in the ledger.

    `record` is the submission itself; it is no part of the digest.
    """

    job_id: str
    tenant: str
    job_digest: str
    record: JobRecord | None = field(default=None, repr=False)


@canonical_as("NoteJobRequest", "event_id job_id", later="record")
@dataclass(frozen=True, slots=True, kw_only=True)
class NoteJobRequest:
    """Hold in the ledger what became of a job; `record` is no part of the digest."""

    event_id: str
    job_id: str
    record: JobRecord | None = field(default=None, repr=False)
