"""A broker that stops and starts, and books that lose something meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.families.losses import OF_LEDGER, OF_LOG, Losses, drawn
from spotline.bench.faults.loss_oracles import AFTER_LEDGER_LOSS, AFTER_LOG_LOSS
from spotline.bench.faults.points import SERVICES
from spotline.bench.faults.scenario import Scenario

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

# Shorter than a publisher waits, mostly; longer, and services end and start again.
_DOWN_S = (0.05, 1.0, 8.0, 45.0, 300.0)


class Bus(Hasty):
    """Stops the broker at any moment, for moments or for longer than publishers wait.

    Of three neighbouring seeds one loses parts of the log, one the ledger or its latest part.
    """

    name: ClassVar[str] = "bus"

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        self.losses: Losses | None = None
        kind = scenario.seed % 3
        if kind:
            self.losses = drawn(rng, OF_LOG if kind == 1 else OF_LEDGER)
            self.always = AFTER_LOG_LOSS if kind == 1 else AFTER_LEDGER_LOSS
            self.same_ledger = False

    async def before_slot(self, world: FaultWorld, slot: int) -> None:
        """Note how far the market has come."""
        if self.losses is not None:
            self.losses.reached(slot)

    async def disturb(self, world: FaultWorld) -> None:
        """Stop and start it, a few times in all."""
        # Who cannot publish for long ends, and is started again.
        self.notes["may_crash"] = SERVICES
        world.most_crashes = 1_000
        if self.losses is not None:
            await self.losses.run(world, self.rng, self.hit)
            return
        for _ in range(self.rng.randint(3, 6)):
            await asyncio.sleep(self.rng.random() * 6)
            before = world.broker.last_seq
            world.broker.stop()
            down_s = self.rng.choice(_DOWN_S)
            await asyncio.sleep(down_s)
            world.broker.start()
            if before:
                self.hit()
