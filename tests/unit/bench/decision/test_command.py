"""`spotline bench decision`: the shape of its report, at sizes that say nothing about speed."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from spotline.cli.bench import bench_app


def test_the_report_has_every_number(tmp_path) -> None:
    out = tmp_path / "deep" / "decision.json"

    result = CliRunner().invoke(
        bench_app,
        ["decision", "--jobs", "2", "--market-slots", "64", "--repeats", "1", "--json", str(out)],
    )

    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text(encoding="utf-8"))
    asked = {"msu", "uniform_progress", "ahanp(0.5)", "ahap(5,1,0.5)", "sdp"}
    asked |= {"hybrid(1)", "hybrid(2)", "hybrid(5)"}
    assert set(report["policies"]) | set(report["missing"]) == asked
    for row in report["policies"].values():
        assert row["decisions"] > 0
        assert row["per_s"] > 0
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["p99_once_us"] > 0
    assert set(report["thresholds"]) == {"on_demand_only", "msu", "uniform_progress", "ahanp(0.5)"}
    assert set(report["value_to_go"]) == {"sdp", "hybrid(1)", "hybrid(5)"}
    for row in (*report["thresholds"].values(), *report["value_to_go"].values()):
        assert row["policy_slots_per_s"] > 0
        assert row["python_policy_slots_per_s"] > 0
    assert report["pool"]["policies"] == 112
    assert report["pool"]["median_ms"] > 0
    assert report["clairvoyant"]["10"]["median_ms"] > 0
    assert report["value_table"]["size_mb"] > 0
    assert report["machine"]["cores"] >= 1
    assert "policy-slots/s" in result.output


def test_unknown_policies_are_listed_rather_than_refused() -> None:
    from spotline.bench.decision.measure import _known

    known, missing = _known(("msu", "no_such_policy"))

    assert [policy.policy_id for policy in known] == ["msu"]
    assert missing == ["no_such_policy"]
