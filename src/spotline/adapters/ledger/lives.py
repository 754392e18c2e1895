"""What became of instances, and what is not asked for, in SQL: lives, transitions, cool-downs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, or_

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.rows import OwnedRows, Transaction, columns_of, value_of
from spotline.adapters.ledger.statements import Query, StoredRow, owned
from spotline.application.cloud_actuator.ports import LedgerEntry
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.ledger.cooldowns import Cooldown, CooldownKey, CoolingScope
from spotline.domain.ledger.instance_life import InstanceLife, LifeInput, LifeState, Transition

_LIVING = owned(t.lives, t.lives.c.state != LifeState.ENDED.value, order=[t.lives.c.position])
_TRANSITIONS = owned(
    t.transitions,
    t.transitions.c.subject == bindparam("subject"),
    order=[t.transitions.c.position],
)
_COOLDOWNS = owned(t.cooldowns)


@cache
def _latest_by(column: Any) -> Query:
    """The row with the greatest value of a column."""
    return owned(column.table, order=[column.desc()], limit=1)


class LifeRows(OwnedRows):
    """Holds what `Ledger` says of lives, cool-downs and the cloud's events."""

    def lives(self) -> Sequence[InstanceLife]:
        """All instances and launches that have not ended, in the order they were first recorded."""
        return [_life(row) for row in self._read(_LIVING)]

    def lives_of(self, subjects: Sequence[str]) -> Mapping[str, InstanceLife]:
        """Those of these instance ids and tokens that were ever recorded, ended ones too."""
        rows = self._read_keyed(t.lives, t.lives.c.subject, subjects)
        return {row.subject: _life(row) for row in rows}

    def transitions_of(self, subject: str) -> Sequence[tuple[LifeState, LifeInput, LifeState, int]]:
        """The history of one instance or launch: before, what was learnt, after, and when (ns)."""
        return [
            (LifeState(row.before), LifeInput(row.what), LifeState(row.state), int(row.at_ns))
            for row in self._read(_TRANSITIONS, subject=subject)
        ]

    def cooldowns(self) -> Sequence[Cooldown]:
        """All cool-downs, over or not, ordered by scope and key."""
        found = [
            value_of(
                Cooldown,
                row,
                scope=CoolingScope(row.scope),
                refusal_class=RefusalClass(row.refusal_class),
            )
            for row in self._read(_COOLDOWNS)
        ]
        return sorted(found, key=lambda cooldown: (cooldown.scope.value, cooldown.key))

    def taken(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Those of these cloud events that were dealt with before."""
        rows = self._read_keyed(t.taken_events, t.taken_events.c.event_id, event_ids)
        return frozenset(row.event_id for row in rows)

    def latest_ns(self) -> int:
        """The latest market time of any transition or intent, 0 if there is none."""
        return max([0, *self._latest(t.transitions.c.at_ns, t.intents.c.ts_ns)])

    def latest_slot(self) -> int:
        """The latest slot in which anything was commanded or answered, -1 if there is none."""
        return max([-1, *self._latest(t.answers.c.slot, t.intents.c.slot)])

    def _latest(self, *columns: Any) -> Iterator[int]:
        for column in columns:
            for row in self._read(_latest_by(column)):
                yield int(row._mapping[column.name])

    def check_epoch(self) -> None:
        """Raise `OwnerFenced` when a newer epoch exists: a read, before each call of a cloud."""
        self._check_epoch()


def record_lives(transaction: Transaction, entry: LedgerEntry) -> None:
    """Record an entry's transitions, cool-downs and events that are dealt with."""
    if entry.transitions:
        _record_transitions(transaction, entry.transitions, entry.slot)
    if entry.cooldowns or entry.warmed:
        _record_cooldowns(transaction, entry.cooldowns, entry.warmed)
    if entry.taken:
        c = t.taken_events.c
        ids = sorted(set(entry.taken))
        known = {row.event_id for row in transaction.read_keyed(t.taken_events, c.event_id, ids)}
        added = [{"event_id": event_id, "slot": entry.slot} for event_id in ids]
        transaction.add(t.taken_events, [row for row in added if row["event_id"] not in known])


def _record_transitions(
    transaction: Transaction, transitions: Sequence[Transition], slot: int
) -> None:
    position = transaction.next(t.transitions.c.position)
    transaction.add(
        t.transitions,
        [
            columns_of(t.transitions, transition.life, transition)
            | {
                "subject": transition.life.subject,
                "position": position + index,
                "slot": slot,
                "epoch": transaction.owner.epoch,
            }
            for index, transition in enumerate(transitions)
        ],
    )
    after = {transition.life.subject: transition.life for transition in transitions}
    c = t.lives.c
    known = {row.subject: row for row in transaction.read_keyed(t.lives, c.subject, sorted(after))}
    position = transaction.next(c.position)
    added: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for subject, life in after.items():
        row = columns_of(t.lives, life) | {"subject": subject}
        if subject in known:
            changed.append(row | {"position": known[subject].position})
        else:
            added.append(row | {"position": position + len(added)})
    transaction.add(t.lives, added)
    transaction.rewrite(t.lives, changed)


def _record_cooldowns(
    transaction: Transaction, cooldowns: Sequence[Cooldown], warmed: Sequence[CooldownKey]
) -> None:
    after = {(cooldown.scope, cooldown.key): cooldown for cooldown in cooldowns}
    over = set(warmed) - after.keys()
    if over:
        transaction.remove(t.cooldowns, _any_of(over))
    if after:
        rows = transaction.read(owned(t.cooldowns, _any_of(set(after))))
        known = {(CoolingScope(row.scope), row.key) for row in rows}
        values = {key: columns_of(t.cooldowns, cooldown) for key, cooldown in after.items()}
        transaction.add(t.cooldowns, [row for key, row in values.items() if key not in known])
        transaction.rewrite(t.cooldowns, [row for key, row in values.items() if key in known])


def _any_of(keys: set[CooldownKey]) -> Any:
    c = t.cooldowns.c
    ordered = sorted(keys, key=lambda key: (key[0].value, key[1]))
    return or_(*(and_(c.scope == scope.value, c.key == key) for scope, key in ordered))


def _life(row: StoredRow) -> InstanceLife:
    return value_of(InstanceLife, row, state=LifeState(row.state))
