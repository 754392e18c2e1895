"""Several jobs in one window, coupled by what they share: spot, on-demand stock, quotas, a budget.

An integer program (OR-Tools CP-SAT, one thread, seeded, bounded by its own count of work) over the
accounting of `jobs.migration`: every change of a held set costs its overhead, also one longer than
a slot. `coupled_prices` bounds what it can find and says where to begin; where its plan meets its
bound, nothing is left to do. The answer is executed through the accounting: what a plan promises is
what executing it earns. `coupled_jobs` says what is asked and answered, and who loses spot.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    CoupledPlan,
    Infeasible,
    SharedMarket,
    Unsolved,
    plan_of,
    solo_bound,
)
from spotline.domain.solvers.coupled_model import CoupledModel, SharedLimits, solve_model
from spotline.domain.solvers.coupled_prices import price_coupled
from spotline.domain.solvers.coupled_reasons import explain_coupled
from spotline.domain.solvers.window import CELL_LIMIT

# Share of the work bound that finding out why there is no plan may take, per question.
_DIAGNOSIS_SHARE = 0.2


def solve_coupled(
    jobs: Sequence[CoupledJob],
    shared: SharedMarket,
    *,
    max_deterministic_time: float = 20.0,
    cell_limit: int = CELL_LIMIT,
) -> CoupledPlan | Infeasible | Unsolved:
    """Plan several jobs at once for the greatest sum of value less cost.

    Parameters
    ----------
    jobs
        Each with programs for the offerings of `shared`, in that order.
    shared
        Prices, counts and limits of the window.
    max_deterministic_time
        Bound on CP-SAT's own count of work, not on seconds; equal inputs end alike. Finding out
        why there is no plan takes up to as much again.
    cell_limit
        A job whose exact progress grid would be finer is planned with gains rounded down.

    Returns
    -------
    CoupledPlan
        The best found, with a bound on what any could earn.
    Infeasible
        Not all required work can be done.
    Unsolved
        Neither a plan nor a proof that there is none was found within the bound.

    Raises
    ------
    ValueError
        The arguments do not fit together.
    """
    for job in jobs:
        if len(job.programs) != len(shared.offering_ids):
            raise ValueError(
                f"programs of {job.job_id} must hold {len(shared.offering_ids)}, "
                f"held {len(job.programs)}"
            )
        if job.program.slot_s != jobs[0].program.slot_s:
            raise ValueError("programs must all have one slot_s")
        if not 0 <= job.required_by_slot <= shared.slots:
            raise ValueError(f"required_by_slot must lie in 0..{shared.slots}")
    bounds = [solo_bound(job, shared, cell_limit) for job in jobs]
    if not jobs or not shared.slots:
        return plan_of(jobs, shared, [[] for _ in jobs], sum(bounds))
    priced = price_coupled(jobs, shared, bounds, cell_limit=cell_limit)
    upper = priced.upper_utility_micro_usd
    if priced.placements is not None and priced.utility_micro_usd >= upper:
        return plan_of(jobs, shared, priced.placements, upper)
    model = CoupledModel(jobs, shared, SharedLimits.all_of(shared), cell_limit)
    model.maximise(bounds, upper, priced.placements)
    answer = solve_model(model, max_deterministic_time)
    if answer.status == "infeasible":
        return explain_coupled(jobs, shared, max_deterministic_time * _DIAGNOSIS_SHARE, cell_limit)
    if answer.status == "found" and all(part.exact for part in model.jobs):
        # On a rounded grid the solver's bound is one of rounded plans only.
        upper = min(upper, answer.bound)
    plans = []
    if answer.status == "found":
        plans.append(plan_of(jobs, shared, answer.placements, upper))
    if priced.placements is not None:
        plans.append(plan_of(jobs, shared, priced.placements, upper))
    if not plans:
        return Unsolved(
            reason=f"no plan found within {max_deterministic_time:g} units of work",
            upper_utility_micro_usd=upper,
        )
    return max(plans, key=lambda plan: plan.utility_micro_usd)
