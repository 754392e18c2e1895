"""Messages that come twice, late, again and out of turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_DEEDS = 100


class Duplicate(Hasty):
    """Stores entries again under new ids or beyond the duplicate window, and delivers them again."""

    name: ClassVar[str] = "duplicate"

    async def disturb(self, world: FaultWorld) -> None:
        """Every few moments, do one of these things."""
        for _ in range(_DEEDS):
            await asyncio.sleep(self.rng.random())
            if not world.broker.entries:
                continue
            deed = self.rng.random()
            if deed < 0.6:
                self._store_again(world)
            elif deed < 0.8:
                self._deliver_again(world)
            else:
                self._lose_acknowledgement(world)

    def _store_again(self, world: FaultWorld) -> None:
        broker = world.broker
        # Recent ones mostly: they can do most harm.
        back = min(int(self.rng.expovariate(0.1)), len(broker.entries) - 1)
        entry = broker.entries[-1 - back]
        message_id = entry.headers.get("Nats-Msg-Id", "")
        if self.rng.random() < 0.5:
            message_id = f"again-{self.faults}-{message_id}"
        else:
            broker.forget_ids()
        before = broker.last_seq
        broker.store_again(entry, message_id)
        if broker.last_seq > before:
            self.hit()

    def _deliver_again(self, world: FaultWorld) -> None:
        owners = [place.owner for _, place in sorted(world.broker.places.items())]
        owner = self.rng.choice(owners) if owners else None
        if owner is not None and owner.rewind():
            self.hit()

    def _lose_acknowledgement(self, world: FaultWorld) -> None:
        """The broker forgets that an entry was acknowledged: a place goes back."""
        name = self.rng.choice(sorted(world.broker.places) or [""])
        place = world.broker.places.get(name)
        if place is not None and place.acked_seq > 1:
            place.acked_seq -= self.rng.randint(1, min(place.acked_seq, 5))
            line = world.lines.get(name)
            if line is not None and self.rng.random() < 0.3:
                # Seen by the next process only: this one knows better.
                line.alive = False
            self.hit()
