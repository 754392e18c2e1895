"""What will be free when: now, and after each of the next releases.

It lets a job that could only get a poor place now wait for a better one, and keeps those behind it
from taking that place meanwhile (reservations, as conservative backfilling makes them).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from spotline.domain.placement.free import Free
from spotline.domain.placement.interface import PlacementMoment, Release
from spotline.domain.placement.pipeline import Placement

# Later releases are too uncertain to wait for, and each costs a copy of the graph.
MAX_RELEASES = 4


class Timeline:
    """Free GPUs and bandwidth now and at the next few releases.

    Attributes
    ----------
    times_s
        Ascending; the first is now.
    free
        What is free from then on, if nothing is placed but what was held here.
    """

    def __init__(self, moment: PlacementMoment, *, max_releases: int = MAX_RELEASES) -> None:
        self._max_releases = max_releases
        self._claimed = False
        self.times_s = [moment.now_s]
        self.free = [Free.of(moment.residual)]
        releases = sorted(
            moment.releases, key=lambda release: (release.at_s, release.placement.job_id)
        )
        for release in releases:
            if not self._add(release):
                break

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
        """What can be taken now without touching what is claimed for later."""
        if not self._claimed:
            return self.free[0]
        gpus = np.minimum.reduce([free.gpus for free in self.free])
        width = np.minimum.reduce([free.width for free in self.free])
        return Free(self.free[0].region_ids, np.maximum(gpus, 0), np.maximum(width, 0.0))

    def hold(self, placement: Placement, until_s: float) -> None:
        """Place something now that ends at `until_s`."""
        after = bisect_right(self.times_s, until_s)
        room = after <= self._max_releases
        if room and self.times_s[after - 1] < until_s:
            self.times_s.insert(after, until_s)
            self.free.insert(after, self.free[after - 1].copy())
            del self.times_s[self._max_releases + 1 :]
            del self.free[self._max_releases + 1 :]
        for free, at_s in zip(self.free, self.times_s, strict=True):
            if at_s < until_s:
                free.take_placement(placement)

    def at(self, moment: int) -> Free:
        """What is free from the `moment`-th time on, less what is claimed."""
        free = self.free[moment]
        return Free(free.region_ids, np.maximum(free.gpus, 0), np.maximum(free.width, 0.0))

    def claim(self, moment: int, placement: Placement) -> None:
        """Keep a place for a job that waits until the `moment`-th time."""
        self._claimed = True
        for free in self.free[moment:]:
            free.take_placement(placement)
