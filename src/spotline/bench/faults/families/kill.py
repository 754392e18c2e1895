"""Services killed at named points of what they persist."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import Lifeline, all_points
from spotline.bench.faults.scenario import Scenario

# How many kills of whom; those with most to lose have most points.
_KILLS = (
    (("cloud_actuator",), 3),
    (("selector",), 1),
    (("market_ingest", "forecaster"), 1),
    (("allocator", "read_model"), 1),
)


class Kill(Hasty):
    """Kills at a few points, each at one of the times that it is reached.

    Over the seeds every point has its turn; points that this scenario never reaches are left to
    others.
    """

    name: ClassVar[str] = "kill"

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        others = [point for point in all_points() if not self.calm_points[point]]
        drawn = [
            point
            for services, kills in _KILLS
            for point in _turn(self._points_of(services), scenario.seed, kills)
        ]
        self._due = {
            point: rng.randint(1, max(1, min(self.calm_points[point], 40))) for point in drawn
        }
        # What only trouble leads to is killed whenever it is reached, in some seeds.
        self._rare = {point for point in others if rng.random() < 0.5}
        self._reached: Counter[str] = Counter()

    def _points_of(self, services: Sequence[str]) -> list[str]:
        return [
            point
            for point in all_points()
            if self.calm_points[point] and point.partition(".")[0] in services
        ]

    def reach(self, line: Lifeline, point: str) -> None:
        """Kill where it is due."""
        self._reached[point] += 1
        rare = point in self._rare
        if not rare and self._due.get(point) != self._reached[point]:
            return
        self._due.pop(point, None)
        self._rare.discard(point)
        self.hit()
        line.kill(point)


def _turn(points: Sequence[str], seed: int, kills: int) -> list[str]:
    """The next few of these points, so that over the seeds each has its turn."""
    turns = [*points]
    random.Random("turns").shuffle(turns)  # noqa: S311
    return [turns[(seed * kills + number) % len(turns)] for number in range(min(kills, len(turns)))]
