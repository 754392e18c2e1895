"""What will be free when: now, and after each of the next releases.

It lets a job that could only get a poor place now wait for a better one, and keeps those behind it
from taking that place meanwhile (reservations, as conservative backfilling makes them).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from spotline.domain.placement.free import Free
from spotline.domain.placement.graph import IntArray
from spotline.domain.placement.interface import PlacementMoment, Release
from spotline.domain.placement.pipeline import Placement

# Later releases are too uncertain to wait for, and each costs a copy of the graph. With fewer, jobs
# that a few large regions hold spanned others and paid dearly for egress, on starts not reported.
MAX_RELEASES = 8


class Timeline:
    """Free GPUs and bandwidth now and at the next few releases.

    Attributes
    ----------
    times_s
        Ascending; the first is now.
    free
        What is free from then until the next time, if nothing is placed but what was held here.
    """

    def __init__(self, moment: PlacementMoment, *, max_releases: int = MAX_RELEASES) -> None:
        self._max_releases = max_releases
        # What is free from each time on, without end; without claims that is what is free then.
        self._least: list[Free] = []
        self.times_s = [moment.now_s]
        self.free = [Free.of(moment.residual)]
        releases = sorted(
            moment.releases, key=lambda release: (release.at_s, release.placement.job_id)
        )
        for release in releases:
            if not self._add(release):
                break
        self._gpus = [int(free.gpus.sum()) for free in self.free]

    def _add(self, release: Release) -> bool:
        at_s = max(release.at_s, self.times_s[0])
        if at_s > self.times_s[-1]:
            if len(self.times_s) > self._max_releases:
                return False
            self.times_s.append(at_s)
            self.free.append(self.free[-1].copy())
        self.free[-1].give_back(release.placement)
        return True

    def available(self) -> Free:
        """What can be taken now, for however long, without touching what is claimed for later."""
        return self.at(0)

    def at(self, moment: int) -> Free:
        """What can be taken from the `moment`-th time on, for however long."""
        return (self._least or self.free)[moment]

    def gpus(self) -> IntArray:
        """GPUs of all regions that can be taken from each time on, for however long."""
        return np.array(self._gpus, dtype=np.int64)

    def hold(self, placement: Placement, until_s: float) -> None:
        """Place something now that ends at `until_s`."""
        self._occupy(0, placement, until_s)

    def claim(self, moment: int, placement: Placement, until_s: float) -> None:
        """Keep a place for a job that waits until the `moment`-th time and ends at `until_s`."""
        if not self._least:
            self._least = [free.copy() for free in self.free]
        self._occupy(moment, placement, until_s)

    def _occupy(self, moment: int, placement: Placement, until_s: float) -> None:
        after = bisect_right(self.times_s, until_s)
        # A later time may make room for this one, but not if it holds a claim.
        last = len(self.times_s) if self._least else after
        if last <= self._max_releases and self.times_s[after - 1] < until_s:
            self.times_s.insert(after, until_s)
            # Nothing changes there but what comes now: all else is as just before.
            for kept in (self.free, self._least):
                if kept:
                    kept.insert(after, kept[after - 1].copy())
                    del kept[self._max_releases + 1 :]
            self._gpus.insert(after, self._gpus[after - 1])
            del self.times_s[self._max_releases + 1 :]
            del self._gpus[self._max_releases + 1 :]
        for place in range(moment, len(self.times_s)):
            if self.times_s[place] < until_s:
                self.free[place].take_placement(placement)
                self._gpus[place] -= placement.gpus
        if self._least:
            self._take_in(placement)

    def _take_in(self, placement: Placement) -> None:
        """Find again, from the last time backwards, what is least where a placement touches it."""
        regions, pairs = self.free[0].touched(placement)
        gpus = np.minimum.accumulate(np.array([free.gpus[regions] for free in self.free[::-1]]))
        rows, columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        width = np.minimum.accumulate(
            np.array([free.width[rows, columns] for free in self.free[::-1]])
        )
        for place, least in enumerate(reversed(self._least)):
            least.gpus[regions] = gpus[place]
            least.width[rows, columns] = width[place]
        self._gpus = [int(least.gpus.sum()) for least in self._least]
