"""The ledger in SQL: a SQLite file by default, any database of SQLAlchemy's by URL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Table,
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

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    ValueT = TypeVar("ValueT", bound=DataclassInstance)

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
                result = _value(IntentResult, row, intent=intent)
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
        return [_value(HeldInstance, row, order=row.launch_order) for row in self._rows(query)]

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
            _value(
                HeldInterval,
                row,
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
                row = self._row(t.answers, entry, events=dump_answers(entry.answers))
                connection.execute(insert(t.answers), [row])
            self._record_results(connection, entry)
            self._record_instances(connection, entry)
            if entry.charges:
                rows = [self._row(t.charges, charge.cost, charge) for charge in entry.charges]
                connection.execute(insert(t.charges), rows)

    def _record_results(self, connection: Connection, entry: LedgerEntry) -> None:
        rows = [self._row(t.results, result.intent, result) for result in entry.results]
        if rows:
            connection.execute(insert(t.results), rows)

    def _record_instances(self, connection: Connection, entry: LedgerEntry) -> None:
        c = t.instances.c
        order = self._next(connection, c.launch_order)
        rows = [
            self._row(
                t.instances,
                launch.instance,
                launch,
                launch_order=order + index,
                start_slot=launch.slot,
                start_offset_s=launch.offset_s,
                end_reason="",
                noticed_slot=-1,
            )
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

    def _intent_row(self, intent: Intent, position: int) -> dict[str, Any]:
        launches = [
            [
                launch.capacity_type.value,
                launch.requested,
                launch.permitted,
                launch.token,
                launch.detail,
            ]
            for launch in intent.launches
        ]
        return self._row(
            t.intents,
            intent,
            position=position,
            target_spot=intent.target.spot,
            target_on_demand=intent.target.on_demand,
            launching=sum(launch.permitted for launch in intent.launches),
            launches=json.dumps(launches),
            release=json.dumps(intent.release),
            epoch=self._owner.epoch,
        )

    def _row(self, table: Table, *values: Any, **others: Any) -> dict[str, Any]:
        """A row of ours: the fields of `values` that are named as columns, and what else is given."""
        row: dict[str, Any] = {"owner": self._owner.name}
        for value in values:
            row |= {
                field.name: getattr(value, field.name)
                for field in fields(value)
                if field.name in table.columns
            }
        if "capacity_type" in row:
            row["capacity_type"] = row["capacity_type"].value
        return row | others

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


def _value(kind: type[ValueT], row: Row[Any], **others: Any) -> ValueT:
    """A value from the columns that are named as its fields, and what else is given."""
    names = {field.name for field in fields(kind)} - set(others)
    read = {name: getattr(row, name) for name in names}
    if "capacity_type" in read:
        read["capacity_type"] = CapacityType(read["capacity_type"])
    return kind(**read, **others)


def _intent(row: Row[Any]) -> Intent:
    return _value(
        Intent,
        row,
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
    )
