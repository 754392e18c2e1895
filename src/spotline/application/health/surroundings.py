"""Whether the market goes on and the process is sound: slots, quotes, disks, loop and tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spotline.application.health.conditions import (
    ConditionKind,
    HealthLimits,
    Judged,
    lasting,
    size,
)

# How long a loop that stood still is told of.
_REMEMBERED_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFacts:
    """The market's clock: `due` says whether the slot after `slot` should be opening.

    It is not where the market has ended, waits for work, or is held. `interval_s` is how long a
    slot lasts by the wall, 0: as short as can be. `settled` says that all of `slot` is done.
    """

    slot: int
    due: bool
    interval_s: float
    settled: bool = True
    why_not: str = ""


@dataclass(slots=True, kw_only=True)
class SlotJudge:
    """Judges whether slots open; it remembers since when the next one is due."""

    limits: HealthLimits
    _slot: int = -2
    _due_s: float | None = None

    def judge(self, facts: SlotFacts, now_s: float) -> Judged:
        """Judge the market's clock as it is now."""
        if not facts.due or facts.slot != self._slot or self._due_s is None:
            self._due_s = now_s
        self._slot = facts.slot
        waited_s = now_s - self._due_s
        limit_s = max(self.limits.slot_lengths * facts.interval_s, self.limits.slot_least_s)
        open_slot = f"slot {facts.slot} is open" if facts.slot >= 0 else "none is open yet"
        if waited_s < limit_s:
            detail = open_slot if facts.due else f"{open_slot}, no other is due: {facts.why_not}"
            return Judged(kind=ConditionKind.SLOTS, healthy=True, detail=detail, figure=waited_s)
        why = "" if facts.settled else f"; slot {facts.slot} is not settled: selector and actuator"
        return Judged(
            kind=ConditionKind.SLOTS,
            healthy=False,
            detail=f"no slot for {lasting(waited_s)}: {open_slot}, one is due every "
            f"{lasting(facts.interval_s)}{why}",
            figure=waited_s,
            continue_with="the other conditions of market_ingest, selector and cloud_actuator",
        )


def quotes(ages_s: Mapping[str, int], stale: Collection[str]) -> Judged:
    """Whether the prices that are decided with are of now; ages in market time, by offering.

    Of `stale` ones market_ingest has said that nobody knows what they cost. Where that is said of
    some, events still flow: no new spot is bought there. Where it is said of all, the feed is dead.
    """
    if not ages_s:
        return Judged(kind=ConditionKind.QUOTES, healthy=True, detail="none yet", figure=0)
    oldest, age_s = max(ages_s.items(), key=lambda each: (each[1], each[0]))
    said = f"the oldest of {len(ages_s)} quotes is {lasting(age_s)} old"
    if stale:
        said = (
            f"{len(stale)} of {len(ages_s)} offerings were not quoted for too long, such as "
            f"{min(stale)}; {oldest} was for {lasting(age_s)}"
        )
    return Judged(
        kind=ConditionKind.QUOTES,
        healthy=not stale,
        detail=said,
        figure=age_s,
        continue_with="the market's source; spotline market status",
        is_partial=len(stale) < len(ages_s),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFacts:
    """How a feed of a live market is; seconds are market time, None for never and for not at all.

    `failures` are all since the process began, `error` is the last since it answered. A feed that
    has ended has nothing more to say, ever.
    """

    name: str
    answered_s_ago: int | None
    failing_s: int | None = None
    failures: int = 0
    error: str = ""
    has_ended: bool = False


def feeds_answer(facts: Sequence[FeedFacts], silent_after_s: int) -> Judged:
    """Whether the feeds of a live market answer; one that does not, for too long, is dead."""
    failing = [feed for feed in facts if feed.failing_s is not None]
    dead = [feed for feed in failing if (feed.failing_s or 0) >= silent_after_s]
    ended = [feed for feed in facts if feed.has_ended]
    return Judged(
        kind=ConditionKind.FEEDS,
        healthy=not dead and not ended,
        detail="; ".join(map(_feed_said, dead or ended or facts)),
        figure=max((feed.failing_s or 0 for feed in facts), default=0),
        continue_with="spotline cloud doctor; no new spot is bought of what such a feed quotes",
        is_partial=len(dead) + len(ended) < len(facts),
    )


def _feed_said(feed: FeedFacts) -> str:
    said = "never" if feed.answered_s_ago is None else f"{lasting(feed.answered_s_ago)} ago"
    if feed.has_ended:
        return f"feed {feed.name} has ended, its last answer {said}"
    if feed.failing_s is None:
        return f"feed {feed.name} answered {said}, {feed.failures} failures so far"
    return (
        f"feed {feed.name} does not answer, for {lasting(feed.failing_s)} now, its last answer "
        f"{said}: {feed.error}"
    )


def disk(free_bytes: Mapping[str, int], limits: HealthLimits) -> Judged:
    """Whether there is room where something is kept; `free_bytes` by what is kept there."""
    if not free_bytes:
        return Judged(kind=ConditionKind.DISK, healthy=True, detail="nothing is kept on a disk")
    where, least = min(free_bytes.items(), key=lambda each: (each[1], each[0]))
    return Judged(
        kind=ConditionKind.DISK,
        healthy=least >= limits.disk_free_bytes,
        detail=f"{size(least)} are free where {where} is",
        figure=least,
        continue_with=f"make room: at least {size(limits.disk_free_bytes)} must be free",
    )


@dataclass(slots=True, kw_only=True)
class LoopJudge:
    """Judges whether the event loop goes on; it remembers a minute."""

    limits: HealthLimits
    _late: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=1024))

    def judge(self, late_s: float, now_s: float) -> Judged:
        """Judge by how much later than asked for the loop called back."""
        self._late.append((now_s, max(0.0, late_s)))
        while self._late[0][0] < now_s - _REMEMBERED_S:
            self._late.popleft()
        worst_s = max(late for _, late in self._late)
        return Judged(
            kind=ConditionKind.LOOP,
            healthy=worst_s < self.limits.loop_blocked_s,
            detail=f"the event loop stood still for {worst_s:.1f} s at most within the last minute",
            figure=worst_s,
            continue_with="more processor time, or fewer jobs",
        )


def tasks(ended: Mapping[str, str]) -> Judged:
    """Whether everything runs that is to run; `ended` are tasks that do not, and why."""
    detail = "; ".join(f"{name} has ended: {why}" for name, why in sorted(ended.items()))
    return Judged(
        kind=ConditionKind.TASKS,
        healthy=not ended,
        detail=detail or "all tasks run",
        figure=len(ended),
        continue_with="restart the service; its own log has why",
    )
