"""One pipeline, from being handed over to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spotline.application.placer.messages import PlacementPhase
from spotline.application.placer.renting import Backoff, Told, covers
from spotline.domain.jobs.lot import Lot
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
    computed. `told` is what it was last told to hold, by offering, and `held` what it held by the
    last report; `broken` says why it cannot go on where it is (empty: it can). `backoff` says
    where it was refused, by offering and spot or not.
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
    told: dict[str, Told] = field(default_factory=dict)
    held: dict[str, Lot] = field(default_factory=dict)
    backoff: dict[tuple[str, bool], Backoff] = field(default_factory=dict)
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

    def waits_for(self, lots: Mapping[str, Lot]) -> bool:
        """Whether it must be told to hold these, or does not hold them yet."""
        return any(
            (told := self.told.get(offering_id)) is None
            or told.lot != lot
            or not covers(self.held.get(offering_id), lot)
            for offering_id, lot in lots.items()
        )

    def carry(self) -> None:
        """Note that a revision took all it was told."""
        self.told = {
            offering_id: replace(told, carried=True) for offering_id, told in self.told.items()
        }

    def report(self, lots: Mapping[str, Lot]) -> None:
        """Note what it holds, and forget what it has given back."""
        self.held = dict(lots)
        self.told = {
            offering_id: told
            for offering_id, told in self.told.items()
            if told.lot.spot or told.lot.on_demand or offering_id in self.held or not told.carried
        }

    def short_of(self) -> str:
        """What it was told to hold and does not, though a revision took it; empty: nothing."""
        for offering_id, told in sorted(self.told.items()):
            if told.carried and not covers(self.held.get(offering_id), told.lot):
                return f"{offering_id} holds less than it was told to"
        return ""

    def surplus(self) -> list[str]:
        """Offerings of which it holds more than it was told to, though a revision took that."""
        found = []
        for offering_id, held in sorted(self.held.items()):
            told = self.told.get(offering_id)
            if told is None or (told.carried and not covers(told.lot, held)):
                found.append(offering_id)
        return found
