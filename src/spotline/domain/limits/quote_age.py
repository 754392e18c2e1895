"""When what was said of an offering is too old to buy spot by.

A source speaks at its own pace: every slot, or once a day where nothing changes. What is too old is
told by the longest silence of late, or by what an operator states.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spotline.domain.units import NS_PER_S, S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeRule:
    """When quotes are stale: docs/operating.md says where the numbers come from.

    Parameters
    ----------
    stale_after_s
        The most that a quote may be old, in market time; 0 takes it from the pace of the source:
        `usual_times` the longest silence of the last `window_s`, at least `least_slots` slots and
        `least_s`, at most `most_s`.
    first_silences, first_s
        Before so many silences the pace is not known: then it may be so old.
    """

    stale_after_s: int = 0
    usual_times: int = 2
    window_s: int = 7 * 24 * S_PER_HOUR
    least_slots: int = 4
    least_s: int = 2 * S_PER_HOUR
    most_s: int = 14 * 24 * S_PER_HOUR
    first_silences: int = 8
    first_s: int = 72 * S_PER_HOUR

    def __post_init__(self) -> None:
        if self.stale_after_s < 0:
            raise ValueError(f"stale_after_s must be >= 0, was {self.stale_after_s}")


@dataclass(slots=True)
class QuotePace:
    """How often something new is said of one offering: a fold over its quotes, slot by slot."""

    said_ns: int | None = None
    silences: int = 0
    # (when it ended, how long it was): each longer than those that ended after it.
    _longest: deque[tuple[int, int]] = field(default_factory=deque)

    def limit_s(self, slot_s: int, rule: AgeRule) -> int:
        """How old its latest quote may be, seconds of market time."""
        if rule.stale_after_s:
            return rule.stale_after_s
        least_s = max(rule.least_slots * slot_s, rule.least_s)
        if self.silences < rule.first_silences:
            return max(least_s, rule.first_s)
        longest_s = self._longest[0][1] if self._longest else 0
        return max(least_s, min(rule.usual_times * longest_s, rule.most_s))

    def note(self, said_ns: int, rule: AgeRule) -> None:
        """Take in when a quote was taken; nothing where it is not newer."""
        if self.said_ns is not None:
            if said_ns <= self.said_ns:
                return
            self._learn(said_ns, (said_ns - self.said_ns) // NS_PER_S, rule)
        self.said_ns = said_ns

    def _learn(self, ended_ns: int, silence_s: int, rule: AgeRule) -> None:
        self.silences += 1
        while self._longest and self._longest[-1][1] <= silence_s:
            self._longest.pop()
        self._longest.append((ended_ns, silence_s))
        while self._longest[0][0] < ended_ns - rule.window_s * NS_PER_S:
            self._longest.popleft()
