"""Which value tables the selector asks for, and when it asks for one again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from spotline.application.allocation.value_tables import same_table_of
from spotline.application.selector.believing import homes_by
from spotline.application.selector.home_prospects import HomeProspects
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.loads import most_of
from spotline.application.selector.offering_choice import Load, other_offerings
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import ValueTableRequested
from spotline.domain.events.lifecycle import JobUpdated
from spotline.domain.events.training import CheckpointCommitted, TrainingRestarted
from spotline.domain.solvers.table_store import FEWER_TABLES, MOST_TABLES

# Tables that running jobs are given late, in a slot at most: each takes a tenth of a second to build.
MOST_MISSED = 16


def most_tables(options: SelectorOptions) -> int:
    """How many value tables of running jobs are kept; fewer in logs from before homes went by laws."""
    return MOST_TABLES if options.homes_by_law else FEWER_TABLES


def table_room(running: Iterable[JobRun], options: SelectorOptions) -> int:
    """How many more value tables running jobs may be given."""
    return most_tables(options) - sum(len(run.tables) for run in running)


def tables_wanted(
    state: SelectorState,
    run: JobRun,
    home: str,
    taken: Mapping[str, Load],
    options: SelectorOptions,
    room: int,
    full: Set[str] = frozenset(),
    prospects: HomeProspects | None = None,
) -> list[ValueTableRequested]:
    """An arriving job's value tables, at home first, wherever laws are known.

    `taken` is what running jobs take of each offering, `full` where they may need all on-demand. Those that `tables_with_room` would leave out
    for sure are not even named: in a crowd most jobs get none.
    """
    wanted = [home]
    if 2 * room <= most_tables(options) and not state.shared_tables:
        wanted = wanted[: max(0, room)]
    elif options.moves and home in state.laws:
        opened, past = homes_by(state, run.job, most_of(taken))
        wanted += other_offerings(
            run.job, home, state.offerings, opened, past, taken, full=full, prospects=prospects
        )
    events = []
    for offering_id in wanted:
        named = state.laws.get(offering_id)
        program = state.program_of(run.job, offering_id)
        if named is None or program.deadline_slots < 1:
            continue
        events.append(
            ValueTableRequested(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                table=state.table_spec(named, offering_id, program),
                named=named,
            )
        )
    return events


def tables_at_homes(
    state: SelectorState, running: Sequence[JobRun], room: int
) -> list[ValueTableRequested]:
    """Ask for the tables of jobs that have none where they live, neediest first, while there is room.

    They moved to where they had none, or there was none to be had as they came. At most
    `MOST_MISSED` in a slot.
    """
    wanted = []
    for run in running:
        named = state.laws.get(run.offering_id)
        if named is None or run.offering_id in run.tables or run.first_slot < 0:
            continue
        left = run.compiled.deadline_slots - run.elapsed_slots(state.slot)
        if left > 1:
            wanted.append((run.slack_slots(state.slot), run.job.job_id, run, named))
    asked: list[ValueTableRequested] = []
    for _, job_id, run, named in sorted(wanted, key=lambda each: each[:2]):
        if len(asked) >= min(room, MOST_MISSED):
            break
        program = state.program_of(run.job, run.offering_id)
        spec = state.table_spec(named, run.offering_id, program)
        asked.append(
            ValueTableRequested(
                job_id=job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                table=replace(spec, first_slot_start_ns=run.first_slot_start_ns),
                named=named,
            )
        )
    return asked


def tables_on_the_way(
    state: SelectorState, report: CapacityReported, options: SelectorOptions
) -> list[ValueTableRequested]:
    """Ask for the tables of jobs that have just moved to where they have none, once a slot's decisions are carried out.

    So that the slot behind the move, in which the way ends, is decided by one already.
    """
    on_the_way = options.homes_by_law and options.tables_on_the_way
    if not on_the_way or report is not state.settling:
        return []
    running = state.running()
    return tables_at_homes(state, running, table_room(running, options))


def tables_with_room(
    state: SelectorState, wanted: list[ValueTableRequested], room: int, most: int
) -> list[ValueTableRequested]:
    """Those of a job's wanted tables, its home's first, that it gets while `room` more of `most` are kept.

    While room is short, a home is worth more than places to move to. Where tables are shared, every
    job has that of its home, and of other places those that jobs of its class had built before.
    """
    if 2 * room > most:
        return wanted
    if not state.shared_tables:
        return wanted[: min(1, max(0, room))]
    others = [asked for asked in wanted[1:] if asked.table.table_id in state.announced]
    return wanted[:1] + others


def tables_again(
    state: SelectorState,
    event: ThroughputReestimated | JobUpdated | CheckpointCommitted | TrainingRestarted,
) -> tuple[Event, ...]:
    """Ask again for the tables that are stale: of other rates, overheads, saves, or another job.

    As many as it had, and only the job's program differs: on the same law, what the job was offered so far is told in
    the states that feedback will look up.
    """
    run = state.runs.get(event.job_id)
    if run is None or run.phase is not RunPhase.RUNNING:
        return ()
    asked = []
    for offering_id, table in run.tables.items():
        if not table.stale:
            continue
        program = state.program_of(run.job, offering_id)
        if program.deadline_slots < 1:
            continue
        asked.append(
            ValueTableRequested(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                table=same_table_of(table.spec, program, table.named.law),
                named=table.named,
            )
        )
    return tuple(asked)
