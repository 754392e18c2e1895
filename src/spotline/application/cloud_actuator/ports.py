"""What the actuator needs from outside: a cloud that sells instances, and a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spotline.application.cloud_actuator.agreed_mark import AgreedMark
from spotline.application.cloud_actuator.messages import Moment
from spotline.contracts.errors import SpotlineError
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import Charge, HeldInterval
from spotline.domain.ledger.bills import InstanceBill, Settlement
from spotline.domain.ledger.cooldowns import Cooldown, CooldownKey
from spotline.domain.ledger.instance_life import InstanceLife, Transition
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult
from spotline.domain.ledger.job_records import JobRecord
from spotline.domain.market.offering import CapacityType


class OwnerFenced(SpotlineError):
    """Another process has taken over this owner's ledger and instances: stop at once."""

    def __init__(self, owner: Owner, epoch: int) -> None:
        super().__init__(
            f"{owner.name}: epoch {owner.epoch} is over, epoch {epoch} has taken over; "
            "stop this process, the newer one goes on"
        )
        self.epoch = epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose instances: a partition's name, and the epoch of the process that acts for it."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """Instances to launch, tagged with owner, job, token and installation (empty: it has no id).

    `allowed_counts` are how many of them are of use, ascending; empty: any. A cloud that launches for
    real releases at once what makes no such count; one that is played need not.
    """

    token: str
    owner: Owner
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    instances: int
    at: Moment
    installation_id: str = ""
    allowed_counts: tuple[int, ...] = ()

    @property
    def useful_counts(self) -> tuple[int, ...]:
        """All counts that are of use, ascending: what was asked for is one of them."""
        asked = self.instances
        if not self.allowed_counts:
            return tuple(range(1, asked + 1))
        return (*(count for count in self.allowed_counts if 0 < count < asked), asked)


class InstanceState(Enum):
    """What a cloud shows of an instance.

    `PENDING` was granted and does not run yet; `STOPPING` was asked to end, by us or by the cloud;
    `ENDED` costs nothing any more, and never comes back.
    """

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance as its cloud shows it. `ready_ns` is market time; billing began before.

    `installation_id` is the tag of the installation that launched it, empty for none. `hold` says
    that it carries the tag `spotline-hold`: it is never ended as an orphan.
    """

    instance_id: str
    token: str
    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    ready_ns: int
    state: InstanceState = InstanceState.RUNNING
    installation_id: str = ""
    hold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a cloud did not grant all: the class decides the reaction, `detail` are its own words.

    `retry_after_s` are the seconds that the cloud itself asks us to wait, 0 if it names none. With
    `spot_only` a missing permission is about spot alone: on-demand may still be bought there.
    """

    refusal_class: RefusalClass
    detail: str
    retry_after_s: int = 0
    spot_only: bool = False

    def __post_init__(self) -> None:
        if self.retry_after_s < 0:
            raise ValueError(f"retry_after_s must be >= 0, was {self.retry_after_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a launch got: as many instances as requested, or fewer and the refusal of the rest.

    The instances are in the state that they had when they were granted. `released` were launched,
    too, and made no count that is allowed: their end has been asked for.
    """

    instances: tuple[Instance, ...]
    refusal: Refusal | None = None
    released: tuple[Instance, ...] = ()


class CloudEventKind(Enum):
    """What a cloud tells of an instance.

    It will be taken back, it will not be after all, or its state changed.
    """

    NOTICE = "notice"
    WITHDRAWN = "withdrawn"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """Something that a cloud tells of one of its instances.

    Parameters
    ----------
    event_id
        The same each time the cloud tells it.
    state
        That of the instance since then.
    at_ns
        Market time at which it happened.
    lead_s
        Of a notice: seconds from `at_ns` until the cloud takes the instance back.
    interruption
        Why the cloud takes or took it; None where it is not the cloud that ends it.
    """

    event_id: str
    instance: Instance
    kind: CloudEventKind
    state: InstanceState
    at_ns: int
    lead_s: int = 0
    interruption: InterruptionKind | None = None


class Enrolment(Protocol):
    """Makes what an instance needs to join, for clouds that start one instance at a time."""

    def user_data(self, *, instance_id: str, job_id: str, tenant: str) -> Mapping[str, str]:
        """Make the variables of the agent's environment, `SPOTLINE_*`.

        They hold a token for this one instance, which can be used once, and no lasting secret.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledInstance:
    """An instance that has ended, as far as a biller needs it."""

    instance_id: str
    offering_id: str
    capacity_type: CapacityType


class InstanceBiller(Protocol):
    """Says what instances cost in the end, by the rules that their provider bills by."""

    async def final_costs(self, instances: Sequence[BilledInstance]) -> Sequence[Settlement]:
        """What each of these cost in all; the same when it is asked again.

        One of which that is not known, or not yet, is left out.

        Raises
        ------
        ProviderUnavailable
            The provider does not answer, or is throttled: ask again later.
        """
        ...


class CloudClock(Protocol):
    """The present moment in market time.

    Of a market that is played it is the moment of the call in hand; of a live one it is derived
    from the wall clock.
    """

    def now_ns(self) -> int:
        """Nanoseconds of market time; it never goes back."""
        ...


class CloudProvider(Protocol):
    """A cloud that sells instances.

    Every method may raise `ProviderUnavailable` or `Throttled`: call again. A throttled launch may
    instead be a refusal of class `THROTTLED` where the cloud answers so.
    """

    @property
    def notice_lead_s(self) -> int:
        """Seconds between a notice and the loss that the cloud guarantees; 0 if none."""
        ...

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch up to `request.instances`. Idempotent by token: the first grant is the answer.

        A refusal is a value: `Grant.refusal`, which is there where fewer were granted. One of class
        `THROTTLED` or `SERVER` leaves the token unused: ask again with it. The same token with
        other parameters is refused as `TOKEN_MISMATCH`.

        Raises
        ------
        UnknownOutcome
            It was sent and no answer came: look it up by token and tag, never send a new token.
        OwnerFenced
            A newer epoch of the owner has been seen; only a cloud that can fence raises it.
        """
        ...

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for the end of instances; that they have ended is seen in `list` or `events`.

        Idempotent. Ids that are unknown or another owner's are no error and prove nothing.

        Raises
        ------
        OwnerFenced
            A newer epoch of the owner has been seen; only a cloud that can fence raises it.
        """
        ...

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What the cloud shows now of the instances that carry the owner's tag, in launch order.

        Eventually consistent: a fresh launch may be missing. Ended ones are shown for a while. Where
        a part of the cloud does not answer it is a `PartialListing` (`listings`).
        """
        ...

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """Take the notices and state changes that came since those taken before.

        Each comes at least once where the cloud tells it at all; in no order, maybe twice, maybe
        never. Idempotent by `token`: asked again with the same one, the cloud says the same. A
        cloud whose time is played also tells what happens next after `at` within its slot: all that
        happens at that one moment.
        """
        ...

    async def pushed(self) -> None:
        """Return when `events` has something new to tell, maybe sooner.

        A cloud that never pushes waits without end.
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
    `transitions` are in the order in which they came to be: each is a row of the history, and the
    last of a subject is what `lives` then says of it. `cooldowns` replace those of the same scope
    and key; `warmed` are taken away. `taken` are the ids of cloud events that are dealt with.
    """

    call_key: str = ""
    slot: int = 0
    answers: tuple[Event, ...] = ()
    results: tuple[IntentResult, ...] = ()
    launched: tuple[LedgerLaunch, ...] = ()
    ended: tuple[LedgerEnd, ...] = ()
    noticed: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()
    transitions: tuple[Transition, ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    warmed: tuple[CooldownKey, ...] = ()
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A submitted job as the ledger holds it; `digest` is that of what was submitted.

    `slot` and `ts_ns` (0: not said) are when, in market time. A job id is admitted once: the first
    admission stands. `record` is what the log said, to be held with it.
    """

    job_id: str
    tenant: str
    digest: str
    slot: int = 0
    ts_ns: int = 0
    record: JobRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIntent:
    """An intent as the ledger holds it; `result` is None while it is pending."""

    intent: Intent
    result: IntentResult | None = None


class Ledger(Protocol):
    """The authority on spend: every command that can cost money, before and after.

    Writes are atomic, idempotent by key, and raise `OwnerFenced` when a newer epoch exists. What is
    written is stored when the call returns. All may raise `LedgerDamaged`, where a row is not what
    was written, and `ProviderUnavailable`, where the database does not answer.
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

    async def lives(self) -> Sequence[InstanceLife]:
        """All instances and launches that have not ended, in the order they were first recorded."""
        ...

    async def lives_of(self, subjects: Sequence[str]) -> Mapping[str, InstanceLife]:
        """Those of these instance ids and tokens that were ever recorded, ended ones too."""
        ...

    async def cooldowns(self) -> Sequence[Cooldown]:
        """All cool-downs, over or not, ordered by scope and key."""
        ...

    async def taken(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Those of these cloud events that were dealt with before."""
        ...

    async def latest_ns(self) -> int:
        """The latest market time of any transition or intent, 0 if there is none."""
        ...

    async def latest_slot(self) -> int:
        """The latest slot in which anything was commanded or answered, -1 if there is none."""
        ...

    async def check_epoch(self) -> None:
        """Raise `OwnerFenced` when a newer epoch exists: a read, before each call of a cloud."""
        ...

    async def admit(self, admissions: Sequence[Admission]) -> None:
        """Hold these jobs, as one transaction; those held already stay as they are."""
        ...

    async def note_jobs(self, records: Sequence[JobRecord]) -> None:
        """Hold what the log says of jobs, as one transaction; idempotent by event id."""
        ...

    async def job_records(self) -> Sequence[JobRecord]:
        """What the log said of jobs, in the order in which it was noted."""
        ...

    async def admitted_ids(self) -> Sequence[str]:
        """The ids of all jobs that are held, in order."""
        ...

    async def charges_since(self, slot: int) -> Sequence[Charge]:
        """The charges of `slot` and later ones, by slot, job, offering, capacity type and start."""
        ...

    async def agreed(self) -> AgreedMark | None:
        """Up to where the log was last seen to have all that the ledger holds of jobs and costs."""
        ...

    async def note_agreed(self, mark: AgreedMark) -> None:
        """Hold up to where the two were seen to agree, in place of what was held before."""
        ...

    async def raise_epoch(self, epoch: int) -> None:
        """Go on as the same owner at `epoch`, which is later than ours; `owner` is that one then."""
        ...

    async def admitted(self, job_ids: Sequence[str]) -> Mapping[str, Admission]:
        """Those of these jobs that are held: with another digest, it is another submission's."""
        ...

    async def bills(self, job_id: str = "") -> Sequence[InstanceBill]:
        """The bill of every instance that was charged or settled, or of one job's, by instance id."""
        ...

    async def settled(self, instance_ids: Sequence[str]) -> frozenset[str]:
        """Those of these instances of which somebody said what they cost in the end."""
        ...

    async def unsettled(self, since_ns: int) -> Sequence[BilledInstance]:
        """Instances that have ended since then, and of which nobody said what they cost, by id."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record what instances cost in the end, as one transaction.

        Idempotent: of one source the latest word counts, and the provider's outweighs our own.
        """
        ...

    async def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        ...

    async def record(self, entry: LedgerEntry) -> None:
        """Record what was done."""
        ...
