"""The benchmark of Complete over gRPC: it runs the real server and counts what it should."""

from __future__ import annotations

import pytest

from spotline.bench.knowledge.latency import measure_complete


def test_calls_are_timed_and_nearly_all_completed() -> None:
    found = measure_complete(6, runs=0, source_id="analytic", new_slots=1)

    assert found["calls"] == 6
    assert found["completed"] >= 4
    assert found["options_considered"] > 1
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
    assert found["new_slot"] > 0


def test_no_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="calls must be > 0"):
        measure_complete(0)
