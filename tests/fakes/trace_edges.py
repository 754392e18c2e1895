"""The table of trace edges (docs/trace-edges.yaml) against collected spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.collector import CollectedSpan, SpanKey

TABLE: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "docs" / "trace-edges.yaml").read_text()
)
NOTHING = "nothing"


@dataclass(frozen=True, order=True)
class Edge:
    """`what` leaves `source` and arrives at `target`: an event's kind, or a method."""

    what: str
    source: str
    target: str


@dataclass(frozen=True, order=True)
class Cause:
    """`service` publishes `kind` inside the span `within`."""

    service: str
    kind: str
    within: str


def listed_edges(table: Mapping[str, Any] = TABLE) -> tuple[set[Edge], set[Edge]]:
    """The edges that every full run shows, and those that take special circumstances."""
    always: set[Edge] = set()
    sometimes: set[Edge] = set()
    for row in table["messages"]:
        for target in row["to"]:
            (sometimes if "when" in row else always).add(Edge(row["kind"], row["from"], target))
    for row in table["calls"]:
        (sometimes if "when" in row else always).add(Edge(row["method"], row["from"], row["to"]))
    return always, sometimes


def edge_problems(spans: Iterable[CollectedSpan], table: Mapping[str, Any] = TABLE) -> list[str]:
    """What the spans of a full run and the table do not agree on, one line each."""
    by_key = {span.key: span for span in spans}
    problems: list[str] = []
    seen = set(_seen(by_key, problems))
    always, sometimes = listed_edges(table)
    problems += [f"missing: {edge}" for edge in sorted(always - seen)]
    problems += [f"not listed: {edge}" for edge in sorted(seen - always - sometimes)]
    causes = set(_causes(by_key, problems))
    listed = {
        Cause(row["from"], row["kind"], within)
        for row in table["messages"]
        for within in row["within"]
    }
    problems += [f"not listed: {cause}" for cause in sorted(causes - listed)]
    published = {(cause.service, cause.kind) for cause in causes}
    problems += [
        f"never published: {row['kind']} by {row['from']}"
        for row in table["messages"]
        if "when" not in row and (row["from"], row["kind"]) not in published
    ]
    return problems


def _seen(by_key: Mapping[SpanKey, CollectedSpan], problems: list[str]) -> Iterator[Edge]:
    """Edges: links of consumers to producers, and parents of servers."""
    for span in by_key.values():
        if span.kind == "consumer":
            problem = _wrong_link(span, by_key)
            kind = str(span.attributes["spotline.kind"])
        elif span.kind == "server":
            problem = _wrong_caller(span, by_key)
            kind = span.name
        else:
            continue
        if problem:
            problems.append(f"{span.service}: {span.name} {problem}")
            continue
        source = by_key[span.links[0] if span.kind == "consumer" else span.parent or span.key]
        yield Edge(kind, source.service, span.service)


def _wrong_link(span: CollectedSpan, by_key: Mapping[SpanKey, CollectedSpan]) -> str:
    producers = [by_key.get(link) for link in span.links]
    if len(producers) != 1 or producers[0] is None or producers[0].kind != "producer":
        return "is linked to no producer"
    same = ("spotline.kind", "messaging.message.id", "messaging.destination.name")
    if any(producers[0].attributes[one] != span.attributes[one] for one in same):
        return "is linked to the producer of another message"
    return ""


def _wrong_caller(span: CollectedSpan, by_key: Mapping[SpanKey, CollectedSpan]) -> str:
    caller = None if span.parent is None else by_key.get(span.parent)
    if caller is None or (caller.kind, caller.name) != ("client", span.name):
        return "has no caller"
    return ""


def _causes(by_key: Mapping[SpanKey, CollectedSpan], problems: list[str]) -> Iterator[Cause]:
    """In which spans what was published."""
    for span in by_key.values():
        if span.kind != "producer":
            continue
        within = NOTHING
        if span.parent is not None:
            parent = by_key.get(span.parent)
            if parent is None:
                problems.append(f"{span.service}: {span.name} has a parent that never came")
                continue
            within = parent.name
        yield Cause(span.service, str(span.attributes["spotline.kind"]), within)
