"""A job that states only model, tokens, deadline and value, from submission to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.system import SystemOptions
from spotline.demo.run import DemoRun, run_demo
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import JobProgressReported, JobSubmitted
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_draft, generated_jobs
from spotline.replay.recorded import readable_events
from spotline.replay.report import configured_as_json, report_of

pytestmark = pytest.mark.integration

MARKET = generate("mixed", seed=11, slots=72, slot_s=1800, start_ns=1_767_571_200_000_000_000)
DRAFT = generated_draft(MARKET, 11)
JOBS = (*generated_jobs(MARKET, 2, 11), DRAFT)


def run(folder: Path) -> DemoRun:
    assert DRAFT is not None
    # Patient: a service that is late on a busy machine would be decided without.
    options = SystemOptions(
        market=MARKET,
        store=folder / "store",
        allocate_timeout_s=90,
        selector=SelectorOptions(forecast_timeout_s=90),
    )
    return asyncio.run(
        run_demo(options, JOBS, folder / "log", run_id="test", started_ns=0, seeds={"platform": 11})
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    return run(tmp_path_factory.mktemp("demo"))


def events_of(done: DemoRun, *types: type[Event]) -> list[Event]:
    events = [one.event for one in readable_events(EventLogReader(done.log))]
    return [event for event in events if isinstance(event, types)]


def test_the_draft_is_completed_measured_and_on_time(finished: DemoRun) -> None:
    report = report_of(EventLogReader(finished.log))

    (row,) = configured_as_json(report)
    (one,) = [one for one in report.jobs if one.job.job_id == row["job_id"]]
    assert DRAFT is not None
    assert row["name"] == DRAFT.name
    assert (row["outcome"], row["on_time"]) == ("completed", True)
    said_by = {name: told["said_by"] for name, told in row["parameters"].items()}
    assert said_by["model_name"] == "user"
    assert said_by["method"] == "default"
    assert said_by["batch_size"].startswith("predicted by")
    # Its own reports say how fast it ran: no other policy can be replayed for it.
    assert not one.compared
    assert sum(other.compared for other in report.jobs) == 2


def test_what_was_believed_comes_near_the_truth(finished: DemoRun) -> None:
    report = report_of(EventLogReader(finished.log))
    (one,) = [one for one in report.jobs if one.job.configuration is not None]

    count = one.job.max_instances
    truth = finished.true_rates[one.job.job_id]
    true = truth.throughputs[0].rate_per_hour(count)
    believed = one.reestimates[-1].throughputs[0].rate_per_hour(count)
    planned = one.job.throughputs[0].rate_per_hour(count)
    assert abs(believed / true - 1) < 0.1
    assert abs(believed / true - 1) < abs(planned / true - 1) / 2


def test_reports_are_recorded_once_a_slot_with_growing_progress(finished: DemoRun) -> None:
    reports = events_of(finished, JobProgressReported)

    assert len(reports) >= 3
    assert [one.done for one in reports] == sorted({one.done for one in reports})
    assert len({one.ts_event_ns for one in reports}) == len(reports)
    assert DRAFT is not None
    assert reports[-1].done == DRAFT.tokens


@pytest.mark.slow
def test_an_equal_run_decides_equally(finished: DemoRun, tmp_path: Path) -> None:
    again = run(tmp_path)

    decided = (JobSubmitted, JobProgressReported, ThroughputReestimated, AllocationDecided)
    assert events_of(again, *decided) == events_of(finished, *decided)
