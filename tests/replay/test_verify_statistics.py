"""Recorded statistics are recomputed from the log they are in, or recorded beside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.adapters.eventlog.manifest import STATISTICS_FILE, environment
from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.eventlog.writer import StatisticsWriter
from spotline.application.analytics.options import StatisticsOptions
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.codec import encode
from spotline.contracts.errors import ContractError
from spotline.domain.events.statistics import MarketStatisticsIssued
from spotline.replay.divergence import DIVERGED, SAME, shortened
from spotline.replay.handlers import handlers_of, statistics_of
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, manifest_of, small_run, write_log
from tests.fakes.statistics_log import entry_of, folded

OPTIONS = StatisticsOptions()
WITH_STATISTICS = {**SETTINGS, "analytics": OPTIONS.settings()}


@pytest.fixture(scope="module")
def run():
    return small_run()


@pytest.fixture(scope="module")
def envelopes(run):
    """What the analytics issued; they were somewhat slow."""
    return [
        envelope_for(
            issue.event,
            event_id=issue.event_id,
            source="analytics",
            causation_id=issue.causation_id,
            correlation_id="",
        )
        for issue in folded(run, OPTIONS)[:300]
    ]


@pytest.fixture(scope="module")
def log(run, envelopes):
    """A run, and behind it its statistics, as before they had a stream of their own."""
    entries = list(run)
    for envelope in envelopes:
        entries.append(entry_of(envelope, len(entries) + 1, entries[-1].stored_ns + 1))
    return entries


@pytest.fixture(scope="module")
def beside(run, envelopes):
    """The entries of the statistics' own stream."""
    return [
        entry_of(envelope, seq, run[-1].stored_ns + seq)
        for seq, envelope in enumerate(envelopes, start=1)
    ]


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


def checked_beside(directory, run, statistics, settings=WITH_STATISTICS):
    """Record a run and its statistics into a directory, and verify what is read from there."""
    manifest = replace(manifest_of(run), settings=settings, statistics_file=STATISTICS_FILE)
    write_log(directory, run, manifest)
    writer = StatisticsWriter(directory)
    writer.append(statistics)
    writer.close()
    reader = EventLogReader(directory)
    return verify(
        reader,
        handlers_of(settings),
        reader.manifest,
        here=environment(),
        statistics=statistics_of(settings),
        issued=reader.statistics(),
    )


def test_statistics_recorded_beside_the_log_are_reproduced(tmp_path, run, beside):
    report = checked_beside(tmp_path, run, beside)

    assert report.exit_code == SAME, report.divergences
    assert report.entries == len(run) + len(beside)
    assert report.decisions["analytics"] > 500
    assert report.unverified == 0


def test_statistics_beside_the_log_that_are_altered_and_missing_are_found(tmp_path, run, beside):
    altered, absent = 150, 40
    event = event_of(beside[altered])
    wrong = replace(event, late=event.late + 1)
    statistics = [*beside]
    statistics[altered] = replace(beside[altered], payload=encode(wrong))
    gone = event_of(statistics.pop(absent))

    report = checked_beside(tmp_path, run, statistics)

    assert report.exit_code == DIVERGED
    different, missing = sorted(report.divergences, key=lambda one: one.recorded == "nothing")
    assert (different.seq, different.handler) == (beside[altered].seq, "analytics")
    assert different.differences == (f"late: {event.late + 1} recorded, {event.late} recomputed",)
    assert (missing.handler, missing.recorded) == ("analytics", "nothing")
    assert missing.recomputed == shortened(gone)
    assert run[missing.cause_seq - 1].headers["ce-id"] == beside[absent].envelope().causation_id


def test_statistics_beside_the_log_that_nothing_led_to_are_found(tmp_path, run, beside):
    foreign = replace(beside[7], headers={**beside[7].headers, "ce-id": "nobody's"})

    report = checked_beside(tmp_path, run, [*beside[:7], foreign, *beside[7:]])

    assert [(one.handler, one.recomputed) for one in report.divergences] == [
        ("analytics", "nothing")
    ]


def test_without_their_settings_statistics_beside_the_log_are_unverified(tmp_path, run, beside):
    report = checked_beside(tmp_path, run, beside, SETTINGS)

    assert (report.exit_code, report.unverified) == (SAME, len(beside))


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
