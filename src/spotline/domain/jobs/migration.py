"""A job that may hold one of several offerings at a time: what moving costs, and the accounting.

The progress of a job that has run lies in its last checkpoint, and that lies where the job ran
last: its *home*. Going idle or losing spot leaves it there. Launching anywhere else is a migration,
also after a pause: the checkpoint is copied once, and paid for, when the new instances start. What
a job needs before its first launch is assumed to be everywhere; its first launch is no migration.

A migration is charged like every other change: one overhead, the longer of copying and launching,
no less than what an interruption of the set it leaves would cost if that was interrupted, and no
less than what is still pending. A reclaim's lost work is part of `interrupted_s`, as in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import overhead_s

NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationCost:
    """What moving a job from one offering to another costs.

    `overhead_s` is seconds without progress, before it is compared with the launch at the new
    place; `cost_micro_usd` is paid once per move, in the slot of the move (egress).
    """

    overhead_s: int
    cost_micro_usd: int = 0

    def __post_init__(self) -> None:
        if self.overhead_s < 0 or self.cost_micro_usd < 0:
            raise ValueError(
                f"overhead_s and cost_micro_usd of a migration must be >= 0, were "
                f"{self.overhead_s}, {self.cost_micro_usd}"
            )


# Row: from this offering; column: to that one. The diagonal is never read.
MigrationTable = tuple[tuple[MigrationCost, ...], ...]


def migration_cost(job: Job, *, egress_micro_usd_per_gb: int) -> MigrationCost:
    """What one move of `job` costs where copying out of the old place costs this much per GB."""
    return MigrationCost(
        overhead_s=job.overheads.migrate_s,
        cost_micro_usd=round(job.checkpoint.size_gb * egress_micro_usd_per_gb),
    )


def equal_migrations(offerings: int, cost: MigrationCost) -> MigrationTable:
    """A table in which every move costs the same, shape (offerings, offerings)."""
    return ((cost,) * offerings,) * offerings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHolding:
    """What a job holds in a slot, and on which offering (index; `NOWHERE` when idle)."""

    offering: int = NOWHERE
    holding: Holding = IDLE

    def __post_init__(self) -> None:
        if (self.offering == NOWHERE) != (self.holding == IDLE):
            raise ValueError(
                f"a placement must name an offering exactly where it holds instances, was "
                f"{self.offering} with {self.holding}"
            )


NOT_PLACED = PlacedHolding()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedProgress:
    """Where a job that may move stands.

    `home` is the offering it ran on last (index), where its checkpoint lies; `NOWHERE` before its
    first launch. `holding` is held there. `pending_overhead_s` as in `JobProgress`.
    """

    progress_quanta: int = 0
    home: int = NOWHERE
    holding: Holding = IDLE
    pending_overhead_s: int = 0

    def __post_init__(self) -> None:
        if self.home == NOWHERE and self.holding != IDLE:
            raise ValueError("holding must be idle before the first launch (home is NOWHERE)")


def is_migration(state: PlacedProgress, after: PlacedHolding) -> bool:
    """Whether taking `after` copies the checkpoint to another offering."""
    return state.home != NOWHERE and after.offering not in (NOWHERE, state.home)


def placement_overhead_s(
    programs: Sequence[JobProgram],
    migrations: MigrationTable,
    state: PlacedProgress,
    after: PlacedHolding,
    *,
    interrupted: bool = False,
) -> int:
    """Seconds without progress that follow from changing to `after`; what is pending is not in.

    Parameters
    ----------
    programs
        The job on each offering; equal work scale and slot grid.
    interrupted
        Spot instances of `state.holding` were reclaimed.
    """
    if after.offering == NOWHERE:
        return 0
    there = programs[after.offering]
    if not is_migration(state, after):
        return overhead_s(there, state.holding, after.holding, interrupted=interrupted)
    change_s = max(migrations[state.home][after.offering].overhead_s, there.launch_s)
    if interrupted:
        change_s = max(change_s, programs[state.home].interrupted_s)
    return change_s


def move_cost_micro_usd(
    migrations: MigrationTable, state: PlacedProgress, after: PlacedHolding
) -> int:
    """What copying the checkpoint costs, 0 where `after` is no migration."""
    if not is_migration(state, after):
        return 0
    return migrations[state.home][after.offering].cost_micro_usd


def advance_placed(
    programs: Sequence[JobProgram],
    migrations: MigrationTable,
    state: PlacedProgress,
    after: PlacedHolding,
    *,
    held_s: int,
    interrupted: bool = False,
) -> PlacedProgress:
    """Hold `after` for `held_s` seconds and return where the job stands then.

    As `progress.advance`, which it equals on one offering: a change sets the pending overhead to
    its own full value unless more is pending; overheads never add up; idling drops what is pending.
    """
    if after.offering == NOWHERE:
        return PlacedProgress(progress_quanta=state.progress_quanta, home=state.home)
    program = programs[after.offering]
    change_s = placement_overhead_s(programs, migrations, state, after, interrupted=interrupted)
    pending_s = max(change_s, state.pending_overhead_s)
    gained = program.rate_quanta_per_s[after.holding.instances] * max(0, held_s - pending_s)
    return PlacedProgress(
        progress_quanta=min(program.work_quanta, state.progress_quanta + gained),
        home=after.offering,
        holding=after.holding,
        pending_overhead_s=max(0, pending_s - held_s),
    )
