"""One pipeline, from being handed over to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.application.placing import PlacementPhase
from spotline.application.renting import Commanded
from spotline.domain.events import Lot
from spotline.domain.placement.pipeline import PipelineJob, Placement
from spotline.domain.placement.submission import Pipeline
from spotline.domain.units import NS_PER_S


@dataclass(slots=True, kw_only=True)
class PipelineRun:
    """A pipeline and where it stands.

    `done_before` iterations were done when the present placement begins to compute, at
    `starts_ns`. While it is `pending` its instances are not there yet: it computes and costs
    nothing, and `starts_ns` and `finish_ns` are expectations. `spent_usd` is what it cost up to
    `billed_ns`. `decided` is False before the first decision on it, `started` True once it
    computed. `commanded` is what it was told to hold, by offering; `broken` says why its present
    place has not all of that (empty: it has).
    """

    pipeline: Pipeline
    submitted_ns: int
    job: PipelineJob
    phase: PlacementPhase = PlacementPhase.WAITING
    decided: bool = False
    started: bool = False
    pending: bool = False
    placement: Placement | None = None
    done_before: int = 0
    starts_ns: int = 0
    finish_ns: int = 0
    billed_ns: int = 0
    spent_usd: float = 0.0
    moves: int = 0
    checkpoint_region: str = ""
    earliest_finish_ns: int = 0
    reason: str = ""
    method_id: str = ""
    commanded: dict[str, Commanded] = field(default_factory=dict)
    broken: str = ""
    ledger_micro_usd: int = 0

    def done_by(self, at_ns: int) -> int:
        """Iterations done by a time, as the placement's own iteration time has it."""
        if self.placement is None or self.pending:
            return self.done_before
        total = self.job.iterations
        if at_ns >= self.finish_ns:
            return total
        computed_s = max(0, at_ns - self.starts_ns) / NS_PER_S
        return min(self.done_before + int(computed_s / self.placement.iteration_s), total - 1)

    def lacks(self, lots: Mapping[str, Lot]) -> bool:
        """Whether it was not told to hold these."""
        told = {offering_id: one.lot for offering_id, one in self.commanded.items()}
        return any(told.get(offering_id) != lot for offering_id, lot in lots.items())
