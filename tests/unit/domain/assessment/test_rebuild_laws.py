"""Laws of rebuilding, on any lines."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.assessment.facts import BoughtAs, HiredMachine
from spotline.domain.assessment.lines import BillReading, ExportLine, HistoryJob, LineKind
from spotline.domain.assessment.rebuild import BillFold

GPU = HiredMachine(provider="aws", region="r", zone="ra", instance_type="p4d.24xlarge", gpus=8)
CPU = HiredMachine(provider="aws", region="r", zone="ra", instance_type="m5.large")
HOUR_S = 3600

tags = st.sampled_from([(), (("job", "a"),), (("job", "b"),), (("owner", "x"),)])


@st.composite
def lines(draw):
    kind = draw(st.sampled_from(LineKind))
    begin_s = draw(st.integers(0, 60)) * HOUR_S
    machine = draw(st.sampled_from([GPU, GPU, CPU])) if kind is LineKind.INSTANCE else None
    return ExportLine(
        row=1,
        kind=kind,
        begin_s=begin_s,
        end_s=begin_s + HOUR_S,
        micro=draw(st.integers(-(10**9), 10**9)),
        currency=draw(st.sampled_from(["USD", "USD", "USD", "EUR"])),
        used_s=draw(st.one_of(st.none(), st.integers(1, HOUR_S))),
        resource=draw(st.sampled_from(["", "i-1", "i-2", "i-3"])),
        machine=machine,
        purchase=draw(st.sampled_from(BoughtAs)),
        tags=draw(tags),
    )


def _jobs(nodes, begin_h, hours, gpus):
    begin_s = begin_h * HOUR_S
    return HistoryJob(
        job_id=f"{begin_h}", begin_s=begin_s, end_s=begin_s + hours * HOUR_S, nodes=nodes, gpus=gpus
    )


histories = st.lists(
    st.builds(
        _jobs,
        st.sampled_from([("i-1",), ("i-1", "i-2"), ()]),
        st.integers(0, 60),
        st.integers(1, 40),
        st.integers(0, 8),
    ),
    max_size=4,
)


def rebuilt(of, history=(), naive=0):
    fold = BillFold(lambda name: name.startswith("p"), {})
    for line in of:
        fold.take(line)
    reading = BillReading(kind="any", rows=len(of), naive_rows=naive)
    return fold.rebuilt(source="any", reading=reading, history=history)


@settings(max_examples=60, deadline=None)
@given(st.lists(lines(), min_size=1, max_size=60), histories, st.integers(0, 1))
def test_what_was_paid_is_jobs_and_unused_and_what_is_apart(of, history, naive):
    bill = rebuilt(of, history, naive)

    assert bill.paid_micro == sum(line.micro for line in of if line.currency == bill.currency)
    in_jobs = sum(job.paid_micro for job in bill.jobs)
    assert in_jobs + bill.unused_micro + bill.apart_micro == bill.paid_micro
    for job in bill.jobs:
        assert job.instances > 0
        assert 0 <= job.work_s <= job.end_s - job.begin_s
        assert 0 <= job.spot_share_ppm <= 1_000_000
    assert len({job.job_id for job in bill.jobs}) == len(bill.jobs)


@settings(max_examples=30, deadline=None)
@given(st.lists(lines(), min_size=1, max_size=40), st.integers(0, 9))
def test_the_order_of_rows_is_no_matter(of, seed):
    mixed = list(of)
    random.Random(seed).shuffle(mixed)

    assert rebuilt(mixed) == rebuilt(of)
