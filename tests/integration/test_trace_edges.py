"""A run of the whole system, as a collector and a scrape see it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from spotline.runtime import exporting
from tests.fakes.collector import CollectedSpan, collecting
from tests.fakes.listed_telemetry import (
    LISTED,
    METRICS,
    PROMETHEUS_NAMES,
    scraped_samples,
    span_problems,
)
from tests.fakes.trace_edges import TABLE, edge_problems
from tests.fakes.traced_run import traced_run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SERVICES = {
    *("market_ingest", "forecaster", "selector", "allocator", "configurator", "placer"),
    *("cloud_actuator", "analytics", "read_model"),
}


@dataclass(frozen=True, kw_only=True)
class Told:
    """All that one run told."""

    spans: tuple[CollectedSpan, ...]
    metrics: dict[str, list[dict[str, object]]]
    scrape: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    scrapes: list[bytes] = []
    with collecting() as (endpoint, collector), pytest.MonkeyPatch.context() as environment:
        environment.setenv(exporting.ENDPOINT_VARIABLE, endpoint)
        # Nothing is dropped because the collector, which shares this process, was slow.
        environment.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        environment.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "65536")
        # A system that another test ran in this process has turned metrics on, without an endpoint.
        exporting.shut_down()
        scrape = exporting.scraped_metrics()
        try:
            folder = tmp_path_factory.mktemp("traced")
            asyncio.run(traced_run(folder, in_the_end=lambda: scrapes.append(scrape())))
        finally:
            exporting.shut_down()
        yield Told(
            spans=tuple(collector.spans), metrics=collector.metrics, scrape=scrapes[0].decode()
        )


# --- traces -----------------------------------------------------------------------------------


def test_the_edges_of_a_run_are_those_of_the_table(told: Told) -> None:
    assert edge_problems(told.spans) == []


def test_spans_and_attributes_are_those_that_are_listed(told: Told) -> None:
    problems = {
        problem
        for span in told.spans
        for problem in span_problems(span.kind, span.name, span.attributes)
    }

    assert problems == set()


def test_every_service_is_a_resource_of_its_own(told: Told) -> None:
    assert {span.resource for span in told.spans} == {*SERVICES, "client"}
    assert all(span.resource == span.service for span in told.spans)


def test_only_the_request_that_was_refused_failed_and_only_to_its_caller(told: Told) -> None:
    failed = [(span.name.rpartition("/")[2], span.kind) for span in told.spans if span.failed]

    assert failed == [("ComparePolicies", "client")]


# --- the check itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "complaint"),
    [
        ("consumer", "handle law.learned", "missing: Edge(what='law.learned'"),
        ("producer", "publish law.learned", "is linked to no producer"),
        ("client", "spotline.api.v1.AllocatorService/Allocate", "has no caller"),
        ("producer", "publish cost", "never published: cost by cloud_actuator"),
        ("consumer", "handle job.progress", "has a parent that never came"),
    ],
)
def test_a_span_that_is_missing_is_a_problem(told: Told, kind, name, complaint) -> None:
    rest = [span for span in told.spans if (span.kind, span.name) != (kind, name)]
    assert len(rest) < len(told.spans)

    assert any(complaint in problem for problem in edge_problems(rest))


def test_a_link_to_another_message_is_a_problem(told: Told) -> None:
    first, second = [span for span in told.spans if span.name == "handle forecast.issued"][:2]
    others = [span for span in told.spans if span is not first]
    foreign = next(one for one in told.spans if one.name == "publish market.slot")

    found = edge_problems([*others, replace(first, links=(foreign.key,))])

    assert found == [f"{first.service}: {first.name} is linked to the producer of another message"]
    assert second in others


@pytest.mark.parametrize(
    "row", [row for row, listed in enumerate(TABLE["messages"]) if "when" not in listed]
)
def test_an_edge_that_is_not_in_the_table_is_a_problem(told: Told, row: int) -> None:
    table = copy.deepcopy(dict(TABLE))
    gone = table["messages"].pop(row)

    found = edge_problems(told.spans, table)

    assert found
    assert all(problem.startswith("not listed") for problem in found)
    assert all(repr(gone["kind"]) in problem for problem in found)


# --- metrics ----------------------------------------------------------------------------------


def test_metrics_and_their_attributes_are_those_that_are_listed(told: Told) -> None:
    assert set(told.metrics) <= set(METRICS)
    for name, points in told.metrics.items():
        for attributes in points:
            assert set(attributes) == set(METRICS[name]["attributes"]), name


def test_a_scrape_shows_what_is_listed_and_every_service(told: Told) -> None:
    samples = scraped_samples(told.scrape)

    assert set(samples) <= PROMETHEUS_NAMES
    for row in LISTED["metrics"]:
        for labels in samples.get(row["prometheus"], ()):
            assert set(labels) == {one.replace(".", "_") for one in row["attributes"]}
    for name in (
        "spotline_messages_handled_total",
        "spotline_log_backlog",
        "spotline_log_lag_seconds",
    ):
        assert {labels["spotline_service"] for labels in samples[name]} == SERVICES
    missing = PROMETHEUS_NAMES - set(samples)
    # Whether all are heard is not judged while they start, and a quick run ends before that does.
    assert missing - {"spotline_services_silent"} == {
        # All that the run does not have: a cap on what a job may cost, a program that saves, a
        # limit of JetStream's room, an entry that is parked.
        "spotline_spend_cap_used",
        "spotline_checkpoint_save_seconds",
        "spotline_storage_free_bytes",
        "spotline_entries_parked_total",
        # Nor a cloud of the world, its queues, its quotas and its feeds, and who joins there.
        "spotline_cloud_messages_total",
        "spotline_quota_used_ratio",
        "spotline_quota_foreign_ratio",
        "spotline_feeds_failing_seconds",
        "spotline_joins_refused_total",
        # Nor receivers of webhooks.
        "spotline_notifications_taken_total",
        "spotline_notifications_given_up_total",
        "spotline_notifications_waiting",
    }


def test_the_scrape_agrees_with_what_happened(told: Told) -> None:
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in told.scrape.splitlines()
        if not line.startswith("#")
    }
    submitted = [span for span in told.spans if span.name == "publish job.submitted"]
    handled = [span for span in told.spans if span.name.startswith("handle ")]

    assert values['spotline_jobs_submitted_total{spotline_service="allocator"}'] == len(submitted)
    assert values['spotline_spend_USD_total{spotline_service="cloud_actuator"}'] > 0
    assert sum(
        value
        for name, value in values.items()
        if name.startswith("spotline_messages_handled_total")
    ) == len(handled)
    assert sum(
        value
        for name, value in values.items()
        if name.startswith("messaging_process_duration_seconds_count")
    ) == len(handled)
    assert not any(
        value for name, value in values.items() if name.startswith("spotline_log_backlog")
    )
