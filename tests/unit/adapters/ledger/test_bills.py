"""Estimates and settled bills of instances."""

from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.ledger.bills import instance_shares
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEnd, LedgerEntry
from spotline.contracts.errors import LedgerDamaged
from spotline.domain.ledger.billing import Charge, HeldInterval, OfferingPrice, SlotPrices, bill
from spotline.domain.ledger.bills import BillSource, HeldSpan, Settlement
from spotline.domain.market.offering import CapacityType
from tests.depth import examples
from tests.fakes.actuator import OWNER
from tests.fakes.ledgers import cost, fill, instance_launch

SLOT_S, SLOTS = 3600, 3
JOBS, OFFERINGS = ("j", "k"), ("a", "b")
PRICES = tuple(
    OfferingPrice(offering_id=name, spot_micro_usd=1_000_003 * n, on_demand_micro_usd=3_000_017 * n)
    for n, name in enumerate(OFFERINGS, start=1)
)
MOMENTS = st.tuples(st.integers(0, SLOTS - 1), st.integers(0, SLOT_S - 1))


@st.composite
def spans(draw):
    """Instances that are held from and until whenever."""
    held = []
    for number in range(draw(st.integers(1, 12))):
        start, end = sorted((draw(MOMENTS), draw(MOMENTS)))
        ends = draw(st.booleans())
        held.append(
            HeldSpan(
                instance_id=f"i{number}",
                job_id=draw(st.sampled_from(JOBS)),
                offering_id=draw(st.sampled_from(OFFERINGS)),
                capacity_type=draw(st.sampled_from(list(CapacityType)[:2])),
                start_slot=start[0],
                start_offset_s=start[1],
                end_slot=end[0] if ends else None,
                end_offset_s=end[1] if ends else None,
            )
        )
    return held


def charges_of(held, slot):
    """Bill a slot as the actuator does: by intervals cut at its edges."""
    intervals = []
    for span in held:
        if span.start_slot > slot or (span.end_slot is not None and span.end_slot < slot):
            continue
        intervals.append(
            HeldInterval(
                job_id=span.job_id,
                tenant="acme",
                quota_pool="pool",
                offering_id=span.offering_id,
                capacity_type=span.capacity_type,
                start_s=span.start_offset_s if span.start_slot == slot else 0,
                end_s=span.end_offset_s if span.end_slot == slot else SLOT_S,
            )
        )
    return bill(intervals, SlotPrices(slot=slot, slot_s=SLOT_S, prices=PRICES))


@given(spans())
def test_shares_of_instances_sum_to_the_charges(held):
    charges = [charge for slot in range(SLOTS) for charge in charges_of(held, slot)]

    shares = instance_shares(charges, held)

    expected = defaultdict(int)
    for charge in charges:
        cost = charge.cost
        expected[cost.job_id, cost.offering_id, cost.capacity_type] += cost.cost_micro_usd
    found = defaultdict(int)
    for span in held:
        key = (span.job_id, span.offering_id, span.capacity_type)
        found[key] += shares.get(span.instance_id, 0)
    assert {key: value for key, value in found.items() if value} == dict(expected)
    assert all(share >= 0 for share in shares.values())


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One ledger for many examples, each under an owner of its own; the owners' numbers."""
    return Path(tmp_path_factory.mktemp("shared")) / "ledger.sqlite", count()


@settings(max_examples=examples(8), deadline=None)
@given(held=spans())
def test_estimates_in_the_ledger_sum_to_its_charges(shared, held):
    file, numbers = shared
    ledger = SqlLedger(ledger_url(file), f"owner-{next(numbers)}")
    ledger.record(
        LedgerEntry(
            launched=tuple(
                instance_launch(
                    span.instance_id,
                    slot=span.start_slot,
                    offset_s=span.start_offset_s,
                    job_id=span.job_id,
                    offering_id=span.offering_id,
                    capacity_type=span.capacity_type,
                )
                for span in held
            ),
            ended=tuple(
                LedgerEnd(
                    instance_id=span.instance_id,
                    slot=span.end_slot,
                    offset_s=span.end_offset_s,
                    reason="released",
                )
                for span in held
                if span.end_slot is not None
            ),
        )
    )
    for slot in range(SLOTS):
        moved = Charge(start_s=-1, cost=cost(11, slot=slot, instances=0, held_s=0))
        charged = (*charges_of(held, slot), moved)
        ledger.record(LedgerEntry(call_key=f"k{slot}", slot=slot, charges=charged))

    rows = ledger.comparable()["charges"]
    for job_id in JOBS:
        billed = [row["cost_micro_usd"] for row in rows if row["job_id"] == job_id]
        held_for = sum(
            row["cost_micro_usd"] for row in rows if row["job_id"] == job_id and row["instances"]
        )
        assert ledger.spend_micro_usd(job_id) == sum(billed)
        assert sum(found.estimate_micro_usd for found in ledger.bills(job_id)) == held_for
    ledger.audit()
    ledger.close()


def test_a_charge_for_instances_that_nobody_held_is_refused(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    entry = LedgerEntry(call_key="k", charges=(Charge(start_s=0, cost=cost(7)),))

    with pytest.raises(LedgerDamaged, match="it is for 1 instances, and the ledger held none then"):
        ledger.record(entry)

    assert ledger.answers("k") is None
    assert ledger.comparable()["charges"] == []
    ledger.close()


def word(instance_id="i2", source=BillSource.OWN_COUNT, micro_usd=5, ts_ns=10):
    return Settlement(instance_id=instance_id, source=source, micro_usd=micro_usd, ts_ns=ts_ns)


def test_a_bill_is_settled_by_the_latest_and_strongest_word(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    fill(ledger)

    def settled():
        return next(found.settled for found in ledger.bills("j") if found.instance_id == "i2")

    assert settled() is None
    for said, counts in (
        (word(), word()),
        (word(), word()),
        (word(ts_ns=9, micro_usd=1), word()),
        (word(ts_ns=11, micro_usd=0), word(ts_ns=11, micro_usd=0)),
        (word(source=BillSource.PROVIDER, ts_ns=2), word(source=BillSource.PROVIDER, ts_ns=2)),
        (word(ts_ns=99), word(source=BillSource.PROVIDER, ts_ns=2)),
    ):
        ledger.settle([said])
        assert settled() == counts
    ledger.close()


def test_what_a_provider_bills_and_we_never_held_is_kept(ledger_database):
    ledger = SqlLedger(ledger_database, OWNER)
    fill(ledger)
    orphan = word("stray", BillSource.PROVIDER)

    ledger.settle([orphan])

    stray = next(found for found in ledger.bills() if found.instance_id == "stray")
    assert (stray.job_id, stray.estimate_micro_usd, stray.settled) == ("", 0, orphan)
    assert stray.micro_usd == 5
    ledger.close()
