"""Progress and cost of a job, slot by slot: the one accounting everything uses."""

from __future__ import annotations

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress


def overhead_s(
    program: JobProgram, before: Holding, after: Holding, *, interrupted: bool = False
) -> int:
    """Seconds without progress that follow from changing `before` into `after`.

    `interrupted` says that spot instances of `before` were reclaimed: whatever is held next has
    to be regrouped, even the survivors alone. Reconfiguration follows arXiv:2512.20967 in its
    seconds form (mu = 1 - overhead_s / slot_s); ours differs in charging every change of the held
    set, so a swap of spot for on-demand at an equal count is not free.
    """
    if after.instances == 0:
        return 0
    if before.instances == 0:
        return program.launch_s
    if interrupted:
        return program.interrupted_s
    if after == before:
        return 0
    if after.spot <= before.spot and after.on_demand <= before.on_demand:
        return program.shrink_s
    return program.grow_s


def fallen(state: JobProgress) -> JobProgress:
    """What a loss without notice leaves of a job's work."""
    return JobProgress(
        progress_quanta=state.progress_quanta - state.unsaved_quanta,
        holding=state.holding,
        pending_overhead_s=state.pending_overhead_s,
    )


def advance(
    program: JobProgram,
    state: JobProgress,
    after: Holding,
    *,
    held_s: int,
    interrupted: bool = False,
) -> JobProgress:
    """Hold `after` for `held_s` seconds and return where the job stands then.

    A change sets the pending overhead to the full value of that change, unless more is still
    pending; overheads never add up. An interruption throws away what was not saved; a change of
    ours saves first, and the training program saves every `lost_s` seconds.
    """
    if interrupted:
        state = fallen(state)
    change_s = overhead_s(program, state.holding, after, interrupted=interrupted)
    pending_s = max(change_s, state.pending_overhead_s) if after.instances else 0
    productive_s = max(0, held_s - pending_s)
    rate = program.rate_quanta_per_s[after.instances]
    gained = rate * productive_s
    progress = min(program.work_quanta, state.progress_quanta + gained)
    unsaved = progress - state.progress_quanta
    if after == state.holding and not interrupted:
        unsaved += state.unsaved_quanta
    return JobProgress(
        progress_quanta=progress,
        holding=after,
        pending_overhead_s=max(0, pending_s - held_s) if after.instances else 0,
        unsaved_quanta=min(unsaved, rate * program.lost_s),
    )
