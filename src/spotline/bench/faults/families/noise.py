"""Bytes that are nothing: cut off, turned over, far too many, on every subject and in snapshots."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.contracts.envelope import StoredEntry

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_DEEDS = 14
_MANY_BYTES = 4_000_000


class Noise(Hasty):
    """Stores entries that were cut or turned over, and damages the forecaster's snapshot."""

    name: ClassVar[str] = "bytes"

    async def disturb(self, world: FaultWorld) -> None:
        """Write such entries; damage a snapshot, and have it read."""
        self.notes["foreign"] = set()
        self.notes["noise"] = 0
        for number in range(_DEEDS):
            await asyncio.sleep(self.rng.random() * 3)
            if number % 4 == 3:
                self._damage_snapshot(world)
            elif world.broker.entries:
                self._write(world, self.rng.choice(world.broker.entries), number)

    def _write(self, world: FaultWorld, like: StoredEntry, number: int) -> None:
        payload = self._spoilt(like.payload)
        event_id = f"{number:032x}"
        headers = {
            **like.headers,
            "ce-id": event_id,
            "ce-source": "spotline/stranger",
            "ce-causationid": "",
            "Nats-Msg-Id": event_id,
        }
        if self.rng.random() < 0.2:
            headers.pop("ce-type", None)
        self.notes["foreign"].add(event_id)  # type: ignore[attr-defined]
        self.notes["noise"] += 1  # type: ignore[operator]
        world.broker.store(like.subject, headers, payload)
        self.hit()

    def _spoilt(self, payload: bytes) -> bytes:
        match self.rng.randint(0, 2):
            case 0:
                # Never empty: that is a message, of nothing but defaults.
                return b"\xff" + payload[: len(payload) // 2]
            case 1:
                return b"\xff" * max(1, len(payload))
            case _:
                return b"\xff" + bytes(_MANY_BYTES)

    def _damage_snapshot(self, world: FaultWorld) -> None:
        for name, data in sorted(world.broker.snapshots.items()):
            if not data:
                continue
            place = self.rng.randrange(len(data))
            turned = bytes([data[place] ^ 0x10])
            damaged = (data[:place], data[:place] + turned + data[place + 1 :], b"")
            world.broker.snapshots[name] = self.rng.choice(damaged)
            world.kill(name.partition(".")[0])
            self.hit()
