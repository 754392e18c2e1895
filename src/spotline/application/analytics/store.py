"""What `analytics` keeps across restarts: observations, issues and counters, by id.

Everything issued is a function of the log up to the slot that led to it. A slot moves the
watermark; windows that end by it are put together from the observations stored so far, and so are
windows within their grace for which something came late. Observations are kept by id, each with its
`seq` and the watermark it met, so a fold that was killed and goes back some entries issues the very
same: what it knows already from beyond an entry does not count for it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

from spotline.contracts.codec import decode, encode
from spotline.contracts.subjects import KINDS
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.units import NS_PER_S

Statistics = MarketStatisticsIssued | PlatformStatisticsIssued

NEVER = -(1 << 62)
"""The watermark before the first slot."""
_LATE = "late"
_WATERMARK = "watermark"


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
    return tuple(policy.policy_id for policy in event.policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCounts:
    """Late observations so far: merged into every window they belong to, or too late for one.

    They are those up to the event at `place` of the entry `seq`.
    """

    seq: int = 0
    merged: int = 0
    dropped: int = 0
    place: int = 0

    def dump(self) -> bytes:
        """Write them down."""
        return f"{self.seq} {self.merged} {self.dropped} {self.place}".encode()

    @classmethod
    def of(cls, store: StatisticsStore) -> LateCounts:
        """As they were noted last."""
        dumped = store.counters.get(_LATE)
        if dumped is None:
            return cls()
        seq, merged, dropped, *place = (int(count) for count in dumped.split())
        return cls(seq=seq, merged=merged, dropped=dropped, place=sum(place))

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
