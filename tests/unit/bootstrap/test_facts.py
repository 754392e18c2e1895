"""The facts that a shell collects: the market's clock, disks, snapshots, what fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.application.health.conditions import ConditionKind, HealthLimits
from spotline.application.health.flow import Failing
from spotline.application.market_ingest.handler import IngestOptions, IngestState
from spotline.application.spec import Timer
from spotline.bootstrap.facts import MarketWatch, WatchedSnapshots, free_space, ledger_folder
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.generate import generate
from spotline.domain.units import NS_PER_S
from spotline.runtime.trouble import Trouble

START_NS = 1_772_323_200_000_000_000
MARKET = generate("mixed", seed=1, slots=3, slot_s=600, start_ns=START_NS)


def state(slot: int, *, settled: bool = True) -> IngestState:
    found = IngestState(opened=True, settled=settled)
    found.slot = slot
    return found


def test_a_slot_is_due_until_the_market_has_ended() -> None:
    watch = MarketWatch(MARKET, IngestOptions(slot_interval_s=5.0), None)
    assert watch.gate is None
    facts = watch.slot_facts(state(1, settled=False))
    assert (facts.due, facts.interval_s, facts.settled) == (True, 5.0, False)
    assert watch.slot_facts(state(2)).why_not == "the market has ended"


def test_no_slot_is_due_while_the_market_waits_for_work() -> None:
    watch = MarketWatch(MARKET, IngestOptions(wait_for_work=True), None)
    waiting = state(0)
    assert watch.slot_facts(waiting).why_not == "it waits for work"
    waiting.work.unfinished.add("a job")
    assert watch.slot_facts(waiting).due


def test_by_the_wall_clock_a_slot_is_due_when_its_time_has_come() -> None:
    now_ns = START_NS + 600 * NS_PER_S - 1
    options = IngestOptions(barrier=False, wall_clock=True)
    watch = MarketWatch(MARKET, options, None, clock_ns=lambda: now_ns)
    assert watch.slot_facts(state(0)).why_not == "its time has not come"
    now_ns += 1
    facts = watch.slot_facts(state(0))
    assert facts.due
    assert facts.interval_s == 600.0


async def test_no_slot_is_due_while_the_market_is_held_back() -> None:
    let_go = asyncio.Event()

    async def gate(timer: Timer) -> None:
        await let_go.wait()

    watch = MarketWatch(MARKET, IngestOptions(), gate)
    assert watch.slot_facts(state(0)).due
    held = asyncio.create_task(watch.gate(Timer(timer_id="slot:1", after_s=0.0, events=())))
    await asyncio.sleep(0)
    assert watch.slot_facts(state(0)).why_not == "it is held back"
    let_go.set()
    await held
    assert watch.slot_facts(state(0)).due


class Store:
    """A snapshot store that fails when it is told to."""

    fails = False

    async def put(self, name: str, data: bytes) -> None:
        if self.fails:
            raise ProviderUnavailable("no room")

    async def get(self, name: str) -> bytes | None:
        return b"kept"

    async def set_aside(self, name: str) -> None:
        return None


async def test_a_snapshot_that_is_not_saved_is_noted_until_one_is() -> None:
    store = Store()
    watched = WatchedSnapshots(store)
    await watched.put("forecaster", b"")
    assert watched.trouble.failing is None
    store.fails = True
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            await watched.put("forecaster", b"")
    assert watched.trouble.failing is not None
    assert (watched.trouble.failing.times, watched.trouble.failing.problem) == (2, "no room")
    store.fails = False
    await watched.put("forecaster", b"")
    assert watched.trouble.failing is None
    assert await watched.get("forecaster") == b"kept"


def test_trouble_tells_since_when_and_when_last() -> None:
    now_s = 10.0
    trouble = Trouble(lambda: now_s)
    trouble.failed("first")
    now_s = 13.0
    trouble.failed("second")
    assert trouble.failing == Failing(since_s=10.0, last_s=13.0, times=2, problem="second")
    trouble.ended()
    assert trouble.failing is None


def test_room_is_looked_at_where_store_and_ledger_are(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    assert ledger_folder(url) == {"the ledger": tmp_path}
    assert ledger_folder("postgresql://host/ledger") == {}
    kept = {"the store": tmp_path, **ledger_folder(url)}
    (found,) = free_space(kept, HealthLimits(disk_free_bytes=0))(0.0)
    assert found.kind is ConditionKind.DISK
    assert found.healthy
    (full,) = free_space(kept, HealthLimits(disk_free_bytes=1 << 60))(0.0)
    assert not full.healthy


def test_a_folder_that_cannot_be_looked_at_has_no_room(tmp_path: Path) -> None:
    (found,) = free_space({"the store": tmp_path / "gone"}, HealthLimits())(0.0)
    assert not found.healthy
    assert found.detail == "0 B are free where the store (No such file or directory) is"
