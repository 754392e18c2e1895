"""Bills as their readers hand them on, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.domain.assessment.facts import (
    HiredMachine,
    RebuiltBill,
    RebuiltJob,
    SpotPriceSeries,
)
from spotline.domain.units import cost_micro_usd

BEGIN_S = 1_788_220_800  # 2026-09-01T00:00:00Z
LIST_MICRO = 32_772_600
DAY_S = 86_400
P4D = HiredMachine(
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    instance_type="p4d.24xlarge",
    gpus=8,
)


def rebuilt_job(name: str = "job", *, machine: HiredMachine = P4D, hours: float = 4.0, **fields):
    """A job that ran on demand from the bill's begin on, and paid the list price, unless told."""
    work_s = fields.pop("work_s", round(hours * 3600))
    instances = fields.pop("instances", 1)
    begin_s = fields.pop("begin_s", BEGIN_S)
    listed = fields.pop("list_price_micro", LIST_MICRO)
    paid = fields.pop("paid_micro", cost_micro_usd(listed, instances, work_s))
    return RebuiltJob(
        job_id=name,
        owner="team",
        machine=machine,
        instances=instances,
        begin_s=begin_s,
        end_s=begin_s + work_s,
        work_s=work_s,
        restarts=0,
        paid_micro=paid,
        list_price_micro=listed,
        **fields,
    )


def rebuilt_bill(
    jobs: Sequence[RebuiltJob],
    *,
    prices: Sequence[SpotPriceSeries] = (),
    unused_micro: int = 0,
    apart_micro: int = 0,
    days: int = 7,
) -> RebuiltBill:
    """The bill of these jobs."""
    return RebuiltBill(
        source="bill.csv: FOCUS",
        currency="USD",
        begin_s=BEGIN_S,
        end_s=BEGIN_S + days * DAY_S,
        paid_micro=sum(job.paid_micro for job in jobs) + unused_micro + apart_micro,
        unused_micro=unused_micro,
        apart_micro=apart_micro,
        jobs=jobs,
        findings=(),
        prices=prices,
    )


def price_history(*prices_micro: int, machine: HiredMachine = P4D, every_s: int = DAY_S):
    """Spot prices that change at equal distances from the bill's begin on."""
    return SpotPriceSeries(
        machine=machine,
        times_s=tuple(BEGIN_S + every_s * index for index in range(len(prices_micro))),
        prices_micro=prices_micro,
    )
