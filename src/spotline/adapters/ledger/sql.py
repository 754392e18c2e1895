"""The ledger in SQL: a SQLite file by default, PostgreSQL by URL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sqlalchemy import Engine, bindparam, insert, select
from sqlalchemy.exc import DBAPIError

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.admissions import AdmissionRows
from spotline.adapters.ledger.answers import dump_answers, load_answers
from spotline.adapters.ledger.audit import audit
from spotline.adapters.ledger.bills import HELD_DURING, BillRows, record_charges
from spotline.adapters.ledger.checksums import CHECKSUM, verified
from spotline.adapters.ledger.lives import LifeRows, record_lives
from spotline.adapters.ledger.meta import MetaRows
from spotline.adapters.ledger.migrations.steps import migrate
from spotline.adapters.ledger.opening import (
    open_engine,
    opening,
    reading,
    shown_url,
    snapshot,
    without_secrets,
)
from spotline.adapters.ledger.rows import Transaction, columns_of, value_of
from spotline.adapters.ledger.statements import StoredRow, owned
from spotline.application.cloud_actuator.ports import LedgerEntry, LedgerIntent, Owner
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.events.event import Event
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.billing import HeldInterval
from spotline.domain.ledger.intents import HeldInstance, Intent, IntentResult, Launch
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.market.offering import CapacityType

# An epoch before every owner's.
_NOBODY = 0
# What two runs are compared by: everything but the epoch, which counts starts of the process.
_COMPARED = (t.intents, t.results, t.instances, t.charges)

_ANSWERS = owned(t.answers, t.answers.c.call_key == bindparam("call_key"))
_INTENTS_SINCE = owned(t.intents, t.intents.c.ts_ns > bindparam("since_ns"))
_PENDING = owned(
    t.intents,
    ~select(t.results.c.command_id)
    .where(
        t.results.c.owner == t.intents.c.owner,
        t.results.c.command_id == t.intents.c.command_id,
        t.results.c.attempt == t.intents.c.attempt,
    )
    .exists(),
    order=[t.intents.c.position],
)
_HELD = owned(t.instances, t.instances.c.end_slot.is_(None), order=[t.instances.c.launch_order])


class SqlLedger(AdmissionRows, BillRows, LifeRows, MetaRows):
    """Holds what `Ledger` says; `ThreadedLedger` gives it to the actuator.

    Opening it reads every row, brings an older ledger to this schema, and takes over the owner: the
    epoch rises, older ones are fenced.

    Raises
    ------
    ConfigError
        The URL is malformed, the database cannot be opened or is of a newer schema.
    LedgerDamaged
        It is not what was written.
    """

    def __init__(self, url: str, owner_name: str) -> None:
        engine = open_engine(url)
        try:
            _open_schema(engine)
            with snapshot(engine) as connection:
                audit(connection)
            super().__init__(engine, _take_over(engine, owner_name))
        except ProviderUnavailable as error:
            engine.dispose()
            raise ConfigError(f"the ledger cannot be opened: {error}") from error
        except DBAPIError as error:
            engine.dispose()
            raise _not_opened(engine, error) from None
        except BaseException:
            engine.dispose()
            raise

    @classmethod
    def looked_at(cls, url: str, owner_name: str) -> Self:
        """Open it to read only: whose it is, keeps it. Each write raises `OwnerFenced`.

        Raises
        ------
        ConfigError, LedgerDamaged
            As opening it does, or it is of another schema.
        """
        ledger = cls.__new__(cls)
        engine = open_engine(url)
        super(SqlLedger, ledger).__init__(engine, Owner(name=owner_name, epoch=_NOBODY))
        try:
            _check_schema(engine)
        except ProviderUnavailable as error:
            engine.dispose()
            raise ConfigError(f"the ledger cannot be opened: {error}") from error
        except DBAPIError as error:
            engine.dispose()
            raise _not_opened(engine, error) from None
        except BaseException:
            engine.dispose()
            raise
        return ledger

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def audit(self) -> None:
        """Read every row of every owner, and compare the sums that must agree.

        Raises
        ------
        LedgerDamaged
            Something is not what was written.
        """
        with snapshot(self._engine) as connection:
            audit(connection)

    # --- reading ------------------------------------------------------------------------------

    def answers(self, call_key: str) -> tuple[Event, ...] | None:
        """What a call was answered, None if it was never finished."""
        rows = self._read(_ANSWERS, call_key=call_key)
        return load_answers(rows[0].events) if rows else None

    def intents(self, command_ids: Sequence[str]) -> Mapping[str, LedgerIntent]:
        """The latest attempt at each of these commands that has any."""
        rows = self._read_keyed(t.intents, t.intents.c.command_id, command_ids)
        results = {
            (row.command_id, row.attempt): row
            for row in self._read_keyed(t.results, t.results.c.command_id, command_ids)
        }
        found: dict[str, LedgerIntent] = {}
        for row in sorted(rows, key=lambda row: int(row.position)):
            intent = _intent(row)
            told = results.get((intent.command_id, intent.attempt))
            result = None if told is None else value_of(IntentResult, told, intent=intent)
            found[intent.command_id] = LedgerIntent(intent=intent, result=result)
        return found

    def pending(self) -> Sequence[Intent]:
        """Intents without a result, in the order they were written."""
        return [_intent(row) for row in self._read(_PENDING)]

    def held(self) -> Sequence[HeldInstance]:
        """What we hold, in launch order."""
        rows = self._read(_HELD)
        return [value_of(HeldInstance, row, order=row.launch_order) for row in rows]

    def intervals(self, slot: int, slot_s: int) -> Sequence[HeldInterval]:
        """Who held what when inside a slot, in launch order."""
        rows = self._read(HELD_DURING, first_slot=slot, last_slot=slot)
        return [
            value_of(
                HeldInterval,
                row,
                start_s=row.start_offset_s if row.start_slot == slot else 0,
                end_s=row.end_offset_s if row.end_slot == slot else slot_s,
            )
            for row in rows
        ]

    def launches_since(self, ts_ns: int) -> int:
        """Instances we set out to launch after `ts_ns` of market time."""
        return sum(int(row.launching) for row in self._read(_INTENTS_SINCE, since_ns=ts_ns))

    def comparable(self) -> dict[str, list[dict[str, Any]]]:
        """All rows by table, sorted by key, without epoch and checksum: equal for equal runs."""
        found: dict[str, list[dict[str, Any]]] = {}
        for table in _COMPARED:
            columns = [
                column.name for column in table.columns if column.name not in ("epoch", CHECKSUM)
            ]
            rows = [
                {name: row._mapping[name] for name in columns} for row in self._read(owned(table))
            ]
            keys = [column.name for column in table.primary_key.columns]
            found[table.name] = sorted(rows, key=lambda row: [row[key] for key in keys])
        return found

    def raise_epoch(self, epoch: int) -> None:
        """Go on as the same owner at `epoch`, where that is later; older ones are fenced.

        Raises
        ------
        OwnerFenced
            A newer epoch exists.
        """
        if epoch <= self._owner.epoch:
            return
        with self._writing() as transaction:
            transaction.rewrite(t.owners, [{"owner": self._owner.name, "epoch": epoch}])
        self._owner = Owner(name=self._owner.name, epoch=epoch)

    # --- writing ------------------------------------------------------------------------------

    def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        with self._writing() as transaction:
            position = transaction.next(t.intents.c.position)
            ids = sorted({intent.command_id for intent in intents})
            rows = transaction.read_keyed(t.intents, t.intents.c.command_id, ids)
            known = {(row.command_id, row.attempt) for row in rows}
            transaction.add(
                t.intents,
                [
                    self._intent_row(intent, position + index)
                    for index, intent in enumerate(intents)
                    if (intent.command_id, intent.attempt) not in known
                ],
            )

    def record(self, entry: LedgerEntry) -> None:
        """Record what was done; once per call key."""
        with self._writing() as transaction:
            if entry.call_key:
                if transaction.read(_ANSWERS, call_key=entry.call_key):
                    return
                row = columns_of(t.answers, entry) | {"events": dump_answers(entry.answers)}
                transaction.add(t.answers, [row])
            transaction.add(
                t.results,
                [columns_of(t.results, result.intent, result) for result in entry.results],
            )
            _record_instances(transaction, entry)
            record_charges(transaction, entry.charges)
            record_lives(transaction, entry)

    def _intent_row(self, intent: Intent, position: int) -> dict[str, Any]:
        return columns_of(t.intents, intent) | {
            "position": position,
            "target_spot": intent.target.spot,
            "target_on_demand": intent.target.on_demand,
            "launching": sum(launch.permitted for launch in intent.launches),
            "launches": json.dumps([_launch_items(launch) for launch in intent.launches]),
            "release": json.dumps(intent.release),
            "epoch": self._owner.epoch,
        }


def _record_instances(transaction: Transaction, entry: LedgerEntry) -> None:
    c = t.instances.c
    order = transaction.next(c.launch_order) if entry.launched else 0
    transaction.add(
        t.instances,
        [
            columns_of(t.instances, launch.instance, launch)
            | {
                "launch_order": order + index,
                "start_slot": launch.slot,
                "start_offset_s": launch.offset_s,
                "end_reason": "",
                "noticed_slot": -1,
            }
            for index, launch in enumerate(entry.launched)
        ],
    )
    ends = {end.instance_id: end for end in reversed(entry.ended)}
    rows = transaction.read_keyed(t.instances, c.instance_id, sorted(ends))
    transaction.rewrite(
        t.instances,
        [
            {
                **row._mapping,
                "end_slot": ends[row.instance_id].slot,
                "end_offset_s": ends[row.instance_id].offset_s,
                "end_reason": ends[row.instance_id].reason,
            }
            for row in rows
            if row.end_slot is None
        ],
        ("end_slot", "end_offset_s", "end_reason"),
    )
    noticed = transaction.read_keyed(t.instances, c.instance_id, sorted(set(entry.noticed)))
    transaction.change(t.instances, noticed, noticed_slot=entry.slot)


def _not_opened(engine: Engine, error: DBAPIError) -> ConfigError:
    """What went wrong in a database, without what its URL keeps secret."""
    said = without_secrets(engine, str(error.orig))
    return ConfigError(f"the ledger {shown_url(engine.url)} cannot be opened: {said}")


def _open_schema(engine: Engine) -> None:
    with opening(engine) as connection:
        t.schema.create(connection, checkfirst=True)
        version = connection.execute(select(t.schema.c.version)).scalar()
        if version is None:
            t.METADATA.create_all(connection)
            connection.execute(insert(t.schema).values(version=t.SCHEMA_VERSION))
        else:
            migrate(connection, version)


def _check_schema(engine: Engine) -> None:
    """Refuse another schema than this release's: to look is not to migrate."""
    with reading(engine) as connection:
        version = connection.execute(select(t.schema.c.version)).scalar()
    if version != t.SCHEMA_VERSION:
        raise ConfigError(
            f"the ledger must have schema {t.SCHEMA_VERSION} to be read, has {version}; "
            "`spotline up` brings an older one to it"
        )


def _take_over(engine: Engine, owner_name: str) -> Owner:
    c = t.owners.c
    with opening(engine) as connection:
        transaction = Transaction(connection, Owner(name=owner_name, epoch=0))
        # Waits for the present owner's transaction, if one is under way.
        query = select(t.owners).where(c.owner == owner_name).with_for_update()
        rows = list(verified(t.owners, connection.execute(query)))
        epoch = int(rows[0].epoch) + 1 if rows else 1
        write = transaction.rewrite if rows else transaction.add
        write(t.owners, [{"owner": owner_name, "epoch": epoch}])
    return Owner(name=owner_name, epoch=epoch)


def _launch_items(launch: Launch) -> list[str | int]:
    """A launch as a JSON list; the refusal comes after what was written before there were classes."""
    items: list[str | int] = [
        launch.capacity_type.value,
        launch.requested,
        launch.permitted,
        launch.token,
        launch.detail,
    ]
    if launch.refusal_class is not None:
        items += [launch.refusal_class.value, launch.retry_after_s]
        if launch.limit_scope is not None:
            items.append(launch.limit_scope.value)
    return items


def _launch(items: Sequence[Any]) -> Launch:
    kind, requested, permitted, token, detail, *refusal = items
    refusal_class, retry_after_s = refusal[:2] or (None, 0)
    # It came later, and is not there in older rows.
    scope = refusal[2] if len(refusal) > 2 else None
    return Launch(
        capacity_type=CapacityType(kind),
        requested=requested,
        permitted=permitted,
        token=token,
        detail=detail,
        refusal_class=None if refusal_class is None else RefusalClass(refusal_class),
        retry_after_s=retry_after_s,
        limit_scope=None if scope is None else FreezeScope(scope),
    )


def _intent(row: StoredRow) -> Intent:
    return value_of(
        Intent,
        row,
        target=Lot(
            offering_id=row.offering_id, spot=row.target_spot, on_demand=row.target_on_demand
        ),
        release=tuple(json.loads(row.release)),
        launches=tuple(_launch(items) for items in json.loads(row.launches)),
    )
