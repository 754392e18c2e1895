"""Whether a job can be taken: it could run on the market, and meet its deadline there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from spotline.application.market_view import MarketView
from spotline.application.spec import derive_id
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.program import compile_program
from spotline.domain.jobs.run_limits import run_problems
from spotline.domain.jobs.stay import stay_on
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
    `others` are wrong as well, whatever becomes of this one.
    """

    field: str
    message: str
    earliest_feasible_deadline_ns: int = 0
    permanent: bool = False
    reason: Reason = Reason.FIELD_INVALID
    others: tuple[Refused, ...] = ()


def check_job(market: MarketView, job: Job) -> Refused | None:
    """Say why `job` could not run on `market`, all that is wrong at once; None where it can."""
    ended = refuse_ended(market, "job.start_ns")
    if ended is not None:
        return ended
    wrong = all_refused(
        (
            *_too_many_instances(job),
            *refuse_run(job, "job"),
            refuse_far_deadline(market, job, "job.deadline"),
            *_unknown_offerings(market, job),
        )
    )
    # The rest needs a job that can run at all.
    return wrong or _not_runnable(market, job) or _infeasible(market, job)


def all_refused(found: Iterable[Refused | None]) -> Refused | None:
    """One refusal that tells of all that was found, None where nothing was."""
    wrong = [refused for refused in found if refused is not None]
    return replace(wrong[0], others=tuple(wrong[1:])) if wrong else None


def _too_many_instances(job: Job) -> Iterator[Refused]:
    if job.max_instances > MOST_INSTANCES:
        yield Refused(
            field="job.allowed_counts",
            message=f"must be <= {MOST_INSTANCES}, was {job.max_instances}",
        )


# --- what jobs and drafts are refused for alike -----------------------------------------------


def refuse_ended(market: MarketView, field: str) -> Refused | None:
    """Refuse everything once a replayed market has ended."""
    if not market.ended:
        return None
    message = "the replayed market has ended: no slot opens any more"
    return Refused(field=field, message=message, permanent=True, reason=Reason.MARKET_ENDED)


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


def refuse_run(job: Job | JobDraft, field: str) -> Iterator[Refused]:
    """Refuse how a program is to be run; `field` is that of the job or draft."""
    for below, message in run_problems(job.run, job.checkpoint):
        yield Refused(field=f"{field}.{below}", message=message)


def refuse_stated_value(job: Job | JobDraft, field: str) -> Refused | None:
    """Refuse a value beside one that is left to the quote, and a quote that is not the server's."""
    if job.value_from_quote and job.value_micro_usd:
        return Refused(
            field=f"{field}.value_micro_usd",
            message=f"must be 0 with value_from_quote, was {job.value_micro_usd}",
        )
    if isinstance(job, Job) and job.on_demand_quote_micro_usd:
        return Refused(
            field=f"{field}.on_demand_quote_micro_usd",
            message=f"must be 0, the server sets it, was {job.on_demand_quote_micro_usd}",
        )
    return None


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
        reason=Reason.REQUEST_ID_REUSED,
    )


# --- what the market says ---------------------------------------------------------------------


def _known_offerings(market: MarketView) -> tuple[Set[str], str]:
    """The names that a job may give to what it runs on, and the same for people."""
    ids = sorted(offering.offering_id for offering in market.offerings)
    types = sorted({offering.instance_type for offering in market.offerings})
    known = f"known are the offerings {', '.join(ids)} and the instance types {', '.join(types)}"
    return {*ids, *types}, known


def _unknown_offerings(market: MarketView, job: Job) -> Iterator[Refused]:
    names, known = _known_offerings(market)
    for index, name in enumerate(job.offerings):
        if name not in names:
            yield Refused(
                field=f"job.offerings[{index}]",
                message=f"must be a known offering or instance type, was {name!r}; {known}",
            )


def _not_runnable(market: MarketView, job: Job) -> Refused | None:
    if market.runnable(job):
        return None
    _, known = _known_offerings(market)
    stated = ", ".join(throughput.offering for throughput in job.throughputs)
    allowed = f" within {', '.join(job.offerings)}" if job.offerings else ""
    return Refused(
        field="job.throughputs",
        message=f"must be stated for an offering of the market{allowed}, "
        f"was for {stated}; {known}, and * is any",
    )


def _infeasible(market: MarketView, job: Job) -> Refused | None:
    first_slot, first_ns = market.first_slot(job)
    earliest_ns = 0
    too_short: list[str] = []
    for offering, throughput in market.runnable(job):
        program = compile_program(
            job,
            throughput,
            slot_s=market.slot_s,
            first_slot_start_ns=first_ns,
            notice_lead_s=offering.notice_lead_s,
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
        if offering.reservation is not None:
            stay = stay_on(offering.reservation, program, first_ns)
            if stay is None:
                too_short.append(offering.offering_id)
                continue
            slots = stay.slots
        finish_ns = first_ns + slots * market.slot_ns
        earliest_ns = min(earliest_ns or finish_ns, finish_ns)
    if not earliest_ns:
        return Refused(
            field="job.offerings",
            message="must hold more than reservations that are too small for the job or end before "
            f"its work can be done, were {', '.join(too_short)}",
        )
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
        reason=Reason.DEADLINE_INFEASIBLE,
    )
