"""Two processes of one service: one stands still, another takes over, and the first goes on."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.application.cloud_actuator.ports import CloudProvider, Grant, LaunchRequest, Owner
from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import Lifeline, all_points
from spotline.bench.faults.scenario import Scenario

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_TAKEOVERS = 5
_HELD_S = (0.05, 2.0, 60.0, 600.0)
# Those with most to lose take over most.
_SHARE_OF_ACTUATOR = 0.6
# What is meant is written, and nothing is called yet: who is held here must call nothing any more.
_MEANT = "cloud_actuator.Ledger.write_intents.after"


def _is_past_help(point: str) -> bool:
    """Whether it lies between the look at the epoch and the call itself: there nothing can help."""
    return point.endswith("check_epoch.after") or ".CloudProvider." in point


class Owners(Hasty):
    """Holds a process at a fail point, starts another in its place, and lets the first go on."""

    name: ClassVar[str] = "owners"

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        reached = [point for point in all_points() if self.calm_points[point]]
        # Once one was held where nothing can help, a former owner's call proves nothing: in every
        # second run none is.
        if scenario.seed % 2 == 0:
            reached = [point for point in reached if not _is_past_help(point)]
        ours = [point for point in reached if point.startswith("cloud_actuator.")]
        self._due: dict[str, int] = {}
        for _ in range(_TAKEOVERS if reached else 0):
            point = rng.choice(ours if rng.random() < _SHARE_OF_ACTUATOR else reached)
            self._due[point] = rng.randint(1, min(self.calm_points[point], 60))
        if _MEANT in reached:
            self._due[_MEANT] = rng.randint(1, min(self.calm_points[_MEANT], 60))
        self._reached: Counter[str] = Counter()
        self._held: asyncio.Queue[Lifeline] = asyncio.Queue()
        self._ledger = Path()
        self.unavoidable = 0

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud, and a look at whose calls come to it."""
        return cast("CloudProvider", EpochWatch(cloud, self))

    def reach(self, line: Lifeline, point: str) -> None:
        """Hold the process where it is due."""
        self._reached[point] += 1
        if self._due.get(point) == self._reached[point] and line.held is None:
            line.held = asyncio.Event()
            if _is_past_help(point):
                self.unavoidable += 1
            self._held.put_nowait(line)

    def called(self, owner: Owner) -> None:
        """A call that changes something has reached the cloud."""
        with closing(sqlite3.connect(self._ledger)) as ledger:
            (epoch,) = ledger.execute("SELECT max(epoch) FROM owners").fetchone()
        if owner.epoch < epoch and not self.unavoidable:
            stale = self.notes.setdefault("stale_calls", [])
            stale.append(f"epoch {owner.epoch} called the cloud while {epoch} was the owner")  # type: ignore[attr-defined]

    async def disturb(self, world: FaultWorld) -> None:
        """Start the other, then let the first go on."""
        self._ledger = world.ledger_file
        async with asyncio.TaskGroup() as tasks:
            while True:
                line = await self._held.get()
                if line.held is None or world.lines[line.service] is not line:
                    continue
                tasks.create_task(world.keep(line.service))
                self.hit()
                await asyncio.sleep(self.rng.choice(_HELD_S))
                line.held.set()


class EpochWatch:
    """The simulated cloud, and whose calls come to it."""

    def __init__(self, inner: SimulatedCloud, family: Owners) -> None:
        self._inner, self._family = inner, family

    def __getattr__(self, name: str) -> Any:
        """As the cloud's."""
        return getattr(self._inner, name)

    async def launch(self, request: LaunchRequest) -> Grant:
        """Note whose call it is, and launch."""
        self._family.called(request.owner)
        return await self._inner.launch(request)

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Note whose call it is, and end them."""
        self._family.called(owner)
        await self._inner.terminate(owner, instance_ids)
