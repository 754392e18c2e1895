"""Whether a job can be taken: it could run on the market, and meet its deadline there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.market_view import MarketView
from spotline.application.spec import derive_id
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.program import compile_program
from spotline.domain.units import NS_PER_S, utc_iso

# Programs hold a value per slot and a rate per count: bounds that no sensible job reaches keep
# one absurd submission from exhausting the services.
MOST_SLOTS = 50_000
MOST_INSTANCES = 256
_MOST_QUANTA = 2**61


def job_id_for(tenant: str, client_request_id: str) -> str:
    """The id of a job: the same request of the same tenant is the same job."""
    return derive_id(tenant, f"job:{client_request_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The job can be recorded, or was before by an equal request."""

    job_id: str
    already_submitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a job is not taken: the field at fault, what was expected.

    `earliest_feasible_deadline_ns` is the earliest deadline that on-demand instances could meet,
    0 where the deadline is not the matter. `permanent` says that no other input would help now.
    """

    field: str
    message: str
    earliest_feasible_deadline_ns: int = 0
    permanent: bool = False


def check_job(market: MarketView, job: Job) -> Refused | None:
    """Say why `job` could not run on `market`, None where it can."""
    ended = refuse_ended(market, "job.start_ns")
    return (
        ended or _absurd(market, job) or _unknown_offering(market, job) or _infeasible(market, job)
    )


def _absurd(market: MarketView, job: Job) -> Refused | None:
    if job.max_instances > MOST_INSTANCES:
        return Refused(
            field="job.allowed_counts",
            message=f"must be <= {MOST_INSTANCES}, was {job.max_instances}",
        )
    return refuse_far_deadline(market, job, "job.deadline")


# --- what jobs and drafts are refused for alike -----------------------------------------------


def refuse_ended(market: MarketView, field: str) -> Refused | None:
    """Refuse everything once a replayed market has ended."""
    if not market.ended:
        return None
    message = "the replayed market has ended: no slot opens any more"
    return Refused(field=field, message=message, permanent=True)


def refuse_far_deadline(market: MarketView, job: Job | JobDraft, field: str) -> Refused | None:
    """Refuse a deadline or a start more than `MOST_SLOTS` away."""
    last_ns = market.next_slot_start_ns + MOST_SLOTS * market.slot_ns
    if max(job.deadline.expires_ns, job.start_ns) <= last_ns:
        return None
    return Refused(
        field=field,
        message=f"must lie within {MOST_SLOTS} slots, before {utc_iso(last_ns)}, "
        f"was {utc_iso(job.deadline.expires_ns)}",
    )


def refuse_other_id(job: Job | JobDraft, field: str) -> Refused | None:
    """Refuse an id that is not that of the tenant's request."""
    expected_id = job_id_for(job.tenant, job.client_request_id)
    if job.job_id == expected_id:
        return None
    return Refused(
        field=field,
        message=f"must be empty or {expected_id} (from tenant and client_request_id), "
        f"was {job.job_id}",
    )


def submitted_again(job: Job | JobDraft, differs: Sequence[str], field: str) -> Accepted | Refused:
    """Take a request that is known if nothing `differs`, else refuse its id."""
    if not differs:
        return Accepted(job_id=job.job_id, already_submitted=True)
    return Refused(
        field=field,
        message=f"{job.client_request_id!r} was used by {job.tenant} for another job, which "
        f"differs in {', '.join(differs)}; use a new request id for a new job",
        permanent=True,
    )


# --- what the market says ---------------------------------------------------------------------


def _unknown_offering(market: MarketView, job: Job) -> Refused | None:
    ids = sorted(offering.offering_id for offering in market.offerings)
    types = sorted({offering.instance_type for offering in market.offerings})
    known = f"known are the offerings {', '.join(ids)} and the instance types {', '.join(types)}"
    for index, name in enumerate(job.offerings):
        if name not in ids and name not in types:
            return Refused(
                field=f"job.offerings[{index}]",
                message=f"must be a known offering or instance type, was {name!r}; {known}",
            )
    if not market.runnable(job):
        stated = ", ".join(throughput.offering for throughput in job.throughputs)
        allowed = f" within {', '.join(job.offerings)}" if job.offerings else ""
        return Refused(
            field="job.throughputs",
            message=f"must be stated for an offering of the market{allowed}, "
            f"was for {stated}; {known}, and * is any",
        )
    return None


def _infeasible(market: MarketView, job: Job) -> Refused | None:
    first_slot, first_ns = market.first_slot(job)
    earliest_ns = 0
    for _, throughput in market.runnable(job):
        program = compile_program(
            job, throughput, slot_s=market.slot_s, first_slot_start_ns=first_ns
        )
        rate = program.rate_quanta_per_s[program.max_instances]
        if rate < 1 or rate * program.slot_s > _MOST_QUANTA:
            return Refused(
                field="job.throughputs",
                message=f"on {throughput.offering} must be within twelve orders of magnitude of "
                f"the work per hour, was {throughput.rate_per_hour(program.max_instances)} "
                f"for {job.work.amount}",
            )
        slots = program.slots_on_demand(program.work_quanta, program.launch_s)
        finish_ns = first_ns + slots * market.slot_ns
        earliest_ns = min(earliest_ns or finish_ns, finish_ns)
    hard = job.deadline.kind is DeadlineKind.HARD
    if earliest_ns <= job.deadline.at_ns or (not hard and earliest_ns < job.deadline.expires_ns):
        return None
    # A message carries whole seconds; rounded down, the answer itself would be refused.
    earliest_ns = -(-earliest_ns // NS_PER_S) * NS_PER_S
    asked_ns = job.deadline.at_ns if hard else job.deadline.expires_ns
    return Refused(
        field="job.deadline",
        message=f"cannot be met: {utc_iso(asked_ns)} was asked for, but {job.max_instances} "
        f"on-demand instances from slot {first_slot} ({utc_iso(first_ns)}) on are done at "
        f"{utc_iso(earliest_ns)} at the earliest",
        earliest_feasible_deadline_ns=earliest_ns,
    )
