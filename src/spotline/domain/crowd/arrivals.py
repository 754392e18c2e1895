"""Jobs that came of late, as work: what is taken to come in the slots ahead."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotline.domain.crowd.fluid import FluidWork

# Slots whose arrivals tell of those to come: a day of half-hour slots.
ARRIVAL_SLOTS = 48
# Of a future no more batches are drawn after so many jobs.
MOST_DRAWN = 1_000


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

        Jobs that came in one slot are a batch, and come as one. One batch tells nothing of another: n
        slots with arrivals have n - 1 gaps between them.
        """
        batches: dict[int, list[FluidWork]] = {}
        for at, work in self.jobs:
            if at > slot - ARRIVAL_SLOTS:
                batches.setdefault(at, []).append(work)
        if len(batches) < 2:
            return []
        told = min(ARRIVAL_SLOTS, slot - self.since + 1)
        comes = rng.random(slots - 1) < (len(batches) - 1) / told
        which = rng.integers(0, len(batches), slots - 1)
        known = [batches[at] for at in sorted(batches)]
        drawn: list[FluidWork] = []
        for begin in range(1, slots):
            if comes[begin - 1] and len(drawn) < MOST_DRAWN:
                batch = known[int(which[begin - 1])]
                drawn += [work._replace(begins=begin, due=begin + work.due) for work in batch]
        return drawn

    @property
    def longest(self) -> int:
        """Slots to the deadline of the job that had most of them; 0 where none came."""
        return max((work.due for _, work in self.jobs), default=0)

    def copied(self) -> Arrivals:
        """The same, that no later event changes."""
        return Arrivals(since=self.since, jobs=list(self.jobs))
