"""Rows of FOCUS: every charge once, to the micro-dollar, with the decision behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from spotline.application.focus.columns import COLUMNS, OWN
from spotline.application.focus.rows import FocusLedger, Period
from spotline.application.page.applied import Applied
from spotline.contracts.subjects import KINDS
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.sunk import reservations_used
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job
from tests.fakes.paged import PageStory, paid_story
from tests.unit.domain.ledger.test_sunk import MARKET, log, used


def told(events, ledger=None):
    ledger = ledger or FocusLedger()
    rows = []
    for seq, event in enumerate(events, start=1):
        said = Applied(event=event, seq=seq, kind=KINDS[type(event)], event_id=f"event-{seq}")
        rows += ledger.fold(said)
    return [*rows, *ledger.unused()], ledger.totals


class Heard(PageStory):
    """A story whose events are kept."""

    def __init__(self, stated=None):
        self.events = []
        super().__init__(stated)

    def tell(self, *events):
        self.events += events
        return super().tell(*events)


@pytest.fixture
def story(monkeypatch):
    monkeypatch.setattr("tests.fakes.paged.PageStory", Heard)
    return paid_story()


def usd(rows, column):
    return sum(Decimal(row[column]) for row in rows)


def test_a_charge_names_its_command_and_its_decision(story):
    (row,), totals = told(story.events)

    assert (row["BilledCost"], row["EffectiveCost"]) == ("1.000000", "1.000000")
    assert row["ListCost"] == "3.333333"
    assert (row["PricingCategory"], row["PricingUnit"]) == ("Dynamic", "Hours")
    assert Decimal(row["PricingQuantity"]) == pytest.approx(Decimal(2 * SLOT_S) / 3600)
    decided = int(row["x_DecisionId"].removeprefix("event-")) - 1
    assert type(story.events[decided]).__name__ == "AllocationDecided"
    assert (row["x_DecisionSlot"], row["x_DecisionRevision"]) == ("0", "0")
    assert row["x_CommandId"].startswith("c")
    assert json.loads(row["Tags"])["job"] == row["x_JobId"] == story.job.job_id
    assert (totals.rows, totals.unexplained) == (1, 0)
    assert totals.listed_micro_usd == 3_333_333


def test_every_row_has_every_column_and_no_other(story):
    story.charged(0, kind=CapacityType.ON_DEMAND)

    rows, _ = told(story.events)
    assert all(tuple(row) == COLUMNS for row in rows)
    never_null = {
        *("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd"),
        *("BillingPeriodStart", "ChargeCategory", "ChargeDescription", "ChargePeriodEnd"),
        *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost"),
        *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory"),
        *("ServiceName", "ServiceSubcategory"),
    }
    assert all(row[name] for row in rows for name in never_null)
    assert all(name.startswith("x_") for name in OWN)


def test_a_charge_that_no_decision_explains_says_so_and_is_counted(story):
    story.charged(1, kind=CapacityType.ON_DEMAND)

    rows, totals = told(story.events)
    (row,) = [row for row in rows if not row["x_DecisionId"]]
    assert row["PricingCategory"] == "Standard"
    assert (totals.unexplained, _usd(totals.unexplained_micro_usd)) == (1, row["BilledCost"])


def test_a_copy_of_a_checkpoint_is_a_transfer_and_no_instance(story):
    there = Lot(offering_id=WEST, spot=2)
    story.decided((there,), move_from=EAST).commanded(there, transfer=280_000)
    story.charged(0, kind=CapacityType.ON_DEMAND, offering_id=WEST)

    rows, _ = told(story.events)
    copy = rows[-1]
    assert (copy["ServiceCategory"], copy["BilledCost"]) == ("Networking", "0.280000")
    assert (copy["PricingUnit"], copy["PricingQuantity"]) == ("Transfers", "1")
    assert copy["x_DecisionId"]


def test_a_period_takes_its_first_moment_and_not_its_last(story):
    story.charged(1, slot=1).charged(1, slot=2)
    slot_ns = SLOT_S * NS_PER_S
    period = Period(from_ns=START_NS + slot_ns, to_ns=START_NS + 2 * slot_ns)

    rows, totals = told(story.events, FocusLedger(period=period))
    assert [row["x_Slot"] for row in rows] == ["1"]
    assert totals.billed_micro_usd == 500_000


def test_what_is_paid_anyway_is_effective_used_and_unused_and_never_billed():
    events = log(used(0, 0, 1), used(1, 1, 2))
    events.insert(1, _handed_over())

    rows, totals = told(events)
    paid = sum(use.paid_micro_usd for use in reservations_used(events))
    assert totals.billed_micro_usd == 0 == usd(rows, "BilledCost")
    assert totals.effective_micro_usd == paid == usd(rows, "EffectiveCost") * 1_000_000
    assert [row["CommitmentDiscountStatus"] for row in rows] == ["Used", "Used", "Unused"]
    assert {row["CommitmentDiscountId"] for row in rows} == {"sp"}
    assert rows[-1]["ConsumedQuantity"] == ""


def test_a_commitment_that_nobody_used_has_a_row_for_the_month():
    (row,), totals = told(log())

    assert row["CommitmentDiscountStatus"] == "Unused"
    assert totals.effective_micro_usd == 9_000_000 * 2 * MARKET.slot_s // 3600
    assert row["BillingPeriodStart"].endswith("-01T00:00:00Z")


def test_the_docs_say_what_our_own_columns_are():
    text = (Path(__file__).parents[4] / "docs" / "exports.md").read_text()

    assert [f"| `{name}` | {said} |" in text for name, said in OWN.items()] == [True] * len(OWN)


def _usd(micro_usd):
    return f"{Decimal(micro_usd) / 1_000_000:.6f}"


def _handed_over():
    return JobSubmitted(job=replace(job("r1"), job_id="a", tenant="t"), ts_event_ns=MARKET.start_ns)
