"""Ledgers filled by stories, and looks into their databases past the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, create_engine, insert, select

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.opening import open_engine
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import (
    Admission,
    Instance,
    LedgerEnd,
    LedgerEntry,
    LedgerLaunch,
)
from spotline.domain.events.capacity import CostAccrued, RefusalClass
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.bills import BillSource, Settlement
from spotline.domain.ledger.cooldowns import Cooldown, CoolingScope
from spotline.domain.ledger.instance_life import InstanceLife, LifeInput, LifeState, Transition
from spotline.domain.ledger.intents import Intent, IntentResult, Launch
from spotline.domain.ledger.job_records import JobRecord
from spotline.domain.market.offering import CapacityType


def intent(command_id: str = "c", *, job_id: str = "j", ts_ns: int = 60, **others: Any) -> Intent:
    return Intent(
        **{
            "command_id": command_id,
            "attempt": 0,
            "job_id": job_id,
            "tenant": "acme",
            "quota_pool": "pool",
            "offering_id": "a",
            "slot": 1,
            "revision": 0,
            "offset_s": 0,
            "ts_ns": ts_ns,
            "target": Lot(offering_id="a", spot=2),
            "release": (),
            "launches": (
                Launch(capacity_type=CapacityType.SPOT, requested=3, permitted=2, token="t"),
            ),
            **others,
        }
    )


def instance_launch(
    instance_id: str,
    *,
    slot: int = 0,
    offset_s: int = 0,
    job_id: str = "j",
    offering_id: str = "a",
    capacity_type: CapacityType = CapacityType.SPOT,
) -> LedgerLaunch:
    return LedgerLaunch(
        instance=Instance(
            instance_id=instance_id,
            token="t",
            job_id=job_id,
            tenant="acme",
            quota_pool="pool",
            offering_id=offering_id,
            capacity_type=capacity_type,
            ready_ns=0,
        ),
        command_id="c",
        attempt=0,
        slot=slot,
        offset_s=offset_s,
    )


def cost(micro_usd: int, *, slot: int = 0, job_id: str = "j", **others: Any) -> CostAccrued:
    return CostAccrued(
        **{
            "job_id": job_id,
            "tenant": "acme",
            "offering_id": "a",
            "quota_pool": "pool",
            "capacity_type": CapacityType.SPOT,
            "slot": slot,
            "instances": 1,
            "held_s": 60,
            "price_micro_usd": 5,
            "cost_micro_usd": micro_usd,
            **others,
        }
    )


def life(
    instance_id: str = "i1", state: LifeState = LifeState.PENDING, **others: Any
) -> InstanceLife:
    return InstanceLife(
        **{
            "instance_id": instance_id,
            "token": "t",
            "command_id": "c",
            "attempt": 0,
            "job_id": "j",
            "tenant": "acme",
            "quota_pool": "pool",
            "offering_id": "a",
            "capacity_type": CapacityType.SPOT,
            "state": state,
            "since_ns": 5,
            **others,
        }
    )


def became(after: InstanceLife, before: LifeState, what: LifeInput, at_ns: int = 5) -> Transition:
    return Transition(life=after, before=before, what=what, at_ns=at_ns)


def cooldown(key: str = "spot/a", **others: Any) -> Cooldown:
    return Cooldown(
        **{
            "scope": CoolingScope.OFFERING,
            "key": key,
            "refusal_class": RefusalClass.NO_CAPACITY,
            "refusals": 1,
            "refused_ns": 7,
            "until_ns": 187,
            "epoch": 0,
            "detail": "none left",
            **others,
        }
    )


def fill(ledger: SqlLedger) -> None:
    """Write at least one row into every table."""
    asked = intent(release=("x",))
    ledger.write_intents([asked])
    result = IntentResult(intent=asked, granted_spot=2, granted_on_demand=0, refused=1, detail="no")
    running = life(shown=True, state=LifeState.RUNNING)
    ledger.record(
        LedgerEntry(
            call_key="k",
            slot=1,
            answers=(cost(7),),
            results=(result,),
            launched=(instance_launch("i1"), instance_launch("i2")),
            ended=(LedgerEnd(instance_id="i1", slot=0, offset_s=60, reason="lost"),),
            charges=(Charge(start_s=0, cost=cost(7, instances=2)),),
            transitions=(became(running, LifeState.PENDING, LifeInput.SEEN_RUNNING),),
            cooldowns=(cooldown(),),
            taken=("event-1",),
        )
    )
    ledger.settle([Settlement(instance_id="i1", source=BillSource.PROVIDER, micro_usd=4, ts_ns=90)])
    withdrawn = JobCancelled(job_id="j", tenant="acme")
    record = JobRecord(event_id="e", correlation_id="j", job_id="j", event=withdrawn)
    ledger.admit(
        [Admission(job_id="j", tenant="acme", digest="d", slot=1, ts_ns=60, record=record)]
    )
    ledger.claim("0" * 32, 1)


@contextmanager
def raw(url: str) -> Iterator[Connection]:
    """A transaction in a ledger's database, which asks nobody."""
    engine = open_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def rows_by_table(url: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of the newest schema, sorted by key."""
    with raw(url) as connection:
        return {
            table.name: [
                row._asdict()
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in t.METADATA.tables.values()
        }


def copied(file: Path, url: str) -> str:
    """Copy an old SQLite ledger as it is, tables and rows, into an empty database; gives its URL."""
    source = create_engine(f"sqlite:///{file}")
    metadata = MetaData()
    metadata.reflect(source)
    with raw(url) as target, source.connect() as old:
        for table in metadata.tables.values():
            for column in table.primary_key.columns:
                column.autoincrement = False  # as the old release made them
        metadata.create_all(target)
        for table in metadata.sorted_tables:
            rows = [row._asdict() for row in old.execute(select(table))]
            if rows:
                target.execute(insert(table), rows)
    source.dispose()
    return url
