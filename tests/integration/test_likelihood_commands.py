"""plan and submit ask how likely a job is to be on time, and refuse what is not likely enough."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotline.domain.events.lifecycle import JobSubmitted
from tests.fakes.allocator import FakeJobsHost, opened_host
from tests.integration.test_job_commands import FILE, spotline

pytestmark = pytest.mark.integration

# Eight instance-hours on four instances take two hours: half an hour is too little, but it is soft.
LATE = """
tenant: research
name: late
request_id: late
work: 8 instance_hours
deadline: {soft: 2026-03-01T00:30:00Z, worthless_after: 2026-03-01T06:00:00Z}
value_usd: 500
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
"""


@pytest.fixture
def late_file(tmp_path: Path) -> str:
    path = tmp_path / "late.yaml"
    path.write_text(LATE)
    return str(path)


def recorded(host: FakeJobsHost) -> int:
    return sum(isinstance(event, JobSubmitted) for _, event in host.stored.values())


async def test_a_plan_exits_by_whether_its_job_is_likely_enough(late_file) -> None:
    async with spotline(opened_host()) as run:
        any_will_do = await run("plan", late_file)
        asked = await run("plan", late_file, "--on-time", "0.5")
        as_json = await run("plan", late_file, "--on-time", "0.5", "--json")

    assert any_will_do.exit_code == 0, any_will_do.stderr
    first = any_will_do.stdout.splitlines()[0]
    assert first.startswith("by 2026-03-01T00:30:00Z with probability 0 %, for ")
    assert "; on demand " in first
    assert asked.exit_code == 1
    assert "less likely to be on time than asked for" in asked.stderr
    assert as_json.exit_code == 1
    answer = json.loads(as_json.stdout)
    assert answer["likely_enough"] is False
    assert answer["outlook"]["on_time_probability_ppm"] == 0


async def test_a_job_that_is_too_unlikely_is_not_handed_over_unless_it_is_anyway(late_file) -> None:
    host = opened_host()
    async with spotline(host) as run:
        refused = await run("submit", late_file, "--on-time", "0.5")
        after_refusal = recorded(host)
        anyway = await run("submit", late_file, "--on-time", "0.5", "--anyway")

    assert refused.exit_code == 1
    assert "met with a probability of at least 50 %" in refused.stderr
    assert after_refusal == 0
    assert anyway.exit_code == 0, anyway.stderr
    assert recorded(host) == 1


async def test_other_deadlines_are_a_row_each_by_market_time_and_by_the_calendar(tmp_path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    async with spotline(opened_host()) as run:
        shown = await run("plan", str(path), "--deadlines", "1h,4h,2026-03-01T08:00:00Z")
        wrong = await run("plan", str(path), "--deadlines", "4h,soon")

    assert shown.exit_code == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith("2026-03-01T")]
    assert [row[0] for row in rows] == [
        "2026-03-01T01:00:00Z",
        "2026-03-01T04:00:00Z",
        "2026-03-01T08:00:00Z",
    ]
    assert "cannot be met" in shown.stdout
    assert wrong.exit_code == 2
    assert "--deadlines: expected durations > 0 such as 36h" in wrong.stderr
    assert "found 'soon'" in wrong.stderr
