"""Where jobs stand, as answers show it: views, other costs, wall time, the fleet."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spotline.adapters.grpc.allocator import standing
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.standing import JobViews
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.application.board.messages import FleetView, JobFlag, JobPhase
from spotline.application.board.otherwise import OtherCosts
from spotline.application.board.view import SilenceLimit
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobAdmitted, JobProgressReported, JobSubmitted
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.policies.answer import DecisionReason
from tests.fakes.allocator import EAST, START_NS, STORED_NS, FakeJobsHost, job, opened_host
from tests.fakes.allocator import slot_opened as opened
from tests.fakes.board import outlook

JOB = job(instance_hours=5.0)
OF_JOB = {"job_id": JOB.job_id, "tenant": JOB.tenant}
LOTS = (Lot(offering_id=EAST, spot=2),)


class FixedOutlooks:
    def __init__(self, **known: JobOutlook) -> None:
        self.known = known

    def latest(self, job_id: str) -> JobOutlook | None:
        return self.known.get(job_id)


def listened(host: FakeJobsHost) -> JobFeed:
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    return feed


def run_two_slots(host: FakeJobsHost) -> None:
    """One job, holding 2 spot in slots 0 and 1; slot 2 is open."""
    host.record(JobSubmitted(job=JOB, ts_event_ns=START_NS))
    host.record(
        JobAdmitted(
            **OF_JOB, slot=0, policy_id="sdp", offering_id=EAST, deadline_slot=29, weight_ppb=1
        )
    )
    host.record(
        AllocationDecided(
            **OF_JOB,
            slot=0,
            revision=0,
            offset_s=0,
            policy_id="sdp",
            lots=LOTS,
            reason=DecisionReason.POLICY,
            forecast_used=True,
            explanation="",
        )
    )
    held = JobHolding(job_id=JOB.job_id, lots=LOTS)
    host.record(CapacityReported(slot=0, revision=0, offset_s=0, settled=True, holdings=(held,)))
    host.record(opened(1))
    host.record(opened(2))


async def test_a_status_shows_the_view_with_what_is_expected_and_other_costs():
    host = opened_host()
    feed = listened(host)
    run_two_slots(host)
    known = outlook(on_time_ppm=400_000)
    views = JobViews(host, feed, outlooks=FixedOutlooks(**{JOB.job_id: known}))

    status = await views.status(JOB.job_id)

    assert status.seq == feed.seq_of(JOB.job_id) > 0
    assert status.etag
    assert status.view.phase is JobPhase.RUNNING
    assert status.view.outlook == known
    assert JobFlag.AT_RISK in status.view.flags
    # On-demand alone holds two instances, MSU all four of spot, for two slots of ten minutes.
    assert status.view.money.on_demand_micro_usd == 2 * (2 * 10_000_000 // 6)
    assert status.view.money.msu_micro_usd == 2 * 4 * 3_000_000 // 6


async def test_other_costs_are_worked_out_once_a_slot(monkeypatch):
    host = opened_host()
    views = JobViews(host, listened(host))
    run_two_slots(host)
    asked = []
    monkeypatch.setattr(
        standing,
        "other_costs",
        lambda lives: (
            asked.append(len(lives.records)) or OtherCosts(on_demand_micro_usd=len(lives.records))
        ),
    )

    await views.statuses((JOB.job_id,))
    await asyncio.gather(views.status(JOB.job_id), views.status(JOB.job_id))
    assert asked == [2]
    host.record(opened(3))
    told = await asyncio.gather(views.status(JOB.job_id), views.status(JOB.job_id))

    assert asked == [2, 3]
    assert [status.view.money.on_demand_micro_usd for status in told] == [3, 3]


async def test_an_answer_does_not_wait_long_for_other_costs(monkeypatch):
    host = opened_host()
    views = JobViews(host, listened(host))
    run_two_slots(host)
    go_on = threading.Event()
    monkeypatch.setattr(standing, "_MOST_WAIT_S", 0.05)

    def slow(lives):
        go_on.wait(10)
        return OtherCosts(msu_micro_usd=77)

    monkeypatch.setattr(standing, "other_costs", slow)

    first = await views.status(JOB.job_id)
    monkeypatch.setattr(standing, "_MOST_WAIT_S", 10)
    go_on.set()
    then = await views.status(JOB.job_id)

    assert first.view.money.msu_micro_usd == 0
    assert then.view.money.msu_micro_usd == 77


async def test_a_bug_in_working_them_out_is_not_hidden(monkeypatch):
    host = opened_host()
    views = JobViews(host, listened(host))
    run_two_slots(host)

    def broken(lives):
        raise ZeroDivisionError

    monkeypatch.setattr(standing, "other_costs", broken)

    with pytest.raises(ZeroDivisionError):
        await views.status(JOB.job_id)


async def test_wall_time_is_when_the_log_stored_it():
    host = FakeJobsHost()
    views = JobViews(host, listened(host))
    assert views.clock() is None
    host.record(opened_host().stored["event-1"][1])
    host.record(opened(0))
    host.record(JobSubmitted(job=JOB, ts_event_ns=START_NS))
    reported = host.record(JobProgressReported(**OF_JOB, done=1.0))

    assert views.clock().wall_ns == STORED_NS + 2
    assert (await views.status(JOB.job_id)).view.last_report_wall_ns == STORED_NS + reported


async def test_the_fleet_counts_what_deserves_a_look():
    host = opened_host()
    views = JobViews(host, listened(host), silence=SilenceLimit(slots=1, seconds=0))
    run_two_slots(host)
    host.record(JobProgressReported(**OF_JOB, done=1.0))

    assert views.fleet().stalled == 0
    host.record(opened(9))

    whole = FleetView(spot=2, micro_usd_per_hour=6_000_000, open_jobs=1, stalled=1)
    assert views.fleet() == whole
    assert views.fleet(JOB.tenant) == whole
    assert views.fleet("another") == FleetView()


async def test_there_is_no_view_of_an_unknown_job():
    host = opened_host()
    views = JobViews(host, listened(host))

    with pytest.raises(RpcRefused, match="there is no job nobody"):
        await views.status("nobody")
    with pytest.raises(RpcRefused, match="there is no job nobody"):
        views.view("nobody")
