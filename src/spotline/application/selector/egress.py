"""Where a job may not go because copying its checkpoint there costs too much, or nobody knows what."""

from __future__ import annotations

from collections.abc import Mapping

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.offered_money import Copy, no_room_for_copy
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.jobs.job import Job
from spotline.domain.market.offering import Offering
from spotline.domain.units import micro_usd_from_usd, usd_from_micro_usd


def copy_micro_usd(
    state: SelectorState, job: Job, home: str, other: str, options: SelectorOptions
) -> int:
    """What copying a job's checkpoint from one offering to another costs."""
    return copied_micro_usd(job, state.offerings[home], state.offerings[other], options)


def copied_micro_usd(job: Job, here: Offering, there: Offering, options: SelectorOptions) -> int:
    """What copying a job's checkpoint from here to there costs."""
    if (here.provider, here.region) != (there.provider, there.region):
        usd_per_gb = options.egress_usd_per_gb
    elif here.zone != there.zone:
        usd_per_gb = options.zone_egress_usd_per_gb
    else:
        return 0
    return micro_usd_from_usd(job.checkpoint.size_gb * usd_per_gb)


def held_back(state: SelectorState, run: JobRun, offering_id: str, options: SelectorOptions) -> str:
    """Why copying a job's checkpoint keeps it from going to an offering, empty where it does not.

    A checkpoint of unknown size is not copied to another region if Spotline runs the program: it
    will be known. All copies of a job's life together cost no more than its cap, and none costs
    what a limit on money would refuse: the copy would be paid, and nothing be launched for it. Where
    a limit has refused all that a copy was made for, no other is paid until the job has run again.
    """
    if offering_id == run.offering_id or not run.launched:
        return ""
    job = run.job
    here, there = state.offerings[run.offering_id], state.offerings[offering_id]
    leaves_region = (here.provider, here.region) != (there.provider, there.region)
    if leaves_region and job.run is not None and not job.checkpoint.size_gb:
        return "the size of its checkpoint is not known"
    cap = job.egress_cap_micro_usd
    cost = copy_micro_usd(state, job, run.offering_id, offering_id, options)
    if not cost:
        return ""
    if cap is not None and run.egress_micro_usd + cost > cap:
        return f"copying its checkpoint would exceed USD {usd_from_micro_usd(cap):.2f} in all"
    if run.copied_in_vain:
        return "a limit refused all where its checkpoint was copied last"
    copy = Copy(to_offering_id=offering_id, micro_usd=cost)
    limit = no_room_for_copy(state, run, copy, options)
    return f"copying its checkpoint would exceed {limit}" if limit else ""


def open_to(state: SelectorState, run: JobRun, options: SelectorOptions) -> Mapping[str, Offering]:
    """The offerings that copying a job's checkpoint does not keep it from, by id."""
    return {
        offering_id: offering
        for offering_id, offering in state.offerings.items()
        if not held_back(state, run, offering_id, options)
    }


def why_here(state: SelectorState, run: JobRun, options: SelectorOptions) -> str:
    """Why a job was not allowed to go where it could have gone as a slot opened; empty: it was."""
    if not options.moves or state.offset_s:
        return ""
    places = sorted(state.offerings) if state.is_over(run.offering_id) else list(run.tables)
    for offering_id in places:
        offering = state.offerings[offering_id]
        if run.job.throughput_on(offering_id, offering.instance_type) is None:
            continue
        why = held_back(state, run, offering_id, options)
        if why:
            return why
    return ""
