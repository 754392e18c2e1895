"""Losses of log and ledger: an end cut off, all of it gone, an older copy put back."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.bench.faults.points import SERVICES
from spotline.bench.faults.stream import BrokerCopy

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

# By then a killed process has let go of what it had open.
_LET_GO_S = 6.0
# Early enough for what follows to show, late enough for something to be lost.
_FIRST_SLOT, _LAST_SLOT = 4, 26
_MOST_LOSSES = 2
# Entries of a small cut; a slot has eight or so.
_FEW = 4
# So often a copy is older by less than a slot, which no slot number shows.
_SAME_SLOT = 0.4


@dataclass(slots=True)
class Copies:
    """Copies that were taken before the loss that they are put back by."""

    log: BrokerCopy | None = None
    ledger: Path | None = None


Loss = Callable[["FaultWorld", random.Random, Copies], Awaitable[bool]]


@dataclass(slots=True)
class Losses:
    """When what is lost: drawn once, before the run; `slots` are (of the copy, of the loss)."""

    slots: Sequence[tuple[int, int]]
    losses: Sequence[Loss]
    told: list[str] = field(default_factory=list)
    _slot: int = -1
    _later: asyncio.Event = field(default_factory=asyncio.Event)

    def reached(self, slot: int) -> None:
        """Note how far the market has come."""
        self._slot = slot
        self._later.set()

    async def run(self, world: FaultWorld, rng: random.Random, hit: Callable[[], None]) -> None:
        """Lose one after the other."""
        for (copied, lost), loss in zip(self.slots, self.losses, strict=True):
            copies = Copies()
            await self._wait_for(copied)
            await asyncio.sleep(rng.random() / 2)
            copies.log = world.broker.copy()
            copies.ledger = _copied(world.ledger_file, world.folder / f"copy-{lost}.sqlite")
            await self._wait_for(lost)
            await asyncio.sleep(rng.random() / 2)
            if await loss(world, rng, copies):
                self.told.append(loss.__name__)
                hit()

    async def _wait_for(self, slot: int) -> None:
        while self._slot < slot:
            self._later.clear()
            await self._later.wait()


def drawn(rng: random.Random, kinds: Sequence[Loss]) -> Losses:
    """Draw one or two losses; a copy may be of the very slot in which it is put back."""
    count = rng.randint(1, _MOST_LOSSES)
    edges = sorted(rng.sample(range(_FIRST_SLOT, _LAST_SLOT), 2 * count))
    pairs = [
        (lost if rng.random() < _SAME_SLOT else copied, lost)
        for copied, lost in zip(edges[::2], edges[1::2], strict=True)
    ]
    return Losses(slots=pairs, losses=[rng.choice(kinds) for _ in pairs])


# --- of the log -------------------------------------------------------------------------------


async def tail_lost(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Cut up to a third of the log off."""
    last_seq = world.broker.last_seq
    kept = rng.randint(last_seq * 2 // 3, last_seq)
    return await _lost(world, rng, lambda: world.broker.cut(kept))


async def end_lost(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Cut the last entries off: fewer than a slot has."""
    last_seq = world.broker.last_seq
    kept = max(last_seq - rng.randint(1, _FEW), 0)
    return await _lost(world, rng, lambda: world.broker.cut(kept))


async def log_wiped(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Lose the stream."""
    return await _lost(world, rng, world.broker.wipe)


async def log_restored_older(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Put the copy of the broker's disk back."""
    copy = copies.log
    assert copy is not None  # noqa: S101 - taken before each loss
    return await _lost(world, rng, lambda: world.broker.restore(copy))


async def _lost(world: FaultWorld, rng: random.Random, lose: Callable[[], None]) -> bool:
    """Lose something while the broker is down; the store is started again, or each for itself."""
    before = len(world.broker.lost)
    at_once = rng.random() < 0.5
    if at_once:
        for service in SERVICES:
            world.bar(service)
        await asyncio.sleep(_LET_GO_S)
        # Whoever records ends as the rest does.
        await world.store.note_end()
    else:
        world.store.record()
    world.broker.stop()
    await asyncio.sleep(rng.random())
    lose()
    world.store.unsettled = True
    world.broker.start()
    for service in SERVICES if at_once else ():
        world.unbar(service)
    return len(world.broker.lost) > before


# --- of the ledger ----------------------------------------------------------------------------


async def ledger_lost(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Delete the ledger's file."""
    return await _ledger_replaced(world, None)


async def ledger_restored_older(world: FaultWorld, rng: random.Random, copies: Copies) -> bool:
    """Put the copy of the ledger back."""
    return copies.ledger is not None and await _ledger_replaced(world, copies.ledger)


async def _ledger_replaced(world: FaultWorld, copy: Path | None) -> bool:
    world.bar("cloud_actuator")
    await asyncio.sleep(_LET_GO_S)
    for file in world.folder.glob(f"{world.ledger_file.name}*"):
        file.unlink()
    if copy is not None:
        _copied(copy, world.ledger_file)
    world.unbar("cloud_actuator")
    return True


def _copied(source: Path, target: Path) -> Path | None:
    if not source.exists():
        return None
    with closing(sqlite3.connect(source)) as ledger, closing(sqlite3.connect(target)) as copy:
        ledger.backup(copy)
    return target


OF_LOG: tuple[Loss, ...] = (tail_lost, end_lost, log_wiped, log_restored_older)
OF_LEDGER: tuple[Loss, ...] = (ledger_lost, ledger_restored_older)
