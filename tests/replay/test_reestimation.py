"""A run whose rates were re-estimated is verified, refolded, and the same under any hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Context
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.law import ValueTableRequested
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.verify import verify
from tests.fakes.measured_platform import (
    Course,
    believed_job,
    deciders,
    run_measured,
    small_market,
)
from tests.fakes.recorded_run import altered, manifest_of

ROOT = Path(__file__).resolve().parents[2]


def recorded() -> tuple[list[StoredEntry], Course]:
    """Two jobs half as fast as believed, one of which arrives while the other runs."""
    log: list[StoredEntry] = []
    market = small_market(9, slots=42)
    jobs = [
        believed_job(market, from_slot=14, deadline_slots=24, hours_of_one=4),
        believed_job(market, name="r2", from_slot=20, deadline_slots=18, hours_of_one=3, width=0.3),
    ]
    course = run_measured(market, jobs, factor=0.5, record=log.append)
    return log, course


@lru_cache(maxsize=1)
def once() -> tuple[list[StoredEntry], Course]:
    return recorded()


def places(log: list[StoredEntry], event_type: type) -> list[int]:
    return [index for index, entry in enumerate(log) if isinstance(event_of(entry), event_type)]


def test_a_run_with_new_rates_gives_the_same_decisions() -> None:
    log, _ = once()

    report = verify(log, deciders(), manifest_of(log), here=environment())

    assert report.exit_code == SAME, report.divergences
    assert report.decisions["configurator"] == len(places(log, ThroughputReestimated)) + len(
        places(log, RunMeasured)
    )
    assert len(places(log, ThroughputReestimated)) >= 2
    assert len(places(log, RunMeasured)) >= 1


def test_the_log_may_end_anywhere_around_a_re_estimate() -> None:
    log, _ = once()
    place = places(log, ThroughputReestimated)[0]

    for end in range(place - 1, place + 6):
        report = verify(log[:end], deciders(), manifest_of(log), here=environment())
        assert report.exit_code == SAME, report.divergences


def test_another_rate_in_the_log_is_named() -> None:
    log, _ = once()
    changed, seq = altered(
        log,
        ThroughputReestimated,
        lambda event: replace(event, factor_ppm=event.factor_ppm + 1),
        nth=0,
    )

    report = verify(changed, deciders(), manifest_of(log), here=environment())

    assert report.exit_code == DIVERGED
    assert [one.seq for one in report.divergences] == [seq]
    assert "factor_ppm" in report.divergences[0].describe()


def test_a_selector_that_restarts_stands_where_it_stood() -> None:
    log, course = once()

    again = _refolded(log)

    live: SelectorState = course.host.state_of("selector")
    assert again.runs == live.runs
    assert again.draws == live.draws
    assert again.learner.weights().tolist() == live.learner.weights().tolist()
    asked = [event_of(log[place]) for place in places(log, ValueTableRequested)]
    rerated = {
        event.job_id
        for place in places(log, ThroughputReestimated)
        if isinstance(event := event_of(log[place]), ThroughputReestimated)
    }
    assert rerated == set(live.runs)
    # Tables were asked for at the admissions and again at new rates.
    assert len(asked) > len({(event.job_id, event.table.offering_id) for event in asked})  # type: ignore[union-attr]


def _refolded(log: list[StoredEntry]) -> SelectorState:
    """The selector's state from the log alone, as its host folds it on a restart."""
    handler = next(one for one in deciders() if isinstance(one, SelectHandler))
    state = handler.initial()
    for entry in log:
        event, envelope = event_of(entry), entry.envelope()
        if type(event) not in handler.spec.consumes:
            continue
        ctx = Context(
            seq=entry.seq,
            now_ns=entry.stored_ns,
            event_id=envelope.event_id,
            correlation_id=envelope.correlation_id or envelope.event_id,
        )
        handler.evolve(state, event)
        for output in handler.decide(state, event, ctx).events:
            handler.evolve(state, output)
    return state


def digest_of_a_run() -> str:
    """SHA-256 over every payload of the recorded run, and of what verification recomputes."""
    log, _ = once()
    report = verify(log, deciders(), manifest_of(log), here=environment())
    payloads = hashlib.sha256(b"".join(entry.payload for entry in log)).hexdigest()
    return f"{report.exit_code} {payloads} {report.decisions_sha256}"


_PRINT_DIGEST = """
from tests.replay.test_reestimation import digest_of_a_run
print(digest_of_a_run())
"""


@pytest.mark.slow  # test_verify.py has the short form
@pytest.mark.timeout(300)
def test_re_estimates_do_not_depend_on_the_hash_seed() -> None:
    running = []
    # This process has a seed of its own, a random one.
    for seed in range(1, 2):
        environ = {
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        }
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", _PRINT_DIGEST],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [digest_of_a_run()]
    for process in running:
        out, problems = process.communicate(timeout=280)
        assert process.returncode == 0, problems
        said.append(out.strip())

    assert len(set(said)) == 1
    assert said[0].startswith("0 ")
