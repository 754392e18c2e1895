"""What jobs and instances cost, in SQL: charges, each job's sum, each instance's share and bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, or_

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.rows import OwnedRows, Transaction, columns_of, value_of
from spotline.adapters.ledger.statements import StoredRow, owned
from spotline.application.cloud_actuator.ports import BilledInstance
from spotline.contracts.errors import LedgerDamaged
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.bills import (
    BillSource,
    HeldSpan,
    InstanceBill,
    Settlement,
    apportion,
    strongest,
)
from spotline.domain.ledger.instance_life import LifeState
from spotline.domain.market.offering import CapacityType

_CHARGES, _SPEND = owned(t.charges), owned(t.spend)
_CHARGES_SINCE = owned(t.charges, t.charges.c.slot >= bindparam("first_slot"))
_SPEND_OF = owned(t.spend, t.spend.c.job_id == bindparam("job_id"))
_BILLS, _SETTLEMENTS = owned(t.bills), owned(t.settlements)
_BILLS_OF = owned(t.bills, t.bills.c.job_id == bindparam("job_id"))
# A launch has no instance.
_ENDED_SINCE = owned(
    t.lives,
    t.lives.c.state == LifeState.ENDED.value,
    t.lives.c.since_ns >= bindparam("since_ns"),
    t.lives.c.instance_id != "",
    order=[t.lives.c.instance_id],
)
# What was held at any time from `first_slot` to `last_slot`.
HELD_DURING = owned(
    t.instances,
    t.instances.c.start_slot <= bindparam("last_slot"),
    or_(t.instances.c.end_slot.is_(None), t.instances.c.end_slot >= bindparam("first_slot")),
    order=[t.instances.c.launch_order],
)


class BillRows(OwnedRows):
    """Holds what `Ledger` says of charges and bills."""

    def charged(self) -> Sequence[CostAccrued]:
        """All charges, in the order of slot, job, offering, capacity type and begin."""
        return [_cost(row) for row in self._read(_CHARGES)]

    def spend_by_job(self) -> Mapping[str, int]:
        """Micro-USD charged so far, by job, ordered by job id."""
        rows = self._read(_SPEND)
        return dict(sorted((row.job_id, int(row.micro_usd)) for row in rows))

    def spend_micro_usd(self, job_id: str) -> int:
        """Micro-USD charged to one job so far."""
        return sum(int(row.micro_usd) for row in self._read(_SPEND_OF, job_id=job_id))

    def total_micro_usd(self) -> int:
        """Micro-USD charged so far."""
        return sum(self.spend_by_job().values())

    def charges_since(self, slot: int) -> Sequence[Charge]:
        """The charges of `slot` and later ones, by slot, job, offering, capacity type and start."""
        rows = self._read(_CHARGES_SINCE, first_slot=slot)
        return [Charge(start_s=int(row.start_s), cost=_cost(row)) for row in rows]

    def bills(self, job_id: str = "") -> Sequence[InstanceBill]:
        """The bill of every instance that was charged or settled, or of one job's, by instance id."""
        estimates = self._read(_BILLS_OF, job_id=job_id) if job_id else self._read(_BILLS)
        if job_id:
            ids = [row.instance_id for row in estimates]
            words = self._read_keyed(t.settlements, t.settlements.c.instance_id, ids)
        else:
            words = self._read(_SETTLEMENTS)
        settled = strongest([_settlement(row) for row in words])
        bills = {
            row.instance_id: value_of(InstanceBill, row, settled=settled.get(row.instance_id))
            for row in estimates
        }
        for instance_id in settled.keys() - bills.keys():
            bills[instance_id] = InstanceBill(
                instance_id=instance_id,
                job_id="",
                tenant="",
                quota_pool="",
                estimate_micro_usd=0,
                settled=settled[instance_id],
            )
        return [bill for _, bill in sorted(bills.items())]

    def settled(self, instance_ids: Sequence[str]) -> frozenset[str]:
        """Those of these instances of which somebody said what they cost in the end."""
        words = self._read_keyed(t.settlements, t.settlements.c.instance_id, instance_ids)
        return frozenset(row.instance_id for row in words)

    def unsettled(self, since_ns: int) -> Sequence[BilledInstance]:
        """Instances that have ended since then, and of which nobody said what they cost, by id."""
        rows = self._read(_ENDED_SINCE, since_ns=since_ns)
        known = self.settled([row.instance_id for row in rows])
        return [
            BilledInstance(
                instance_id=row.instance_id,
                offering_id=row.offering_id,
                capacity_type=CapacityType(row.capacity_type),
            )
            for row in rows
            if row.instance_id not in known
        ]

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record what instances cost in the end. Idempotent; an older word of a source changes nothing."""
        latest: dict[tuple[str, str], Settlement] = {}
        for settlement in sorted(settlements, key=lambda word: word.ts_ns):
            latest[settlement.instance_id, settlement.source.value] = settlement
        with self._writing() as transaction:
            ids = sorted({instance_id for instance_id, _ in latest})
            known = {
                (row.instance_id, row.source): int(row.ts_ns)
                for row in transaction.read_keyed(t.settlements, t.settlements.c.instance_id, ids)
            }
            rows = {
                key: columns_of(t.settlements, settlement) | {"source": settlement.source.value}
                for key, settlement in latest.items()
            }
            transaction.add(t.settlements, [row for key, row in rows.items() if key not in known])
            transaction.rewrite(
                t.settlements,
                [row for key, row in rows.items() if key in known and row["ts_ns"] > known[key]],
            )


def record_charges(transaction: Transaction, charges: Sequence[Charge]) -> None:
    """Record charges, with them each job's sum, and give every instance its share.

    Raises
    ------
    LedgerDamaged
        A charge is for instances that the ledger does not know of at that time.
    """
    if not charges:
        return
    transaction.add(t.charges, [columns_of(t.charges, charge.cost, charge) for charge in charges])
    _record_spend(transaction, charges)
    billed = [charge for charge in charges if charge.cost.instances]
    if billed:
        _record_bills(transaction, billed)


def _record_spend(transaction: Transaction, charges: Sequence[Charge]) -> None:
    by_job: dict[str, list[int]] = defaultdict(list)
    for charge in charges:
        by_job[charge.cost.job_id].append(charge.cost.cost_micro_usd)
    known = {
        row.job_id: row for row in transaction.read_keyed(t.spend, t.spend.c.job_id, sorted(by_job))
    }
    added: list[dict[str, Any]] = []
    risen: list[dict[str, Any]] = []
    for job_id, costs in sorted(by_job.items()):
        count, total = len(costs), sum(costs)
        before = known.get(job_id)
        if before is not None:
            count, total = count + int(before.charges), total + int(before.micro_usd)
        rows = added if before is None else risen
        rows.append({"job_id": job_id, "charges": count, "micro_usd": total})
    transaction.add(t.spend, added)
    transaction.rewrite(t.spend, risen, ("charges", "micro_usd"))


def _record_bills(transaction: Transaction, charges: Sequence[Charge]) -> None:
    slots = [charge.cost.slot for charge in charges]
    held = transaction.read(HELD_DURING, first_slot=min(slots), last_slot=max(slots))
    shares = instance_shares(charges, [value_of(HeldSpan, row) for row in held])
    rows = {row.instance_id: row for row in held}
    ids = sorted(shares)
    known = {
        row.instance_id: row for row in transaction.read_keyed(t.bills, t.bills.c.instance_id, ids)
    }
    added, risen = [], []
    for instance_id in ids:
        if instance_id in known:
            row = known[instance_id]
            estimate = int(row.estimate_micro_usd) + shares[instance_id]
            risen.append({**row._mapping, "estimate_micro_usd": estimate})
        else:
            row = rows[instance_id]
            fields = {column.name: row._mapping.get(column.name) for column in t.bills.columns}
            added.append(fields | {"estimate_micro_usd": shares[instance_id]})
    transaction.add(t.bills, added)
    transaction.rewrite(t.bills, risen, ("estimate_micro_usd",))


def instance_shares(charges: Sequence[Charge], spans: Sequence[HeldSpan]) -> dict[str, int]:
    """Divide charges among the instances they are for, by the seconds each was held.

    Parameters
    ----------
    charges
        Those for instances.
    spans
        In launch order, which says who gets the odd micro-USD.

    Raises
    ------
    LedgerDamaged
        A charge is for instances of which none was held then.
    """
    groups: dict[tuple[str, str, CapacityType], list[HeldSpan]] = defaultdict(list)
    for span in spans:
        groups[span.job_id, span.offering_id, span.capacity_type].append(span)
    shares: dict[str, int] = defaultdict(int)
    for charge in charges:
        cost = charge.cost
        group = groups[cost.job_id, cost.offering_id, cost.capacity_type]
        end_s = charge.start_s + cost.held_s
        weights = [span.overlap_s(cost.slot, charge.start_s, end_s) for span in group]
        if not any(weights):
            raise LedgerDamaged(
                t.charges.name,
                f"slot={cost.slot}, job_id={cost.job_id!r}, offering_id={cost.offering_id!r}, "
                f"capacity_type={cost.capacity_type.value!r}, start_s={charge.start_s}",
                f"it is for {cost.instances} instances, and the ledger held none then",
            )
        parts = apportion(cost.cost_micro_usd, weights)
        for span, weight, part in zip(group, weights, parts, strict=True):
            if weight:
                shares[span.instance_id] += part
    return dict(shares)


def _cost(row: StoredRow) -> CostAccrued:
    return value_of(CostAccrued, row, estimated=False)


def _settlement(row: StoredRow) -> Settlement:
    return value_of(Settlement, row, source=BillSource(row.source))
