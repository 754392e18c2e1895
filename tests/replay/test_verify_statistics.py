"""Recorded statistics are recomputed from the log they are in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.analytics.options import StatisticsOptions
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.codec import encode
from spotline.contracts.errors import ContractError
from spotline.domain.events.statistics import MarketStatisticsIssued
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of, statistics_of
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, manifest_of, small_run
from tests.fakes.statistics_log import entry_of, folded

OPTIONS = StatisticsOptions()
WITH_STATISTICS = {**SETTINGS, "analytics": OPTIONS.settings()}


@pytest.fixture(scope="module")
def log():
    """A run, and behind it what the analytics issued; they were somewhat slow."""
    run = small_run()
    entries = list(run)
    for issue in folded(run, OPTIONS)[:300]:
        envelope = envelope_for(
            issue.event,
            event_id=issue.event_id,
            source="analytics",
            causation_id=issue.causation_id,
            correlation_id="",
        )
        entries.append(entry_of(envelope, len(entries) + 1, entries[-1].stored_ns + 1))
    return entries


def checked(log, settings=WITH_STATISTICS):
    manifest = replace(manifest_of(log), settings=settings)
    statistics = statistics_of(settings)
    return verify(log, handlers_of(settings), manifest, here=environment(), statistics=statistics)


def test_recorded_statistics_are_reproduced_and_the_rest_is_open(log):
    report = checked(log)

    assert report.exit_code == SAME, report.divergences
    assert report.decisions["analytics"] > 500
    assert report.open_inputs > 10
    assert report.unverified == 0


def test_statistics_that_say_something_else_are_found(log):
    place = next(
        i for i, one in enumerate(log) if isinstance(event_of(one), MarketStatisticsIssued)
    )
    event = event_of(log[place])
    figures = replace(event.figures, ups=event.figures.ups + 1)
    wrong = replace(log[place], payload=encode(replace(event, figures=figures)))

    report = checked([*log[:place], wrong, *log[place + 1 :]])

    assert report.exit_code == DIVERGED
    [found] = report.divergences
    assert (found.seq, found.handler) == (log[place].seq, "analytics")
    assert found.differences == (
        f"figures.ups: {event.figures.ups + 1} recorded, {event.figures.ups} recomputed",
    )


def test_statistics_that_are_missing_are_found(log):
    place = next(
        i for i, one in enumerate(log) if isinstance(event_of(one), MarketStatisticsIssued)
    )
    shorter = [*log[:place], *(replace(one, seq=one.seq - 1) for one in log[place + 1 :])]

    report = checked(shorter)

    assert [(one.handler, one.recorded) for one in report.divergences] == [("analytics", "nothing")]


def test_without_their_settings_statistics_are_named_as_unverified(log):
    report = checked(log, SETTINGS)

    assert report.exit_code == SAME
    assert report.unverified == 300
    assert "analytics" not in report.decisions


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"windows": "5m"}, "windows"),
        ({"windows": [[300]]}, "windows"),
        ({"windows": [[300, 7]]}, "windows"),
        ({"grace_s": "1h"}, "grace_s"),
        ({"history_s": 1}, "history_s"),
    ],
)
def test_malformed_settings_are_refused_by_name(settings, field):
    with pytest.raises(ContractError, match=field):
        statistics_of({"analytics": settings})


def test_settings_in_a_manifest_are_read_back():
    from spotline.application.analytics.options import options_of

    assert options_of(OPTIONS.settings()) == OPTIONS
    assert options_of({}) == OPTIONS
