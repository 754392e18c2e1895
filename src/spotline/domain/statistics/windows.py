"""Windows of event time: how long they are, how far apart they begin, when they close.

Times are whole seconds since the epoch. A window is half open, `[start_s, end_s)`, and begins at a
multiple of its hop, so every log has the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spotline.domain.units import S_PER_HOUR

S_PER_DAY = 24 * S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Windows of `size_s` seconds, one every `hop_s`: tumbling where both are equal.

    The windows of a hopping spec that begin at a multiple of `size_s` are the tumbling ones.
    """

    size_s: int
    hop_s: int

    def __post_init__(self) -> None:
        if self.size_s < 1 or self.hop_s < 1 or self.size_s % self.hop_s:
            raise ValueError(
                "windows must be a multiple of their hop, both >= 1 s, were "
                f"{self.size_s} s by {self.hop_s} s"
            )

    def closed_between(self, after_s: int, until_s: int) -> Iterator[Window]:
        """Windows with an end in `(after_s, until_s]`, by end."""
        first = (after_s // self.hop_s + 1) * self.hop_s
        for end_s in range(first, until_s + 1, self.hop_s):
            yield Window(start_s=end_s - self.size_s, size_s=self.size_s, hop_s=self.hop_s)

    def over(self, start_s: int, end_s: int) -> Iterator[Window]:
        """Windows that share time with `[start_s, end_s)`, by end."""
        # Of the windows that end after `start_s`, those that begin before `end_s`.
        last = (max(end_s, start_s + 1) - 1) // self.hop_s * self.hop_s + self.size_s
        yield from self.closed_between(start_s, last)

    def first_end_s(self, at_s: int) -> int:
        """When the first of the windows that hold `at_s` ends."""
        return (at_s // self.hop_s + 1) * self.hop_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a spec."""

    start_s: int
    size_s: int
    hop_s: int

    @property
    def end_s(self) -> int:
        """The first second behind it."""
        return self.start_s + self.size_s

    @property
    def tumbling(self) -> bool:
        """Whether it is one of the windows of its size that tile time."""
        return self.start_s % self.size_s == 0


DEFAULT_WINDOWS: tuple[WindowSpec, ...] = (
    WindowSpec(size_s=300, hop_s=300),
    WindowSpec(size_s=S_PER_HOUR, hop_s=1800),
    WindowSpec(size_s=S_PER_DAY, hop_s=S_PER_HOUR),
)


def pane_s_of(specs: Sequence[WindowSpec]) -> int:
    """The longest panes of which every window of `specs` is a whole number."""
    return math.gcd(*(length for spec in specs for length in (spec.size_s, spec.hop_s)))


def share(amount: int, part_s: int, whole_s: int) -> int:
    """What of `amount`, spread evenly over `whole_s`, falls into its first `part_s`.

    Rounded down; the differences between successive parts add up to `amount` exactly.
    """
    return amount * part_s // whole_s
