"""What the log says of jobs, money and instances, and what it does not believe."""

import pytest

from spotline.application.cloud_actuator.log_fold import LogFold
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import CapacityType

OFFERING = "cloud:east-1a:a100-1x"


def opened(slot):
    return SlotOpened(slot=slot, ts_event_ns=slot, slot_s=1800, quotes=())


def cost(slot, micro_usd):
    return CostAccrued(
        job_id="job-1",
        tenant="search",
        offering_id=OFFERING,
        quota_pool="",
        capacity_type=CapacityType.SPOT,
        slot=slot,
        instances=1,
        held_s=1800,
        price_micro_usd=2 * micro_usd,
        cost_micro_usd=micro_usd,
    )


def report(slot, instance_ids=()):
    holdings = ()
    if instance_ids:
        lot = Lot(offering_id=OFFERING, spot=len(instance_ids))
        holding = JobHolding(job_id="job-1", lots=(lot,), instance_ids=instance_ids)
        holdings = (holding,)
    return CapacityReported(slot=slot, revision=0, offset_s=0, settled=True, holdings=holdings)


def folded(*events):
    fold = LogFold()
    for event in events:
        fold.fold(event)
    return fold.view(len(events), {})


@pytest.mark.parametrize("slot", [3, 7, 100_000])
def test_a_report_of_a_slot_that_is_not_open_closes_no_bill(slot):
    begun = (opened(1), report(1), opened(2), cost(1, 100), report(2))

    poisoned = folded(*begun, report(slot), cost(2, 280))

    assert poisoned == folded(*begun, opened(2), cost(2, 280))
    assert poisoned.says.complete_slot == 1


def test_a_report_of_a_slot_that_is_over_says_nothing_of_what_is_held():
    now = (opened(1), report(1, ("i-1",)), opened(2), report(2, ("i-2",)))

    again = folded(*now, report(1, ("i-1",)))

    assert set(again.named) == {"i-2"}
