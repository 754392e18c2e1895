"""Jobs that came of late, as work: what is taken to come in the slots ahead."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotline.domain.crowd.fluid import FluidWork

# Slots whose arrivals tell of those to come: a day of half-hour slots.
ARRIVAL_SLOTS = 48


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """The arrivals of the last `ARRIVAL_SLOTS`: the slot of each, and its work as from that slot on.

    `since` is the slot of the first job that ever came, -1 before it.
    """

    since: int = -1
    jobs: list[tuple[int, FluidWork]] = field(default_factory=list)

    def note(self, slot: int, work: FluidWork) -> None:
        """Take a job that was admitted in a slot."""
        if self.since < 0:
            self.since = slot
        self.jobs.append((slot, work))
        self.jobs = [each for each in self.jobs if each[0] > slot - ARRIVAL_SLOTS]

    def drawn(self, slot: int, slots: int, rng: np.random.Generator) -> list[FluidWork]:
        """Work that may come in the slots 1 to `slots` - 1 after a slot: like that of late, as often.

        One job tells nothing of another one to come: n jobs have n - 1 gaps between them.
        """
        late = [work for at, work in self.jobs if at > slot - ARRIVAL_SLOTS]
        if len(late) < 2:
            return []
        told = min(ARRIVAL_SLOTS, slot - self.since + 1)
        coming = rng.poisson((len(late) - 1) / told, slots - 1)
        which = rng.integers(0, len(late), int(coming.sum()))
        begins = np.repeat(np.arange(1, slots), coming)
        return [
            late[at]._replace(begins=begin, due=begin + late[at].due)
            for at, begin in zip(which.tolist(), begins.tolist(), strict=True)
        ]

    @property
    def longest(self) -> int:
        """Slots to the deadline of the job that had most of them; 0 where none came."""
        return max((work.due for _, work in self.jobs), default=0)

    def copied(self) -> Arrivals:
        """The same, that no later event changes."""
        return Arrivals(since=self.since, jobs=list(self.jobs))
