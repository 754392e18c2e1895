"""`spotline stats`: what it asks and what it prints."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spotline.adapters.grpc.analytics.client import AnalyticsClient
from spotline.application.analytics.messages import answer, keys_of
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import LateCounts, StatisticsStore
from spotline.cli.main import app
from tests.fakes.statistics_log import OFFERINGS, folded, generated, stored


@pytest.fixture(scope="module")
def issued():
    store = StatisticsStore()
    log = generated(3, slots=30, slot_s=1800)
    folded(stored(log, range(len(log))), StatisticsOptions(), store=store)
    return store.issued


@pytest.fixture
def asked(monkeypatch, issued):
    """The command with a client that answers here; what it asked."""
    queries = []

    async def query(self, query):
        queries.append(query)
        return answer(query, issued, watermark_s=1_767_225_600, late=LateCounts(merged=2))

    async def keys(self, query=None):
        return keys_of(query, issued)

    monkeypatch.setattr(AnalyticsClient, "query", query)
    monkeypatch.setattr(AnalyticsClient, "keys", keys)
    return queries


def stats(*words):
    return CliRunner().invoke(app, ["stats", *words], env={"COLUMNS": "200"})


@pytest.mark.usefixtures("asked")
def test_without_a_key_it_lists_whom_there_are_statistics_of():
    done = stats()

    assert done.exit_code == 0, done.output
    for name in (*OFFERINGS, "tenant", "policy", "*"):
        assert name in done.output


def test_offering_shows_the_latest_tumbling_hours_by_time(asked, issued):
    done = stats("--offering", OFFERINGS[0], "--latest", "3", "--json")

    page = json.loads(done.output)
    ends = [one["ts_event"] for one in page["market"]]
    assert ends == sorted(ends)
    assert len(ends) == 3
    assert {one["window_s"] for one in page["market"]} == {3600}
    assert all(end.endswith(":00:00Z") for end in ends)
    assert asked[0].latest_first


@pytest.mark.parametrize(
    "words", [("--offering", OFFERINGS[0]), ("--tenant", "*"), ("--policy", "msu", "--tenant", "*")]
)
@pytest.mark.usefixtures("asked")
def test_table_has_a_row_per_window_and_says_how_far_it_is(words):
    done = stats(*words, "--window", "all", "--hopping", "--latest", "5")

    assert done.exit_code == 0, done.output
    assert "closed up to 2026-01-01T00:00:00Z; 2 late merged, 0 too late" in done.output
    if "msu" not in words:
        assert done.output.count("2026-01-01T") == 6


def test_range_asks_for_every_page(asked):
    done = stats("--tenant", "*", "--window", "5m", "--from", "2026-01-01T02:00:00Z", "--json")

    page = json.loads(done.output)
    assert page["platform"]
    assert not asked[0].latest_first
    assert all(one["ts_event"] >= "2026-01-01T02:00:00Z" for one in page["platform"])


def test_latest_pages_on_until_there_are_as_many_as_asked_for(asked, monkeypatch):
    words = ("--tenant", "*", "--window", "all", "--hopping", "--json", "--latest")
    whole = json.loads(stats(*words, "50").output)["platform"]
    asked.clear()
    monkeypatch.setattr("spotline.application.paging.LARGEST_PAGE", 7)

    paged = json.loads(stats(*words, "30").output)["platform"]

    assert len(paged) == 30
    assert paged == whole[-30:]
    assert len(asked) == 5


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--offering", "a", "--tenant", "b"), "--offering goes without"),
        (("--tenant", "a", "--window", "soon"), "--window: expected"),
        (("--tenant", "a", "--from", "yesterday"), "--from must be a time"),
        (("--tenant", "a", "--from", "2026-01-01T00:00:00"), "UTC offset"),
        (
            ("--tenant", "a", "--from", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"),
            "until_ns: expected",
        ),
    ],
)
@pytest.mark.usefixtures("asked")
def test_bad_input_is_explained(words, complaint):
    done = stats(*words)

    assert done.exit_code == 2
    assert complaint in done.stderr
