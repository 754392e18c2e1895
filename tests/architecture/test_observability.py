"""What scrapes, alarms and draws names metrics and services that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotline.application.health.conditions import ConditionKind
from spotline.domain.events.allocation import CallOutcome
from spotline.domain.events.lifecycle import JobOutcome
from spotline.runtime.health_metrics import CONDITION_FIGURES
from tests.fakes.listed_telemetry import LISTED, METRICS, PROMETHEUS_NAMES
from tests.fakes.strict_yaml import read_yaml

DURATION = re.compile(r"\d+(s|m|h)")
HISTOGRAMS = {row["prometheus"] for row in METRICS.values() if row["type"] == "histogram"}
SAMPLES = {
    "up",
    *(PROMETHEUS_NAMES - HISTOGRAMS),
    *(f"{name}{suffix}" for name in HISTOGRAMS for suffix in ("_bucket", "_count", "_sum")),
}
LABELS = {
    "instance",
    "le",
    *(label.replace(".", "_") for row in METRICS.values() for label in row["attributes"]),
}
LANGUAGE = {
    *("by", "changes", "histogram_quantile", "increase", "rate", "sum"),
    *("or", "unless"),
}


def words(expression: str) -> set[str]:
    """Names in an expression: of metrics, labels and functions; not what is quoted."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\[[^]]*\]|\boffset \d+[smh]", "", bare)
    return set(re.findall(r"[A-Za-z_]\w*", bare))


def unknown_words(expression: str) -> set[str]:
    return words(expression) - SAMPLES - LABELS - LANGUAGE - {"job"}


def alerts(repository: Path) -> Iterator[dict]:
    for group in read_yaml(repository / "deploy/prometheus/alerts.yml")["groups"]:
        yield from group["rules"]


def dashboard(repository: Path) -> dict:
    return json.loads((repository / "deploy/grafana/spotline.json").read_text())


def test_alerts_are_rules_on_metrics_that_there_are(repository: Path) -> None:
    names = []
    for rule in alerts(repository):
        names.append(rule["alert"])
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert unknown_words(rule["expr"]) == set(), rule["alert"]
        assert words(rule["expr"]) & SAMPLES, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert DURATION.fullmatch(rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert told <= LABELS
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "metric",
    [
        "spotline_log_backlog",
        "spotline_messages_dead_lettered_total",
        "spotline_entries_parked_total",
        "spotline_entries_not_believed_total",
        "spotline_spend_cap_used",
        "spotline_jobs_closed_total",
        "spotline_service_started_seconds",
        "spotline_notifications_waiting",
    ],
)
def test_somebody_is_woken_by_what_matters(repository: Path, metric: str) -> None:
    assert any(metric in words(rule["expr"]) for rule in alerts(repository))


@pytest.mark.parametrize("condition", [kind.value for kind in ConditionKind])
def test_every_condition_wakes_somebody_and_is_explained(repository: Path, condition: str) -> None:
    expression = f'spotline_condition_healthy{{spotline_condition="{condition}"}} == 0'
    assert [rule for rule in alerts(repository) if rule["expr"] == expression]
    explained = (repository / "docs/operating.md").read_text()
    assert f"| `{condition}` |" in explained
    assert set(CONDITION_FIGURES) == set(ConditionKind)


def test_outcomes_in_alerts_are_outcomes(repository: Path) -> None:
    known = {one.value for one in (*JobOutcome, *CallOutcome)} | {"postponed", "failed", "dropped"}
    for rule in alerts(repository):
        for said in re.findall(r'spotline_outcome\W+"([^"]+)"', rule["expr"]):
            assert set(said.split("|")) <= known


@pytest.mark.parametrize(
    "expression",
    ["spotline_log_backlogs > 1", "rate(messaging_process_duration_seconds[5m])", "avgg(up)"],
)
def test_an_expression_on_nothing_that_exists_is_found(expression: str) -> None:
    assert unknown_words(expression)


def test_every_service_of_the_compose_file_is_scraped(repository: Path) -> None:
    compose = read_yaml(repository / "docker-compose.yml")
    prometheus = read_yaml(repository / "deploy/prometheus/prometheus.yml")
    overlay = read_yaml(repository / "deploy/compose/observability.yml")
    ours = {name for name, service in compose["services"].items() if "build" in service}
    dockerfile = (repository / "services/Dockerfile").read_text()
    port = re.search(r"SPOTLINE_HEALTH_PORT=(\d+)", dockerfile)[1]
    # What listens on loopback alone cannot be scraped from another container.
    assert "SPOTLINE_HEALTH_HOST=0.0.0.0 " in dockerfile

    (scraped,) = prometheus["scrape_configs"]
    (targets,) = scraped["static_configs"]
    assert sorted(targets["targets"]) == sorted(f"{name}:{port}" for name in ours)
    assert {rule_file for rule_file in prometheus["rule_files"]} == {"alerts.yml"}
    traced = {
        name
        for name, service in overlay["services"].items()
        if "SPOTLINE_OTLP_ENDPOINT" in service.get("environment", {})
    }
    assert traced == ours


def test_the_collector_sends_on_what_it_takes(repository: Path) -> None:
    collector = read_yaml(repository / "deploy/otel/collector.yaml")
    overlay = read_yaml(repository / "deploy/compose/observability.yml")

    for pipeline in collector["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(collector[part])
    assert set(collector["service"]["pipelines"]) == {"traces", "metrics"}
    port = collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].rpartition(":")[2]
    endpoint = overlay["services"]["selector"]["environment"]["SPOTLINE_OTLP_ENDPOINT"]
    assert endpoint == f"http://otel_collector:{port}"


def test_the_dashboard_draws_metrics_that_there_are(repository: Path) -> None:
    panels = dashboard(repository)["panels"]
    drawn: set[str] = set()
    for panel in panels:
        for target in panel["targets"]:
            assert unknown_words(target["expr"]) == set(), panel["title"]
            drawn |= words(target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= LABELS
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert drawn & SAMPLES


def test_the_list_of_metrics_explains_every_label() -> None:
    for row in LISTED["metrics"]:
        assert set(row["attributes"]) <= set(LISTED["attributes"])
        assert row["meaning"].strip()
        assert row["unit"]
