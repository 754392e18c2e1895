"""What the service `analytics` takes in, keeps and issues.

Everything issued is a function of the log up to the slot that led to it. A slot moves the
watermark; windows that end by it are put together from the observations stored so far, and so are
windows within their grace for which something came late. Observations are kept by id, each with its
`seq` and the watermark it met, so a fold that was killed and goes back some entries issues the very
same: what it knows already from beyond an entry does not count for it. See `statistics_fold.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotline.application.spec import Spec
from spotline.contracts.codec import decode, encode
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import (
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    PlacementOutcome,
)
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.statistics.windows import (
    DEFAULT_WINDOWS,
    S_PER_DAY,
    WindowSpec,
)
from spotline.domain.units import NS_PER_S

Statistics = MarketStatisticsIssued | PlatformStatisticsIssued

SPEC = Spec(
    service="analytics",
    consumes=(
        SlotOpened,
        ForecastIssued,
        JobSubmitted,
        JobAdmitted,
        JobClosed,
        AllocationDecided,
        SlotDecided,
        CostAccrued,
        PolicyWeightsUpdated,
        PipelineSubmitted,
        PlacementDecided,
        PlacementEnded,
    ),
    produces=(MarketStatisticsIssued, PlatformStatisticsIssued),
    decides=(MarketStatisticsIssued, PlatformStatisticsIssued),
)

NEVER = -(1 << 62)
"""The watermark before the first slot."""

REALISED = -1
"""`rehearsed_slot` of feedback from a job that ended."""

LONGEST_SLOT_S = 7 * S_PER_DAY
"""A slot that claims to be longer, or no time at all, is no observation."""

_CONSUMED = frozenset(SPEC.consumes)
_LATE = "late"
_WATERMARK = "watermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """What is issued, and how long late observations are waited for.

    The watermark is the opening of the latest slot less `delay_slots` of its length: a slot's bills
    are stored only after the next one has opened. What comes up to `grace_s` after a window has
    closed is merged and issued again. `history_s` is how long results can be queried.
    """

    windows: tuple[WindowSpec, ...] = DEFAULT_WINDOWS
    delay_slots: int = 1
    grace_s: int = 3600
    history_s: int = 14 * S_PER_DAY

    def __post_init__(self) -> None:
        if not self.windows or len(set(self.windows)) < len(self.windows):
            raise ValueError("windows must name at least one size and hop, none of them twice")
        for name in ("delay_slots", "grace_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        if self.history_s < self.horizon_s:
            raise ValueError(
                f"history_s must be >= {self.horizon_s} (the longest window and the grace), was "
                f"{self.history_s}"
            )

    @property
    def horizon_s(self) -> int:
        """How long an observation can matter after its end."""
        return max(spec.size_s for spec in self.windows) + self.grace_s

    def settings(self) -> dict[str, Any]:
        """As a log's manifest holds them; `options_of` reads them back."""
        return {
            "windows": [[one.size_s, one.hop_s] for one in self.windows],
            "delay_slots": self.delay_slots,
            "grace_s": self.grace_s,
            "history_s": self.history_s,
        }


def options_of(settings: Mapping[str, Any]) -> StatisticsOptions:
    """The options among a manifest's settings of `analytics`; what is not stated is the default.

    Raises
    ------
    ValueError
        A stated value is malformed; the message begins with its name.
    """
    stated: dict[str, Any] = {}
    for name in ("delay_slots", "grace_s", "history_s"):
        value = settings.get(name, getattr(StatisticsOptions(), name))
        if type(value) is not int:
            raise ValueError(f"{name} must be a whole number, was {value!r}")
        stated[name] = value
    if "windows" in settings:
        stated["windows"] = tuple(_spec(one) for one in _list(settings["windows"]))
    return StatisticsOptions(**stated)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"windows must be a list, was {value!r}")  # noqa: TRY004 - a setting
    return value


def _spec(value: Any) -> WindowSpec:
    whole = isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)
    if not whole:
        raise ValueError(f"windows must be pairs of size and hop in seconds, was {value!r}")
    return WindowSpec(size_s=value[0], hop_s=value[1])


# --- what is kept -----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class StatisticsStore:
    """What has to survive: the observations and the last issue of every window, by id.

    Any mapping that keeps what it is given will do; every value names the `seq` it reflects.
    """

    observations: MutableMapping[str, bytes] = field(default_factory=dict)
    issued: MutableMapping[str, bytes] = field(default_factory=dict)
    counters: MutableMapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An event that counts, as far as it counts, and the watermark it met."""

    event_id: str
    seq: int
    stored_ns: int
    watermark_s: int
    causation_id: str
    event: Event

    def dump(self) -> bytes:
        """Write it down, without its id."""
        kind = KINDS[type(self.event)]
        head = f"{self.seq} {self.stored_ns} {self.watermark_s} {kind} {self.causation_id}\n"
        return head.encode() + encode(self.event)

    @classmethod
    def load(cls, event_id: str, dumped: bytes) -> Observation:
        """Read what `dump` wrote."""
        head, _, payload = dumped.partition(b"\n")
        # The cause is whatever a header said.
        seq, stored_ns, watermark_s, kind, causation_id = head.decode().split(" ", 4)
        return cls(
            event_id=event_id,
            seq=int(seq),
            stored_ns=int(stored_ns),
            watermark_s=int(watermark_s),
            causation_id=causation_id,
            event=decode(kind, payload),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Statistics to be issued: the entry that led to them, and under which id and key."""

    key: str
    event_id: str
    seq: int
    causation_id: str
    event: Statistics

    def dump(self) -> bytes:
        """Write down what `issued` keeps."""
        return f"{self.seq} {KINDS[type(self.event)]}\n".encode() + encode(self.event)


def load_issued(dumped: bytes) -> tuple[int, Statistics]:
    """Read what `Issue.dump` wrote: the `seq` of the entry that led to it, and the event."""
    head, _, payload = dumped.partition(b"\n")
    seq, kind = head.decode().split(" ")
    event = decode(kind, payload)
    if not isinstance(event, MarketStatisticsIssued | PlatformStatisticsIssued):
        raise TypeError(f"{kind} are no statistics")
    return int(seq), event


def load_policies(dumped: bytes) -> tuple[str, ...]:
    """The policies that an issue holds figures of."""
    _, event = load_issued(dumped)
    if isinstance(event, MarketStatisticsIssued):
        return ()
    return tuple(one.policy_id for one in event.policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCounts:
    """Late observations up to `seq`: merged into every window they belong to, or too late for one."""

    seq: int = 0
    merged: int = 0
    dropped: int = 0

    def dump(self) -> bytes:
        """Write them down."""
        return f"{self.seq} {self.merged} {self.dropped}".encode()

    @classmethod
    def of(cls, store: StatisticsStore) -> LateCounts:
        """As they were noted last."""
        dumped = store.counters.get(_LATE)
        if dumped is None:
            return cls()
        seq, merged, dropped = (int(one) for one in dumped.split())
        return cls(seq=seq, merged=merged, dropped=dropped)

    def note(self, store: StatisticsStore) -> None:
        """Have them survive."""
        store.counters[_LATE] = self.dump()


def noted_watermark_s(store: StatisticsStore) -> int:
    """The watermark that was noted last: what there is to say before a fold is loaded."""
    dumped = store.counters.get(_WATERMARK)
    return NEVER if dumped is None else int(dumped)


def note_watermark(store: StatisticsStore, watermark_s: int) -> None:
    """Have the watermark survive, for `noted_watermark_s`."""
    store.counters[_WATERMARK] = str(watermark_s).encode()


def issue_key(event: Statistics) -> str:
    """The window and whose it is: what revisions of one result share."""
    if isinstance(event, MarketStatisticsIssued):
        scope, name = "market", event.offering_id
    else:
        scope, name = "platform", event.tenant
    end_s = event.ts_event_ns // NS_PER_S
    return f"{scope} {event.window_s} {event.hop_s} {end_s} {name}"


def counts(event: Event) -> bool:
    """Whether an event is an observation: rehearsals and later revisions of a slot are none.

    Of a pipeline only its beginning and its end count: they tell whose its bills are.
    """
    match event:
        case PolicyWeightsUpdated():
            return event.rehearsed_slot == REALISED
        case AllocationDecided() | SlotDecided():
            return event.revision == 0
        case PlacementDecided():
            return event.outcome is PlacementOutcome.REFUSED
        case SlotOpened():
            return 0 < event.slot_s <= LONGEST_SLOT_S
    return type(event) in _CONSUMED


def essence(event: Event) -> Event:
    """The event without what does not count and may be large."""
    match event:
        case ForecastIssued():
            return replace(event, forecasts=(), scores=())
        case AllocationDecided():
            return replace(event, lots=(), explanation="", move=None)
        case JobSubmitted():
            return replace(event, job=replace(event.job, configuration=None))
        case PlacementDecided():
            return replace(event, placement=None, reason="")
    return event
