"""What a job could have had on paths of counts that nobody publishes: what its feedback is replayed on."""

from __future__ import annotations

from collections.abc import Callable

from spotline.application.selector.believing import spot_held
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.beliefs.count_paths import paths_onward
from spotline.domain.market.offering import CapacityType

Sampled = tuple[tuple[int, int], ...]


def path_sampler(state: SelectorState, paths: int) -> Callable[[JobRun, int], Sampled]:
    """What says of a job spot and run state of the settled slot on each of its paths; valid for now.

    It is told what the job was left of the count that the slot shows. On every path the jobs before it
    hold what they held. Where counts are known, or no `paths` are wanted, there are none.
    """
    beliefs = state.beliefs
    if beliefs is None or not paths:
        return lambda run, offered: ()
    residual, held = state.residual(), spot_held(state)

    def sampled(run: JobRun, offered: int) -> Sampled:
        home = run.offering_id
        known = beliefs.offerings.get(home)
        if known is None:
            return ()
        seed = f"{run.job.job_id} {state.slot}"
        run.paths = paths_onward(run.paths, known, offering_id=home, paths=paths, seed=seed)
        before = residual.spot(home) - offered
        cap = state.caps.get((home, CapacityType.SPOT))
        table = run.table_in(state.slot, run.first_offering_id)
        found = []
        for count in run.paths.counts(held[home]):
            left = max(0, (count if cap is None else min(count, cap)) - before)
            run_state = -1
            if table is not None:
                space, wanted = table.named.law.space, min(left, run.job.max_instances)
                believed = beliefs.run_state(home, wanted, left, space)
                run_state = state.run_state(home, space) if believed is None else believed
            found.append((left, run_state))
        return tuple(found)

    return sampled
