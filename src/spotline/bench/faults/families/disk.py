"""Disks that are full or turn bits over."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.points import SERVICES

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_ROUNDS = 3
_FULL_S = (1.0, 20.0, 90.0)
# What a bit can be turned over in; any of it would change what is spent or bought.
_BITS = (("charges", "cost_micro_usd"), ("instances", "start_offset_s"), ("intents", "launching"))


class Disk(Hasty):
    """Fills the broker's disk for a while, and turns a bit over in a ledger that is then restored."""

    name: ClassVar[str] = "disk"

    async def disturb(self, world: FaultWorld) -> None:
        """One after the other, a few times."""
        # A service that cannot publish for long ends; one whose ledger is damaged does not start.
        self.notes["may_crash"] = SERVICES
        world.most_crashes = 1_000
        for _ in range(_ROUNDS):
            await asyncio.sleep(2 + self.rng.random() * 6)
            before = world.broker.last_seq
            world.broker.full = True
            await asyncio.sleep(self.rng.choice(_FULL_S))
            world.broker.full = False
            if before:
                self.hit()
            await self._turn_a_bit_over(world)

    async def _turn_a_bit_over(self, world: FaultWorld) -> None:
        if "cloud_actuator" not in world.hosts:
            return
        world.bar("cloud_actuator")
        await asyncio.sleep(6)
        table, column = self.rng.choice(_BITS)
        before = len(world.crashes.get("cloud_actuator", ()))
        with closing(sqlite3.connect(world.ledger_file)) as ledger:
            rows = ledger.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            if rows:
                place = self.rng.randrange(rows)
                turn = (
                    f"UPDATE {table} SET {column} = {column} + ? "  # noqa: S608
                    f"WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET ?)"
                )
                ledger.execute(turn, (64, place))
                ledger.commit()
        world.unbar("cloud_actuator")
        if not rows:
            return
        await asyncio.sleep(30)
        said = world.crashes.get("cloud_actuator", [])[before:]
        if not any("LedgerDamaged" in each and table in each for each in said):
            self.notes.setdefault("unrefused", []).append(  # type: ignore[attr-defined]
                f"a bit of {table}.{column} was turned over, and nobody said so: {said[:1]}"
            )
        with closing(sqlite3.connect(world.ledger_file)) as ledger:
            ledger.execute(turn, (-64, place))
            ledger.commit()
        self.hit()
