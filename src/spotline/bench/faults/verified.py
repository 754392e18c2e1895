"""Whether the run's log, replayed, gives the decisions that it holds."""

from __future__ import annotations

from dataclasses import asdict

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.bench.faults.oracles import Violation
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.scenario import HORIZON_SLOTS
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify


def replays_the_same(outcome: FaultOutcome) -> list[Violation]:
    """Verify the log as `spotline replay verify` does."""
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
    report = verify(outcome.entries, handlers_of(settings), manifest, here=environment(), most=3)
    if report.exit_code == 0:
        return []
    said = [divergence.describe() for divergence in report.divergences]
    if report.unreadable:
        said.append(report.unreadable)
    return [
        Violation(oracle="replays_the_same", detail=problem[:400])
        for problem in said or [f"exit code {report.exit_code}"]
    ]
