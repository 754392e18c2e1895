"""A broker that stops and starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import SERVICES

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

# Shorter than a publisher waits, mostly; longer, and services end and start again.
_DOWN_S = (0.05, 1.0, 8.0, 45.0, 300.0)


class Bus(Hasty):
    """Stops the broker at any moment, for moments or for longer than publishers wait."""

    name: ClassVar[str] = "bus"

    async def disturb(self, world: FaultWorld) -> None:
        """Stop and start it, a few times in all."""
        # Who cannot publish for long ends, and is started again.
        self.notes["may_crash"] = SERVICES
        world.most_crashes = 1_000
        for _ in range(self.rng.randint(3, 6)):
            await asyncio.sleep(self.rng.random() * 6)
            before = world.broker.last_seq
            world.broker.stop()
            down_s = self.rng.choice(_DOWN_S)
            await asyncio.sleep(down_s)
            world.broker.start()
            if before:
                self.hit()
