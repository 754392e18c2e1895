"""The ledger in SQL: a SQLite file by default, any database of SQLAlchemy's by URL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    and_,
    create_engine,
    event,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.answers import dump_answers, load_answers
from spotline.application.cloud_actuator.ports import LedgerEntry, LedgerIntent, Owner, OwnerFenced
from spotline.contracts.errors import ConfigError
from spotline.domain.events.event import Event
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.billing import HeldInterval
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult, Launch
from spotline.domain.market.offering import CapacityType

# What two runs are compared by: everything but the epoch, which counts starts of the process.
_COMPARED = (t.intents, t.results, t.instances, t.charges)


def ledger_url(path: Path) -> str:
    """The URL of a SQLite ledger file."""
    return f"sqlite:///{path}"


class SqlLedger:
    """Holds what `Ledger` says; `ThreadedLedger` gives it to the actuator.

    Opening it takes over the owner: the epoch rises, older ones are fenced.

    Raises
    ------
    ConfigError
        The URL is malformed, the database cannot be opened or has another schema version.
    """

    def __init__(self, url: str, owner_name: str) -> None:
        self._engine = _engine(url)
        try:
            self._open_schema()
            self._owner = self._take_over(owner_name)
        except OperationalError as error:
            self._engine.dispose()
            raise ConfigError(f"the ledger {url} cannot be opened: {error.orig}") from error
        except ConfigError:
            self._engine.dispose()
            raise

    @property
    def owner(self) -> Owner:
        """Whose ledger this is, at the epoch of this process."""
        return self._owner

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    # --- reading ------------------------------------------------------------------------------

    def answers(self, call_key: str) -> tuple[Event, ...] | None:
        """What a call was answered, None if it was never finished."""
        query = select(t.answers.c.events).where(
            self._mine(t.answers), t.answers.c.call_key == call_key
        )
        rows = self._rows(query)
        return load_answers(rows[0].events) if rows else None

    def intents(self, command_ids: Sequence[str]) -> Mapping[str, LedgerIntent]:
        """The latest attempt at each of these commands that has any."""
        if not command_ids:
            return {}
        found: dict[str, LedgerIntent] = {}
        for row in self._intent_rows(t.intents.c.command_id.in_(command_ids)):
            intent = _intent(row)
            result = None
            if row.granted_spot is not None:
                result = IntentResult(
                    intent=intent,
                    granted_spot=row.granted_spot,
                    granted_on_demand=row.granted_on_demand,
                    refused=row.refused,
                    detail=row.detail,
                )
            found[intent.command_id] = LedgerIntent(intent=intent, result=result)
        return found

    def pending(self) -> Sequence[Intent]:
        """Intents without a result, in the order they were written."""
        return [_intent(row) for row in self._intent_rows(t.results.c.granted_spot.is_(None))]

    def held(self) -> Sequence[HeldInstance]:
        """What we hold, in launch order."""
        query = (
            select(t.instances)
            .where(self._mine(t.instances), t.instances.c.end_slot.is_(None))
            .order_by(t.instances.c.launch_order)
        )
        return [
            HeldInstance(
                instance_id=row.instance_id,
                job_id=row.job_id,
                tenant=row.tenant,
                quota_pool=row.quota_pool,
                offering_id=row.offering_id,
                capacity_type=CapacityType(row.capacity_type),
                order=row.launch_order,
                noticed_slot=row.noticed_slot,
            )
            for row in self._rows(query)
        ]

    def intervals(self, slot: int, slot_s: int) -> Sequence[HeldInterval]:
        """Who held what when inside a slot, in launch order."""
        c = t.instances.c
        query = (
            select(t.instances)
            .where(
                self._mine(t.instances),
                c.start_slot <= slot,
                or_(c.end_slot.is_(None), c.end_slot >= slot),
            )
            .order_by(c.launch_order)
        )
        return [
            HeldInterval(
                job_id=row.job_id,
                tenant=row.tenant,
                quota_pool=row.quota_pool,
                offering_id=row.offering_id,
                capacity_type=CapacityType(row.capacity_type),
                start_s=row.start_offset_s if row.start_slot == slot else 0,
                end_s=row.end_offset_s if row.end_slot == slot else slot_s,
            )
            for row in self._rows(query)
        ]

    def spend_by_job(self) -> Mapping[str, int]:
        """Micro-USD charged so far, by job, ordered by job id."""
        c = t.charges.c
        query = (
            select(c.job_id, func.sum(c.cost_micro_usd).label("micro_usd"))
            .where(self._mine(t.charges))
            .group_by(c.job_id)
            .order_by(c.job_id)
        )
        return {row.job_id: int(row.micro_usd) for row in self._rows(query)}

    def spend_micro_usd(self, job_id: str) -> int:
        """Micro-USD charged to one job so far."""
        return self.spend_by_job().get(job_id, 0)

    def total_micro_usd(self) -> int:
        """Micro-USD charged so far."""
        return sum(self.spend_by_job().values())

    def launches_since(self, ts_ns: int) -> int:
        """Instances we set out to launch after `ts_ns` of market time."""
        query = select(func.coalesce(func.sum(t.intents.c.launching), 0).label("launching")).where(
            self._mine(t.intents), t.intents.c.ts_ns > ts_ns
        )
        return int(self._rows(query)[0].launching)

    def comparable(self) -> dict[str, list[dict[str, Any]]]:
        """All rows by table, sorted by key and without the epoch: equal for equal runs."""
        found: dict[str, list[dict[str, Any]]] = {}
        for table in _COMPARED:
            columns = [column for column in table.columns if column.name != "epoch"]
            query = select(*columns).where(self._mine(table)).order_by(*table.primary_key.columns)
            found[table.name] = [dict(row._mapping) for row in self._rows(query)]
        return found

    # --- writing ------------------------------------------------------------------------------

    def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        with self._fenced() as connection:
            position = self._next(connection, t.intents.c.position)
            known = {
                (row.command_id, row.attempt)
                for row in connection.execute(
                    select(t.intents.c.command_id, t.intents.c.attempt).where(
                        self._mine(t.intents),
                        t.intents.c.command_id.in_([intent.command_id for intent in intents]),
                    )
                )
            }
            rows = [
                self._intent_row(intent, position + index)
                for index, intent in enumerate(intents)
                if (intent.command_id, intent.attempt) not in known
            ]
            if rows:
                connection.execute(insert(t.intents), rows)

    def record(self, entry: LedgerEntry) -> None:
        """Record what was done; once per call key."""
        with self._fenced() as connection:
            if entry.call_key:
                query = select(t.answers.c.call_key).where(
                    self._mine(t.answers), t.answers.c.call_key == entry.call_key
                )
                if connection.execute(query).first() is not None:
                    return
                row = {
                    "owner": self._owner.name,
                    "call_key": entry.call_key,
                    "slot": entry.slot,
                    "events": dump_answers(entry.answers),
                }
                connection.execute(insert(t.answers), [row])
            self._record_results(connection, entry)
            self._record_instances(connection, entry)
            if entry.charges:
                connection.execute(insert(t.charges), self._charge_rows(entry))

    def _record_results(self, connection: Connection, entry: LedgerEntry) -> None:
        rows = [
            {
                "owner": self._owner.name,
                "command_id": result.intent.command_id,
                "attempt": result.intent.attempt,
                "job_id": result.intent.job_id,
                "tenant": result.intent.tenant,
                "quota_pool": result.intent.quota_pool,
                "offering_id": result.intent.offering_id,
                "slot": result.intent.slot,
                "granted_spot": result.granted_spot,
                "granted_on_demand": result.granted_on_demand,
                "refused": result.refused,
                "detail": result.detail,
            }
            for result in entry.results
        ]
        if rows:
            connection.execute(insert(t.results), rows)

    def _record_instances(self, connection: Connection, entry: LedgerEntry) -> None:
        c = t.instances.c
        order = self._next(connection, c.launch_order)
        rows = [
            {
                "owner": self._owner.name,
                "instance_id": launch.instance.instance_id,
                "token": launch.instance.token,
                "command_id": launch.command_id,
                "attempt": launch.attempt,
                "job_id": launch.instance.job_id,
                "tenant": launch.instance.tenant,
                "quota_pool": launch.instance.quota_pool,
                "offering_id": launch.instance.offering_id,
                "capacity_type": launch.instance.capacity_type.value,
                "launch_order": order + index,
                "start_slot": launch.slot,
                "start_offset_s": launch.offset_s,
                "end_reason": "",
                "noticed_slot": -1,
            }
            for index, launch in enumerate(entry.launched)
        ]
        if rows:
            connection.execute(insert(t.instances), rows)
        for end in entry.ended:
            connection.execute(
                update(t.instances)
                .where(
                    self._mine(t.instances),
                    c.instance_id == end.instance_id,
                    c.end_slot.is_(None),
                )
                .values(end_slot=end.slot, end_offset_s=end.offset_s, end_reason=end.reason)
            )
        if entry.noticed:
            connection.execute(
                update(t.instances)
                .where(self._mine(t.instances), c.instance_id.in_(entry.noticed))
                .values(noticed_slot=entry.slot)
            )

    def _charge_rows(self, entry: LedgerEntry) -> list[dict[str, Any]]:
        return [
            {
                "owner": self._owner.name,
                "slot": charge.cost.slot,
                "job_id": charge.cost.job_id,
                "offering_id": charge.cost.offering_id,
                "capacity_type": charge.cost.capacity_type.value,
                "start_s": charge.start_s,
                "tenant": charge.cost.tenant,
                "quota_pool": charge.cost.quota_pool,
                "instances": charge.cost.instances,
                "held_s": charge.cost.held_s,
                "price_micro_usd": charge.cost.price_micro_usd,
                "cost_micro_usd": charge.cost.cost_micro_usd,
            }
            for charge in entry.charges
        ]

    def _intent_row(self, intent: Intent, position: int) -> dict[str, Any]:
        return {
            "owner": self._owner.name,
            "command_id": intent.command_id,
            "attempt": intent.attempt,
            "position": position,
            "job_id": intent.job_id,
            "tenant": intent.tenant,
            "quota_pool": intent.quota_pool,
            "offering_id": intent.offering_id,
            "slot": intent.slot,
            "revision": intent.revision,
            "offset_s": intent.offset_s,
            "ts_ns": intent.ts_ns,
            "target_spot": intent.target.spot,
            "target_on_demand": intent.target.on_demand,
            "launching": sum(launch.permitted for launch in intent.launches),
            "launches": json.dumps(
                [
                    [one.capacity_type.value, one.requested, one.permitted, one.token, one.detail]
                    for one in intent.launches
                ]
            ),
            "release": json.dumps(intent.release),
            "dropped": intent.dropped,
            "epoch": self._owner.epoch,
        }

    # --- plumbing -----------------------------------------------------------------------------

    def _mine(self, table: Any) -> Any:
        return table.c.owner == self._owner.name

    def _rows(self, query: Any) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(query).all()

    def _intent_rows(self, condition: Any) -> Sequence[Row[Any]]:
        i, r = t.intents.c, t.results.c
        same = and_(i.owner == r.owner, i.command_id == r.command_id, i.attempt == r.attempt)
        return self._rows(
            select(t.intents, r.granted_spot, r.granted_on_demand, r.refused, r.detail)
            .select_from(t.intents.outerjoin(t.results, same))
            .where(self._mine(t.intents), condition)
            .order_by(i.position)
        )

    def _next(self, connection: Connection, column: Any) -> int:
        greatest = select(func.max(column)).where(self._mine(column.table))
        return int(connection.execute(greatest).scalar() or 0) + 1

    @contextmanager
    def _fenced(self) -> Iterator[Connection]:
        """A transaction that holds the owner's row, so that no other epoch can begin meanwhile."""
        c = t.owners.c
        with self._engine.begin() as connection:
            # A write first: it takes the lock in SQLite and PostgreSQL alike.
            ours = connection.execute(
                update(t.owners)
                .where(c.owner == self._owner.name, c.epoch == self._owner.epoch)
                .values(epoch=c.epoch)
            )
            if ours.rowcount != 1:
                query = select(c.epoch).where(c.owner == self._owner.name)
                raise OwnerFenced(self._owner, int(connection.execute(query).scalar_one()))
            yield connection

    def _open_schema(self) -> None:
        with self._engine.begin() as connection:
            if connection.dialect.name == "sqlite":
                # The driver begins a transaction for rows only, not for tables.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            t.METADATA.create_all(connection)
            version = connection.execute(select(t.schema.c.version)).scalar()
            if version is None:
                connection.execute(insert(t.schema).values(version=t.SCHEMA_VERSION))
            elif version in t.EARLIER_VERSIONS:
                connection.execute(update(t.schema).values(version=t.SCHEMA_VERSION))
            elif version != t.SCHEMA_VERSION:
                raise ConfigError(
                    f"the ledger has schema {version}, this version reads {t.SCHEMA_VERSION}; "
                    "use another store directory or the version that wrote it"
                )

    def _take_over(self, owner_name: str) -> Owner:
        c = t.owners.c
        with self._engine.begin() as connection:
            risen = connection.execute(
                update(t.owners).where(c.owner == owner_name).values(epoch=c.epoch + 1)
            )
            if risen.rowcount == 0:
                connection.execute(insert(t.owners).values(owner=owner_name, epoch=1))
            epoch = connection.execute(select(c.epoch).where(c.owner == owner_name)).scalar_one()
        return Owner(name=owner_name, epoch=int(epoch))


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed)
    except (ArgumentError, ImportError) as error:
        raise ConfigError(f"the ledger URL {url!r} cannot be used: {error}") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _harden)
    return engine


def _harden(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _intent(row: Row[Any]) -> Intent:
    return Intent(
        command_id=row.command_id,
        attempt=row.attempt,
        job_id=row.job_id,
        tenant=row.tenant,
        quota_pool=row.quota_pool,
        offering_id=row.offering_id,
        slot=row.slot,
        revision=row.revision,
        offset_s=row.offset_s,
        ts_ns=row.ts_ns,
        target=Lot(
            offering_id=row.offering_id, spot=row.target_spot, on_demand=row.target_on_demand
        ),
        release=tuple(json.loads(row.release)),
        launches=tuple(
            Launch(
                capacity_type=CapacityType(kind),
                requested=requested,
                permitted=permitted,
                token=token,
                detail=detail,
            )
            for kind, requested, permitted, token, detail in json.loads(row.launches)
        ),
        dropped=row.dropped,
    )
