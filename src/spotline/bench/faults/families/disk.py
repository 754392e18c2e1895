"""Disks that are full or turn bits over."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.families.losses import OF_LEDGER, Losses, drawn
from spotline.bench.faults.loss_oracles import AFTER_LEDGER_LOSS
from spotline.bench.faults.points import SERVICES
from spotline.bench.faults.scenario import Scenario

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_ROUNDS = 3
# The seed's rest by three, of those that lose the ledger.
_LOSES = 2
_FULL_S = (1.0, 20.0, 90.0)
# What a bit can be turned over in; any of it would change what is spent or bought.
_BITS = (("charges", "cost_micro_usd"), ("instances", "start_offset_s"), ("intents", "launching"))


class Disk(Hasty):
    """Fills the broker's disk for a while, and turns a bit over in a ledger that is then restored.

    Of three neighbouring seeds one then loses the ledger, or gets an older copy back.
    """

    name: ClassVar[str] = "disk"

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        self.losses: Losses | None = None
        if scenario.seed % 3 == _LOSES:
            self.losses = drawn(rng, OF_LEDGER)
            self.always = AFTER_LEDGER_LOSS
            self.same_ledger = False

    async def before_slot(self, world: FaultWorld, slot: int) -> None:
        """Note how far the market has come."""
        if self.losses is not None:
            self.losses.reached(slot)

    async def disturb(self, world: FaultWorld) -> None:
        """One after the other, a few times."""
        # A service that cannot publish for long ends; one whose ledger is damaged does not start.
        self.notes["may_crash"] = SERVICES
        world.most_crashes = 1_000
        for _ in range(_ROUNDS if self.losses is None else 1):
            await asyncio.sleep(2 + self.rng.random() * 6)
            before = world.broker.last_seq
            world.broker.full = True
            await asyncio.sleep(self.rng.choice(_FULL_S))
            world.broker.full = False
            if before:
                self.hit()
            await self._turn_a_bit_over(world)
        if self.losses is not None:
            await self.losses.run(world, self.rng, self.hit)

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
