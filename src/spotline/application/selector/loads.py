"""What running jobs take of each offering, as the home of another is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.offering_choice import Load
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.stay import claim_on


def loads_of(
    state: SelectorState, running: Sequence[JobRun], options: SelectorOptions
) -> dict[str, Load]:
    """What jobs that run take, by offering; of a reservation that is their claim.

    With shadow prices that is what each needs in the mean until its deadline: the load of a fluid,
    which fills an offering as far as jobs can take turns on it. Without, and where on-demand is counted
    and may not be enough to save them all, it is all that each may take. With `spreads_homes` both
    are told (ADR 0085).
    """
    if not options.competing:
        return {}
    counted = {
        quoted.quote.offering_id
        for quoted in state.current.quotes
        if quoted.quote.on_demand_available.known
    }
    loads: dict[str, Load] = {}
    for run in running:
        reservation = state.offerings[run.offering_id].reservation
        if reservation is not None:
            load = Load.always(claim_on(reservation, run.job.allowed_counts))
        elif options.shadow_prices and run.offering_id not in counted:
            load = Load.always(_mean_use(state, run))
            if options.spreads_homes:
                load = Load(mean=load.mean, most=run.job.max_instances)
        else:
            load = Load.always(run.job.max_instances)
        loads[run.offering_id] = loads.get(run.offering_id, Load()) + load
    return loads


def together(one: Mapping[str, Load], other: Mapping[str, Load]) -> dict[str, Load]:
    """The loads of two groups of jobs."""
    return {name: one.get(name, Load()) + other.get(name, Load()) for name in {**one, **other}}


def most_of(loads: Mapping[str, Load]) -> dict[str, int]:
    """The most that jobs take, by offering."""
    return {name: load.most for name, load in loads.items()}


def _mean_use(state: SelectorState, run: JobRun) -> int:
    """Instances that do the rest of a job's work by its deadline, in the mean; rounded up."""
    program = state.program_of(run.job, run.offering_id)
    most = program.max_instances
    left = program.work_quanta - run.state.progress_quanta
    elapsed = run.elapsed_slots(state.slot) if run.first_slot >= 0 else 0
    whole = max(1, program.deadline_slots - elapsed) * program.slot_s
    return min(most, max(0, -(-left * most // (program.rate_quanta_per_s[most] * whole))))
