"""Stores of another release: newer ones are refused, and what can be made again is."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.runtime.snapshots import Snapshot, opened, sealed

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_ROUNDS = 3
_NEWER = 999
_LOOK_EVERY_S = 0.5


class Version(Hasty):
    """Brings in a snapshot and a ledger of a newer release, and takes the ledger back again."""

    name: ClassVar[str] = "version"

    async def disturb(self, world: FaultWorld) -> None:
        """One after the other, a few times."""
        self.notes["may_crash"] = ("cloud_actuator",)
        world.most_crashes = 1_000
        for _ in range(_ROUNDS):
            await asyncio.sleep(2 + self.rng.random() * 6)
            # Before there is one, a newer one would be brought to nobody; nobody says when there is.
            while not world.broker.snapshots:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY_S)
            self._newer_snapshot(world)
            await self._newer_ledger(world)

    def _newer_snapshot(self, world: FaultWorld) -> None:
        for name, data in sorted(world.broker.snapshots.items()):
            kept = opened(data)
            # It says that it covers all there is; what its release means by that nobody here knows.
            newer = Snapshot(
                seq=world.broker.last_seq, version=f"{_NEWER} of tomorrow", content=kept.content
            )
            world.broker.snapshots[name] = sealed(newer)
            world.kill(name.partition(".")[0])
            self.hit()

    async def _newer_ledger(self, world: FaultWorld) -> None:
        if "cloud_actuator" not in world.hosts:
            return
        world.bar("cloud_actuator")
        await asyncio.sleep(6)
        with closing(sqlite3.connect(world.ledger_file)) as ledger:
            (version,) = ledger.execute("SELECT version FROM ledger_schema").fetchone()
            ledger.execute("UPDATE ledger_schema SET version = ?", (_NEWER,))
            ledger.commit()
        world.unbar("cloud_actuator")
        before = len(world.crashes.get("cloud_actuator", ()))
        # Said first: where nobody refuses it the run may end before this goes on.
        unrefused: list[str] = self.notes.setdefault("unrefused", [])  # type: ignore[assignment]
        unrefused.append(f"a ledger of schema {_NEWER} was not refused with both versions")
        await asyncio.sleep(30)
        said = world.crashes.get("cloud_actuator", [])[before:]
        if any(str(_NEWER) in each and str(version) in each for each in said):
            unrefused.pop()
        with closing(sqlite3.connect(world.ledger_file)) as ledger:
            ledger.execute("UPDATE ledger_schema SET version = ?", (version,))
            ledger.commit()
        self.hit()
