"""Accounts of one run: each difference has a name, and what has none is shown."""

from __future__ import annotations

from dataclasses import replace

from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.ledger.bills import BillSource, InstanceBill, Settlement
from spotline.domain.market.offering import CapacityType
from spotline.replay import reconcile as names
from spotline.replay.reconcile import AccountChain, LedgerSums, reconcile


def advanced(job_id: str, slot: int, cost: int) -> JobAdvanced:
    return JobAdvanced(
        job_id=job_id,
        tenant="t",
        slot=slot,
        lots=(),
        progress_ppm=0,
        slot_cost_micro_usd=cost,
        cost_micro_usd=cost,
    )


def accrued(job_id: str, slot: int, cost: int, instances: int = 1) -> CostAccrued:
    return CostAccrued(
        job_id=job_id,
        tenant="t",
        offering_id="o",
        quota_pool="p",
        capacity_type=CapacityType.SPOT,
        slot=slot,
        instances=instances,
        held_s=1800,
        price_micro_usd=1,
        cost_micro_usd=cost,
    )


def closed(job_id: str, slot: int, cost: int) -> JobClosed:
    return JobClosed(
        job_id=job_id,
        tenant="t",
        slot=slot,
        outcome=JobOutcome.COMPLETED,
        policy_id="msu",
        cost_micro_usd=cost,
        value_micro_usd=0,
        progress_ppm=1_000_000,
    )


def bill(instance_id: str, job_id: str, micro_usd: int) -> InstanceBill:
    return InstanceBill(
        instance_id=instance_id,
        job_id=job_id,
        tenant="t",
        quota_pool="p",
        estimate_micro_usd=micro_usd,
    )


AGREED = (
    *(advanced("a", 0, 5), accrued("a", 0, 5), advanced("a", 1, 7), accrued("a", 1, 7)),
    *(closed("a", 1, 12), advanced("b", 1, 3), accrued("b", 1, 3), closed("b", 1, 3)),
)
SPENT = {"a": 12, "b": 3}


def amounts(agreed: AccountChain) -> dict[str, int]:
    return {step.name: step.micro_usd for step in agreed.steps if step.micro_usd}


def terms(agreed: AccountChain) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {step.name: (step.micro_usd, step.jobs) for step in agreed.differences}


def test_where_all_agree_there_are_no_differences() -> None:
    agreed = reconcile(AGREED, SPENT, ["a", "b"])

    assert amounts(agreed) == {
        names.HEADLINE: 15,
        names.SPENT: 15,
        names.ADVANCED: 15,
        names.ACCRUED: 15,
    }
    assert agreed.unexplained_micro_usd == 0


def test_a_job_that_the_headline_leaves_out_is_named() -> None:
    agreed = reconcile(AGREED, SPENT, ["a"])

    assert terms(agreed) == {names.OTHER_JOBS: (3, ("b",))}
    assert amounts(agreed)[names.HEADLINE] == 12


def test_each_way_in_which_bills_differ_from_decisions_has_its_name() -> None:
    events = (
        *AGREED,
        accrued("a", 2, 2),  # a's instances were still there in the slot after its end
        accrued("pipeline", 1, 9),
        *(advanced("c", 0, 4), accrued("c", 0, 6)),  # released in mid-slot, gone a while later
        *(advanced("c", 1, 8), accrued("c", 1, 5)),  # launched late
        advanced("c", 3, 10),  # the log ends before this slot is billed
    )

    agreed = reconcile(events, {**SPENT, "c": 22}, ["a", "b", "c"])

    assert terms(agreed) == {
        names.NO_JOBS: (9, ("pipeline",)),
        names.NOT_BILLED: (-10, ("c",)),
        names.AFTER_THE_END: (2, ("a",)),
        names.HELD_LONGER: (2, ("c",)),
        names.HELD_SHORTER: (-3, ("c",)),
    }
    assert agreed.unexplained_micro_usd == 0


def test_a_job_closed_at_another_sum_than_its_slots_is_named() -> None:
    agreed = reconcile(AGREED, {"a": 13, "b": 3}, ["a", "b"])

    assert terms(agreed) == {names.CLOSED_OTHERWISE: (-1, ("a",))}


def test_the_ledger_may_know_more_and_bills_are_without_copies() -> None:
    events = (*AGREED, accrued("a", 1, 2, instances=0), advanced("a", 1, 2))
    settled = replace(
        bill("i-2", "b", 3),
        settled=Settlement(instance_id="i-2", source=BillSource.PROVIDER, micro_usd=4, ts_ns=1),
    )
    ledger = LedgerSums(
        charged={"a": 14, "b": 3, "z": 6},
        bills=(bill("i-1", "a", 12), settled, bill("i-3", "z", 6)),
    )

    agreed = reconcile(events, {"a": 14, "b": 3}, ["a", "b"], ledger)

    assert terms(agreed) == {
        names.NOT_IN_THE_LOG: (6, ("z",)),
        names.COPIES: (-2, ("a",)),
        names.SETTLED: (1, ("b",)),
    }
    assert amounts(agreed)[names.BILLED] == 22
    assert agreed.unexplained_micro_usd == 0


def test_what_no_term_explains_is_shown() -> None:
    ledger = LedgerSums(charged={"a": 12, "b": 3}, bills=(bill("i-1", "a", 12),))

    assert reconcile(AGREED, SPENT, ["a", "b"], ledger).unexplained_micro_usd == 3
