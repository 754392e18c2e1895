"""Services killed at named points of what they persist."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import Lifeline, all_points
from spotline.bench.faults.scenario import Scenario

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

# How many kills of whom; those with most to lose have most points.
_KILLS = (
    (("cloud_actuator",), 4),
    (("selector",), 1),
    (("market_ingest", "forecaster"), 1),
    (("allocator", "read_model"), 1),
)
_SET_ASIDE = ".SnapshotStore.set_aside."


class Kill(Hasty):
    """Kills at a few points, each at one of the times that it is reached.

    Which ones is counted off by the seed, not drawn: over `seeds_for_all` neighbours every point has
    its turn. Points that the undisturbed run never comes by are killed at wherever trouble leads
    there.
    """

    name: ClassVar[str] = "kill"

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        self._due = {
            point: rng.randint(1, max(1, min(self.calm_points[point], 40)))
            for point in points_of_turn(scenario.seed)
        }
        # What only trouble leads to is killed at when it is first reached.
        self._rare = {point for point in all_points() if not self.calm_points[point]}
        self._reached: Counter[str] = Counter()

    async def disturb(self, world: FaultWorld) -> None:
        """Spoil a snapshot where the turn has come to what is done about one."""
        if not any(_SET_ASIDE in point for point in self._due):
            return
        while not world.broker.snapshots:
            await world.broker.grown().wait()
        for name, data in sorted(world.broker.snapshots.items()):
            world.broker.snapshots[name] = data[: len(data) // 2]
            # Only the next process reads it.
            world.kill(name.partition(".")[0])

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


def points_of_turn(seed: int) -> list[str]:
    """The points whose turn it is with a seed."""
    found: list[str] = []
    for services, kills in _KILLS:
        turns = _turns(services)
        found += [turns[(seed * kills + number) % len(turns)] for number in range(kills)]
    return found


def seeds_for_all() -> int:
    """How many neighbouring seeds it takes until every point has had its turn."""
    return max(-(-len(_turns(services)) // kills) for services, kills in _KILLS)


@cache
def _turns(services: tuple[str, ...]) -> Sequence[str]:
    """The points of some services, mixed: neighbours would be killed at one after the other."""
    turns = [point for point in all_points() if point.partition(".")[0] in services]
    random.Random("turns").shuffle(turns)  # noqa: S311
    return tuple(turns)
