"""Whether the run's log, replayed, gives the decisions that it holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.bench.faults.oracles import Violation
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.scenario import HORIZON_SLOTS
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify


def replays_the_same(outcome: FaultOutcome) -> list[Violation]:
    """Verify the log as `spotline replay verify` does.

    It must not miss what a fault wrote in the name of a service: that is no violation.
    """
    scenario = outcome.scenario
    settings = {
        "selector": asdict(scenario.selector),
        "forecaster": {"forecaster": scenario.forecaster, "horizon_slots": HORIZON_SLOTS},
    }
    manifest = Manifest(
        run_id=f"faults-{scenario.seed}",
        stream="SPOTLINE_0",
        environment=environment(),
        settings=settings,
        started_ns=0,
    )
    written = _seqs_of_faults(outcome)
    most = 3 + len(written)
    report = verify(outcome.entries, handlers_of(settings), manifest, here=environment(), most=most)
    found = [each for each in report.divergences if each.seq not in written]
    if report.exit_code == 0 or (report.divergences and not found and not report.unreadable):
        return []
    said = [divergence.describe() for divergence in found[:3]]
    if report.unreadable:
        said.append(report.unreadable)
    return [
        Violation(oracle="replays_the_same", detail=problem[:400])
        for problem in said or [f"exit code {report.exit_code}"]
    ]


def _seqs_of_faults(outcome: FaultOutcome) -> frozenset[int]:
    foreign: Any = outcome.notes.get("foreign", frozenset())
    return frozenset(
        entry.seq for entry in outcome.entries if entry.headers.get("ce-id") in foreign
    )
