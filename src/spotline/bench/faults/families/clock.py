"""Clocks that are wrong, and processes that stand still for hours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import SERVICES
from spotline.domain.units import NS_PER_S

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_JUMPS_S = (-86_400, -3_600, -30, 30, 3_600, 86_400, 400 * 86_400)
_PAUSES_S = (60.0, 3_600.0, 4 * 3_600.0)


class Clock(Hasty):
    """The broker's clock jumps by up to years; services are paused for up to hours."""

    name: ClassVar[str] = "clock"

    async def disturb(self, world: FaultWorld) -> None:
        """Jump, or have a service stand still, every few moments."""
        for _ in range(self.rng.randint(6, 10)):
            await asyncio.sleep(self.rng.random() * 4)
            if self.rng.random() < 0.6:
                world.clock_skew_ns += self.rng.choice(_JUMPS_S) * NS_PER_S
                self.hit()
            else:
                service = self.rng.choice(SERVICES)
                world.pause(service, self.rng.choice(_PAUSES_S))
                self.hit()
