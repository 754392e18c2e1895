"""What is asked about the system and what is answered, as frozen values: `operations_service.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spotline.application.market_view import ClockReading
from spotline.application.paging import PagedQuery
from spotline.domain.events.agreement import AgreementChecked, OrphanFound
from spotline.domain.events.limits import LimitKind, LimitReached, LimitSet
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked
from spotline.domain.limits.freezes import Freeze, FreezeScope
from spotline.domain.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is as it should be, or not.

    `continue_with` is the command that continues, or where to look; it may be empty.
    """

    name: str
    healthy: bool
    detail: str
    continue_with: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How a service is; `heard_s_ago` is -1 where it was never heard."""

    service: str
    ready: bool
    heard_s_ago: int
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """How the system is."""

    message_name: ClassVar[str] = "GetSystemStatusResponse"

    healthy: bool
    services: tuple[ServiceStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    parked: int = 0
    agreement: AgreementChecked | None = None
    orphans: int = 0
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedQuery(PagedQuery):
    """Ask for parked entries: of a service, about a job (empty: any); `with_content`: as JSON."""

    message_name: ClassVar[str] = "ListParkedRequest"

    service: str = ""
    job_id: str = ""
    with_content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEntry:
    """A parked entry; `content_json` is empty where it was not asked for, or is gone."""

    parked: EntryParked
    content_json: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedPage:
    """Parked entries, oldest first."""

    message_name: ClassVar[str] = "ListParkedResponse"

    entries: tuple[ParkedEntry, ...] = ()
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop buying for a scope."""

    message_name: ClassVar[str] = "PauseRequest"

    request_id: str
    scope: FreezeScope
    key: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Buying stops."""

    message_name: ClassVar[str] = "PauseResponse"

    freeze: Freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on buying: end a freeze, or (without its id) the pause of a scope and key."""

    message_name: ClassVar[str] = "ResumeRequest"

    request_id: str
    freeze_id: str = ""
    scope: FreezeScope | None = None
    key: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What ended."""

    message_name: ClassVar[str] = "ResumeResponse"

    ended: tuple[Freeze, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Instances that belong to no job, oldest first."""

    message_name: ClassVar[str] = "ListOrphansResponse"

    orphans: tuple[OrphanFound, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendUse:
    """What was spent in a time, micro-USD, and the most that may be; None: no limit.

    What of it is not billed yet, by the selector's reckoning, is `unsettled_micro_usd`.

    `what` is "total", "spot", "on-demand", "tenant" (which one, `tenant` says) or "every other
    tenant"; `span` "hour", "day" or "month".
    """

    what: str
    tenant: str = ""
    span: str = ""
    used_micro_usd: int = 0
    limit_micro_usd: int | None = None
    unsettled_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """How many instances of a quota pool are held, and the most that may be."""

    quota_pool: str
    held_instances: int
    most_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsInForce:
    """The limits on money that are in force, and what is used of them.

    With `jobs_judged` every job has a limit of its own; `jobs` are those that are at a limit, by
    the last that was said of each. Limits on spending that are not among `stated`, by their names in
    `Spending`, are the default ones.
    """

    message_name: ClassVar[str] = "GetLimitsResponse"

    jobs_judged: bool
    uses: tuple[SpendUse, ...] = ()
    least_spot_discount_ppm: int = 0
    launches_per_minute: int | None = None
    jobs: tuple[LimitReached, ...] = ()
    quotas: tuple[QuotaUse, ...] = ()
    clock: ClockReading | None = None
    micro_usd_per_job: int | None = None
    stated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountModes:
    """The mode of every account, by account; `clock` has that of the run."""

    message_name: ClassVar[str] = "ListAccountModesResponse"

    accounts: tuple[AccountModeSet, ...] = ()
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeWanted:
    """Have an account in a mode, and say why."""

    message_name: ClassVar[str] = "SetAccountModeRequest"

    request_id: str
    account: str
    mode: Mode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitWanted:
    """Have another limit count than settings state, and say why; `most` in micro-USD or instances."""

    message_name: ClassVar[str] = "SetLimitRequest"

    request_id: str
    kind: LimitKind
    most: int
    reason: str
    key: str = ""
    span_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitNowSet:
    """It counts."""

    message_name: ClassVar[str] = "SetLimitResponse"

    set: LimitSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """It is in that mode."""

    message_name: ClassVar[str] = "SetAccountModeResponse"

    set: AccountModeSet
