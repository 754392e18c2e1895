"""Have a store go on after a loss: what is to be done, and doing it, step by step."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nats.js.errors

from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.adapters.nats.snapshots import NatsSnapshotStore
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.incarnations import LogFinding, LogRemembered, conclude
from spotline.bootstrap.installed import ledger_there, note_end, remembered_log, remembered_of
from spotline.bootstrap.store_check import damaged_snapshots
from spotline.bootstrap.store_opened import connected, refuse_absent, refuse_in_use
from spotline.contracts.errors import ConfigError
from spotline.contracts.publishers import STORE
from spotline.runtime.log_settling import settled_log
from spotline.runtime.retelling import lost_jobs_detail, missing_in, tell_again

REPAIRS_FILE = "repairs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One thing to do, or that was done."""

    step: str
    detail: str


async def repair_store(
    store: Path, *, nats_url: str = "", partition: int = 0, perform: bool
) -> list[RepairStep]:
    """What is to be done for a store to go on, none where it is well; with `perform` it is done.

    Every step may be repeated: what was done already is no step any more. Each that is done is
    noted in `repairs.jsonl` of the store.

    Raises
    ------
    ConfigError
        A system runs on the store, store, ledger and log belong to different installations, or
        there is no store.
    LedgerDamaged
        The ledger is to be restored first.
    """
    refuse_absent(store)
    refuse_in_use(store, "repair")
    async with AsyncExitStack() as stack:
        ledger = await asyncio.to_thread(ledger_there, store)
        if ledger is not None:
            stack.callback(ledger.close)
            await asyncio.to_thread(ledger.audit)
        remembered = await asyncio.to_thread(
            remembered_log if perform else remembered_of, store, ledger
        )
        connection, stream = await stack.enter_async_context(
            connected(store, nats_url=nats_url, partition=partition, known_as=STORE)
        )
        steps: list[RepairStep] = []
        try:
            await stream.look()
        except nats.js.errors.NotFoundError:
            steps.append(RepairStep(step="make the log", detail=f"{stream.name} is gone"))
            if not perform:
                lost = () if ledger is None else await asyncio.to_thread(ledger.job_records)
                jobs = sorted({record.job_id for record in lost})
                steps.append(RepairStep(step="submit again", detail=", ".join(jobs) or "no job"))
                return steps
            stream = await NatsEventStream.open(connection, partition=partition)
            _note(store, steps[-1])
        if ledger is not None:
            lost_jobs = (await missing_in(stream, ThreadedLedger(ledger))).lost
            if lost_jobs:
                reason = remembered.restored or lost_jobs_detail(lost_jobs)
                remembered = replace(remembered, restored=reason)
        steps += await _begin(store, stream, remembered, perform=perform)
        steps += await _clear_snapshots(store, stream, perform=perform)
        if ledger is not None:
            steps += await _say_again(store, stream, ledger, remembered, perform=perform)
        return steps


async def _clear_snapshots(
    store: Path, stream: NatsEventStream, *, perform: bool
) -> list[RepairStep]:
    names = await damaged_snapshots(stream)
    steps = [RepairStep(step="set a snapshot aside", detail=name) for name in names]
    if perform:
        kept = NatsSnapshotStore(stream.connection, partition=stream.partition)
        for step in steps:
            await kept.set_aside(step.detail.partition(" ")[0])
            _note(store, step)
    return steps


async def _say_again(
    store: Path,
    stream: NatsEventStream,
    ledger: SqlLedger,
    remembered: LogRemembered,
    *,
    perform: bool,
) -> list[RepairStep]:
    missing = await missing_in(stream, ThreadedLedger(ledger))
    steps = [
        RepairStep(
            step="say again", detail=f"{type(again.event).__name__} of job {again.correlation_id}"
        )
        for again in missing.retold
    ]
    if perform and steps:
        await tell_again(stream, ThreadedLedger(ledger), remembered)
        for step in steps:
            _note(store, step)
    return steps


async def _begin(
    store: Path, stream: NatsEventStream, remembered: LogRemembered, *, perform: bool
) -> list[RepairStep]:
    seen = await stream.seen()
    conclusion = conclude(seen, remembered)
    if conclusion.finding is LogFinding.FOREIGN:
        raise ConfigError(f"store: {conclusion.detail}: give the store that belongs to the log")
    if not conclusion.begins:
        return []
    step = RepairStep(
        step=f"begin incarnation {conclusion.incarnation}",
        detail=f"{conclusion.detail}; followers' floors hold up to entry {seen.last_seq}",
    )
    if perform:
        await settled_log(stream, remembered)
        await note_end(store, stream)
        _note(store, step)
    return [step]


def _note(store: Path, step: RepairStep) -> None:
    """Keep on the disk what was done, and when, ns since the epoch."""
    line = json.dumps({"ts_ns": time.time_ns(), **asdict(step)}, sort_keys=True)
    with (store / REPAIRS_FILE).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
