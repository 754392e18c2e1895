"""The policies of the ruler, each running the whole crowd in a closed loop of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions, for_crowds
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import Job
from spotline.domain.policies.registry import policy_named
from spotline.replay.closed_loop import no_digest, run_rule, telling_cloud
from spotline.replay.clouds import Information
from spotline.replay.course import MarketCourse
from spotline.replay.parts import answer_in_process
from spotline.replay.selector_run import SelectorRun, run_selector
from spotline.replay.summary import SPOTLINE

EDF = "edf"
SDP = "sdp"
# Rules of thumb, the best of which is what others are held against.
RULES = ("msu", "uniform_progress", "on_demand_only", EDF)
POLICY_NAMES = (SPOTLINE, SDP, *RULES)
# How `spotline up` decides: what is measured is what is shipped. No money has limits here.
SHIPPED = replace(for_crowds(SelectorOptions(even_cells=True)), couples_limits=False)
# What these do depends on nothing that was learned.
UNLEARNED = RULES


class EarliestDeadlineState(SelectorState):
    """A selector's state whose jobs are served by deadline, whatever their slack."""

    def in_order(self) -> list[str]:
        """Jobs that are served, earliest deadline first, then by job id."""
        served = super().in_order()
        return sorted(served, key=lambda job_id: (self.runs[job_id].job.deadline.at_ns, job_id))


class EarliestDeadlineFirst(SelectHandler):
    """Serves the job with the earliest deadline first.

    Each takes all useful spot that is left, and its largest count on demand from the latest slot
    from which that still meets its deadline: earliest deadline first (Liu and Layland, Journal of
    the ACM 20(1), 1973) over two kinds of machines, the cheaper one first.
    """

    def initial(self) -> EarliestDeadlineState:
        """No market and no jobs."""
        state = super().initial()
        return EarliestDeadlineState(
            **{each.name: getattr(state, each.name) for each in fields(state)}
        )


def run_policy(
    course: MarketCourse,
    jobs: Sequence[Job],
    name: str,
    options: SelectorOptions,
    seed: int,
    information: Information = Information.FULL,
) -> SelectorRun:
    """Run all jobs under a policy; all but `spotline` serve jobs in order, without a clearing.

    Where `information` is withheld, a cloud refuses and takes back; rules believe nothing: they ask
    for all they could use.

    Raises
    ------
    KeyError
        The registry has no policy of this name, and it is neither `spotline` nor `edf`.
    """
    if name != SPOTLINE:
        options = for_crowds(options, on=False)
    if name in RULES:
        options = replace(options, beliefs="")
    if name != EDF:
        return run_rule(course, jobs, name, options, seed, information)
    alone = replace(options, rehearsals=0, moves=False)
    handler = EarliestDeadlineFirst(alone, digest=no_digest, pool=(policy_named("msu"),))
    cloud = telling_cloud(course, information)
    return run_selector(course, jobs, handler, answer_in_process, seed, cloud=cloud)
