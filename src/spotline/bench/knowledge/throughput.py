"""The `throughput` section of `spotline bench knowledge`: errors of every source."""

from __future__ import annotations

from typing import Any

from spotline.bench.knowledge.evaluation import (
    LEAVE_ONE_MODEL_OUT,
    RANDOM_SPLIT,
    EvaluationReport,
    SplitReport,
)
from spotline.domain.configuration.registry import DEFAULT_SOURCE


def throughput_section(report: EvaluationReport) -> dict[str, Any]:
    """Random split and models left out by source, and the learning curve by source and samples."""
    return {
        "random_split": _sources(report.splits.get(RANDOM_SPLIT, {})),
        "leave_one_model_out": _sources(report.splits.get(LEAVE_ONE_MODEL_OUT, {})),
        "by_samples": {
            name: {str(samples): score.as_json() for samples, score in sorted(curve.items())}
            for name, curve in sorted(report.by_samples.items())
        },
    }


def interval_coverage(report: EvaluationReport, source: str = DEFAULT_SOURCE) -> dict[str, float]:
    """Share of measured rates inside the 90 % interval, by split; splits not evaluated left out."""
    return {
        split: round(sources[source].pooled.coverage, 4)
        for split, sources in sorted(report.splits.items())
        if source in sources
    }


def _sources(reports: dict[str, SplitReport]) -> dict[str, Any]:
    return {name: report.as_json() for name, report in sorted(reports.items())}
