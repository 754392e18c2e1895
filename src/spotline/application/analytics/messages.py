"""What is asked of `analytics` and what it answers, as frozen values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from spotline.application.analytics.store import LateCounts, load_issued, load_policies
from spotline.application.market_view import ClockReading
from spotline.application.paging import PagedQuery
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.statistics.figures import ALL_TENANTS
from spotline.domain.units import NS_PER_S


class StatisticsScope(Enum):
    """Whose statistics."""

    OFFERING = "offering"
    TENANT = "tenant"
    POLICY = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsQuery(PagedQuery):
    """Windows of one key; fields as in `analytics_service.proto`."""

    message_name: ClassVar[str] = "QueryRequest"

    scope: StatisticsScope
    key: str
    tenant: str = ""
    window_s: int = 0
    tumbling_only: bool = False
    from_ns: int = 0
    until_ns: int = 0
    latest_first: bool = False

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError(f"key must name {_AN[self.scope]}, was empty")
        if self.tenant and self.scope is not StatisticsScope.POLICY:
            raise ValueError(
                f"tenant goes with the scope policy only, was {self.tenant!r} with "
                f"{self.scope.value}; ask for the scope tenant with it as key"
            )
        PagedQuery.__post_init__(self)
        for name in ("window_s", "from_ns", "until_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0, was {getattr(self, name)}")
        if self.until_ns and self.until_ns <= self.from_ns:
            raise ValueError(f"until_ns must be > from_ns ({self.from_ns}), was {self.until_ns}")

    def resumed(self) -> tuple[int, int, int]:
        """The last window of the page before: its end, length and hop in seconds."""
        end_s, size_s, hop_s = (int(part) for part in self.last_place().split("-"))
        return end_s, size_s, hop_s


_AN = {
    StatisticsScope.OFFERING: "an offering",
    StatisticsScope.TENANT: f"a tenant ({ALL_TENANTS} for all together)",
    StatisticsScope.POLICY: "a policy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPage:
    """Windows by end, then length; fields as in `analytics_service.proto`."""

    message_name: ClassVar[str] = "QueryResponse"

    market: tuple[MarketStatisticsIssued, ...] = ()
    platform: tuple[PlatformStatisticsIssued, ...] = ()
    next_page_token: str = ""
    watermark_ns: int = 0
    late_merged: int = 0
    late_dropped: int = 0
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysQuery(PagedQuery):
    """Of whom there are statistics; of tenants only `tenant` where it is stated, and its policies."""

    message_name: ClassVar[str] = "ListKeysRequest"

    scope: StatisticsScope | None = None
    tenant: str = ""

    def resumed(self) -> tuple[str, str]:
        """The last key of the page before: scope and name."""
        scope, _, name = self.last_place().partition("-")
        return scope, name


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsKey:
    """Somebody there are statistics of; fields as in `analytics_service.proto`."""

    scope: StatisticsScope
    key: str
    windows: int
    first_end_ns: int
    last_end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPage:
    """Keys by scope, then name."""

    message_name: ClassVar[str] = "ListKeysResponse"

    keys: tuple[StatisticsKey, ...]
    next_page_token: str = ""
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True)
class _Window:
    """The parts of an issue's key."""

    end_s: int
    size_s: int
    hop_s: int
    stored_as: str

    @property
    def place(self) -> tuple[int, int, int]:
        return self.end_s, self.size_s, self.hop_s


def answer(
    query: StatisticsQuery,
    issued: Mapping[str, bytes],
    *,
    watermark_s: int,
    late: LateCounts,
) -> StatisticsPage:
    """Answer from what was issued (`StatisticsStore.issued`).

    `watermark_s` and `late` are the fold's.
    """
    market = query.scope is StatisticsScope.OFFERING
    name = (query.tenant or ALL_TENANTS) if query.scope is StatisticsScope.POLICY else query.key
    found = sorted(
        (
            one
            for one in _windows(issued, "market" if market else "platform", name)
            if _wanted(query, one)
        ),
        key=lambda one: one.place,
        reverse=query.latest_first,
    )
    if query.page_token:
        last = query.resumed()
        found = [
            entry
            for entry in found
            if (entry.place < last if query.latest_first else entry.place > last)
        ]
    market_found: list[MarketStatisticsIssued] = []
    platform_found: list[PlatformStatisticsIssued] = []
    next_page_token = ""
    shown: _Window | None = None
    for entry in found:
        _, event = load_issued(issued[entry.stored_as])
        if isinstance(event, MarketStatisticsIssued):
            kept = True
        else:
            event, kept = _of_policy(event, query)
        if not kept:
            continue
        if shown is not None and len(market_found) + len(platform_found) == query.size:
            next_page_token = query.token_after("-".join(str(part) for part in shown.place))
            break
        shown = entry
        if isinstance(event, MarketStatisticsIssued):
            market_found.append(event)
        else:
            platform_found.append(event)
    return StatisticsPage(
        market=tuple(market_found),
        platform=tuple(platform_found),
        next_page_token=next_page_token,
        watermark_ns=max(0, watermark_s) * NS_PER_S,
        late_merged=late.merged,
        late_dropped=late.dropped,
    )


def keys_of(query: KeysQuery, issued: Mapping[str, bytes]) -> KeysPage:
    """Say of whom there are statistics."""
    extents: dict[tuple[str, str], list[int]] = {}
    for stored_as in issued:
        scope, _, _, end_s, name = stored_as.split(" ", 4)
        if scope == "platform" and query.tenant not in ("", name):
            continue
        places = [("offering" if scope == "market" else "tenant", name)]
        if scope == "platform" and name == (query.tenant or ALL_TENANTS):
            places += [("policy", one) for one in load_policies(issued[stored_as]) if one]
        for place in places:
            extent = extents.setdefault(place, [0, int(end_s), int(end_s)])
            extent[0] += 1
            extent[1] = min(extent[1], int(end_s))
            extent[2] = max(extent[2], int(end_s))
    wanted = None if query.scope is None else query.scope.value
    found = sorted(place for place in extents if wanted in (None, place[0]))
    if query.page_token:
        last = query.resumed()
        found = [place for place in found if place > last]
    shown = found[: query.size]
    return KeysPage(
        keys=tuple(
            StatisticsKey(
                scope=StatisticsScope(scope),
                key=name,
                windows=extents[scope, name][0],
                first_end_ns=extents[scope, name][1] * NS_PER_S,
                last_end_ns=extents[scope, name][2] * NS_PER_S,
            )
            for scope, name in shown
        ),
        next_page_token=(query.token_after("-".join(shown[-1])) if len(found) > len(shown) else ""),
    )


def _windows(issued: Mapping[str, bytes], scope: str, name: str) -> Iterator[_Window]:
    for stored_as in issued:
        of_scope, size_s, hop_s, end_s, of_name = stored_as.split(" ", 4)
        if of_scope == scope and of_name == name:
            yield _Window(int(end_s), int(size_s), int(hop_s), stored_as)


def _wanted(query: StatisticsQuery, one: _Window) -> bool:
    end_ns = one.end_s * NS_PER_S
    return (
        query.window_s in (0, one.size_s)
        and (not query.tumbling_only or one.end_s % one.size_s == 0)
        and end_ns >= query.from_ns
        and (not query.until_ns or end_ns < query.until_ns)
    )


def _of_policy(
    event: PlatformStatisticsIssued, query: StatisticsQuery
) -> tuple[PlatformStatisticsIssued, bool]:
    """The event with the policy asked for alone, and whether it says anything of it."""
    if query.scope is not StatisticsScope.POLICY:
        return event, True
    policies = tuple(policy for policy in event.policies if policy.policy_id == query.key)
    return replace(event, policies=policies), bool(policies)
