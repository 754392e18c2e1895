"""What docs/telemetry.yaml lists, to hold spans and metrics against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

LISTED: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "docs" / "telemetry.yaml").read_text()
)
SPANS = {span["kind"]: span for span in LISTED["spans"]}
METRICS = {metric["name"]: metric for metric in LISTED["metrics"]}
PROMETHEUS_NAMES = {metric["prometheus"] for metric in LISTED["metrics"]} | {
    metric["name"] for metric in LISTED["process_metrics"]
}
_NAMES = {
    "<kind>": r"[a-z_.]+",
    "<call>": r"[a-z_.]+",
    "<package>": r"[a-z0-9.]+",
    "<Service>": r"[A-Za-z]+",
    "<Method>": r"[A-Za-z]+",
}
_SUFFIX = re.compile(r"_(bucket|count|sum)$")


def name_pattern(kind: str) -> re.Pattern[str]:
    """What names of spans of a kind look like: no ids, no numbers."""
    pattern = re.escape(SPANS[kind]["name"])
    for placeholder, allowed in _NAMES.items():
        pattern = pattern.replace(placeholder, allowed)
    return re.compile(pattern)


def span_problems(kind: str, name: str, attributes: Iterable[str]) -> list[str]:
    """What a span has that the list does not, or the other way round."""
    row = SPANS[kind]
    needed = {*row["attributes"], *row.get("attributes_too", ())}
    allowed = needed | set(row.get("optional_attributes", ()))
    got = set(attributes)
    problems = [f"{name}: {one} is not listed" for one in sorted(got - allowed)]
    problems += [f"{name}: {one} is missing" for one in sorted(needed - got)]
    problems += [
        f"{name}: {one} is not explained" for one in sorted(got - set(LISTED["attributes"]))
    ]
    if name_pattern(kind).fullmatch(name) is None:
        problems.append(f"{name} is no name of a {kind} span")
    return problems


def scraped_samples(text: str) -> dict[str, list[dict[str, str]]]:
    """Names of metrics in a scrape, without the suffixes of histograms, and their labels."""
    samples: dict[str, list[dict[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition("{") if "{" in line else (line.split()[0], "", "")
        base = _SUFFIX.sub("", name)
        labels = dict(re.findall(r'(\w+)="([^"]*)"', rest.rpartition("}")[0]))
        labels.pop("le", None)
        samples.setdefault(base if base in PROMETHEUS_NAMES else name, []).append(labels)
    return samples
