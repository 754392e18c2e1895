"""Progress of a job, slot by slot: the accounting that everything uses, on domain values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.domain.jobs import accounting
from spotline.domain.jobs.accounting import Held, Standing, terms_of
from spotline.domain.jobs.program import IDLE, Holding, JobProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Where a job stands at a moment inside its run.

    `pending_overhead_s` is what is left of the last reconfiguration; it delays progress until it
    is used up, across slots where it is longer than one. `unsaved_quanta` of the progress would be
    thrown away by a loss without notice.
    """

    progress_quanta: int = 0
    holding: Holding = IDLE
    pending_overhead_s: int = 0
    unsaved_quanta: int = 0

    def fallen(self) -> JobProgress:
        """Where the job stands once a loss without notice has thrown away what was not saved."""
        if not self.unsaved_quanta:
            return self
        return replace(
            self, progress_quanta=self.progress_quanta - self.unsaved_quanta, unsaved_quanta=0
        )


def overhead_s(
    program: JobProgram, before: Holding, after: Holding, *, interrupted: bool = False
) -> int:
    """Seconds without progress that follow from changing `before` into `after`.

    `interrupted` says that spot instances of `before` were reclaimed: whatever is held next has
    to be regrouped, even the survivors alone.
    """
    return accounting.change_s(terms_of(program), held_of(before), held_of(after), interrupted)


def advance(
    program: JobProgram,
    state: JobProgress,
    after: Holding,
    *,
    held_s: int,
    interrupted: bool = False,
) -> JobProgress:
    """Hold `after` for `held_s` seconds and return where the job stands then.

    `interrupted` says that spot of what was held is gone, and with it what was not saved.
    """
    state = state.fallen() if interrupted else state
    before = Standing(
        elapsed=0,
        progress=state.progress_quanta,
        held=held_of(state.holding),
        pending_s=state.pending_overhead_s,
        spent=0,
        interrupted=interrupted,
        unsaved=state.unsaved_quanta,
    )
    # Instances of a launch that nobody answered may come on top of a job's most: they add nothing.
    rate = program.rate_quanta_per_s[min(after.instances, program.max_instances)]
    # Plain Python overflows nowhere: no cap.
    cap_s = max(held_s, program.lost_s)
    now = accounting.advance(terms_of(program), rate, cap_s, before, held_of(after), held_s)
    return JobProgress(
        progress_quanta=now.progress,
        holding=after,
        pending_overhead_s=now.pending_s,
        unsaved_quanta=now.unsaved,
    )


def held_of(holding: Holding) -> Held:
    """Return what is held as kernels count it."""
    return Held(spot=holding.spot, on_demand=holding.on_demand)
