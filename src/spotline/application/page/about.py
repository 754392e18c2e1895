"""What a server of pages knows of a run beside its log: under which settings it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.application.operations.fold import ParkedKey
from spotline.application.operations.messages import LimitsInForce, SystemStatus
from spotline.application.page.replaying import ReplayShown
from spotline.application.selector.options import SelectorOptions
from spotline.domain.jobs.outlook import JobOutlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Something that a run says of itself: what it is called, and what it is."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """Something that somebody did or tried, at `ts_ns` of wall time."""

    ts_ns: int
    who: str
    action: str
    target: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLog:
    """Another recorded log whose pages are served beside these; `address` is that of its first page."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Of which run the pages are.

    `selector` are the options that limits come from, None where they are not known; `limits` are
    what a running system says that it holds to now. `versions` and
    `settings` are for people to read. `outlooks` are what is expected of open jobs now, by job,
    `system` is what services say of themselves, None where none runs. `parked_content` is what parked
    entries hold, as JSON, by service and event id. `audit` is the newest first, empty for callers
    who may not see it. `replay` is what was asked of a recorded log, None
    of a running system; `others` are logs of the same folder.
    """

    selector: SelectorOptions | None = None
    limits: LimitsInForce | None = None
    versions: tuple[Stated, ...] = ()
    settings: tuple[Stated, ...] = ()
    outlooks: Mapping[str, JobOutlook] = field(default_factory=dict)
    system: SystemStatus | None = None
    parked_content: Mapping[ParkedKey, str] = field(default_factory=dict)
    audit: tuple[AuditLine, ...] = ()
    replay: ReplayShown | None = None
    others: tuple[OtherLog, ...] = ()


NOTHING_KNOWN = About()
