"""What would be done with a job or several, before anything is bought; and what policies did."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from spotline.application.admission import check_job
from spotline.application.allocation.on_demand_quote import (
    DEFAULT_QUOTE_MARGIN,
    on_demand_quote_micro_usd,
    valued,
)
from spotline.application.allocation.tasks import forecast_of, program_of
from spotline.application.allocator.joint_planning import LEAST_ON_TIME_PPM, plan_together
from spotline.application.allocator.messages import (
    ComparisonAnswer,
    ComparisonRequest,
    DeadlineOutlook,
    MarketSlot,
    PlanAnswer,
    PlanOption,
    PlanRequest,
    PolicyComparison,
)
from spotline.application.allocator.policy_options import policies_named, policy_options
from spotline.application.market_view import MarketView
from spotline.application.outlook.following import SelectorSnapshot, snapshot_of_market
from spotline.application.outlook.outlook import (
    futures_for,
    job_outlook,
    market_futures,
    slots_ahead,
)
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.jobs.program import SMALLEST_PROGRAM
from spotline.domain.market.offering import Offering, check_price
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import JobResult, SlotRecord, clairvoyant_optimum
from spotline.domain.units import NS_PER_S

DEFAULT_POLICY_IDS = (
    "on_demand_only",
    "msu",
    "uniform_progress",
    "ahanp(0.5)",
    "ahap(3,1,0.5)",
    "ahap(5,1,0.5)",
    "sdp",
)

CLAIRVOYANT = "clairvoyant"


def market_of_request(request: PlanRequest) -> MarketView | None:
    """The market a request brings along, None where it means the allocator's own.

    Raises
    ------
    ValueError
        A price cannot be of its offering; the message begins with the field.
    """
    if not request.quotes:
        return None
    offerings = {offering.offering_id: offering for offering in request.offerings}
    for index, quoted in enumerate(request.quotes):
        offering = offerings.get(quoted.quote.offering_id)
        if offering is not None:
            try:
                check_price(offering, quoted.quote)
            except ValueError as error:
                raise ValueError(f"quotes[{index}].quote.{error}") from error
    return MarketView(
        offerings=request.offerings,
        slot_s=request.slot_s,
        next_slot=request.slot + 1,
        next_slot_start_ns=request.slot_start_ns + request.slot_s * NS_PER_S,
        quotes=request.quotes,
        forecast=request.forecast,
        history=(),
    )


def plan(
    request: PlanRequest,
    market: MarketView,
    *,
    quote_margin: float = DEFAULT_QUOTE_MARGIN,
    known: SelectorSnapshot | None = None,
) -> PlanAnswer:
    """Say what submitting a job now would bring, and with other deadlines.

    Several jobs are planned at once instead, see `joint_planning`. Where policies are named, each is
    laid out on every offering besides, see `policy_options`. Equal arguments give equal answers.

    Parameters
    ----------
    request
        The job and the policies to consider; its market, if any, is already in `market`.
    market
        As `market_of_request` or the read model gives it.
    quote_margin
        A job that states no value is planned at (1 + this) x its on-demand quote.
    known
        What the selector knows of the same market; None: what one knows that has only seen what
        `market` holds.

    Raises
    ------
    ValueError
        An unknown policy, no quote to plan on, or a job that does not fit the market's offerings;
        the message begins with the field.
    """
    known = known or snapshot_of_market(market)
    if request.jobs:
        if request.job is not None:
            raise ValueError("jobs must be empty where job is given")
        if request.deadlines_ns:
            raise ValueError("deadlines_ns must be empty where jobs are planned together")
        return plan_together(request, market, known, quote_margin=quote_margin)
    if request.job is None:
        raise ValueError("job is missing, and jobs is empty")
    for name in ("quotas", "budget_micro_usd_per_hour", "egress_micro_usd_per_gb"):
        if getattr(request, name):
            raise ValueError(f"{name} must be empty where one job is planned; give it in jobs")
    return _plan_one(request, request.job, market, known, quote_margin)


def _plan_one(
    request: PlanRequest,
    job: Job,
    market: MarketView,
    known: SelectorSnapshot,
    quote_margin: float,
) -> PlanAnswer:
    policies_named(request.policy_ids)
    refused = check_job(market, job)
    if refused is not None:
        if not (refused.permanent or refused.earliest_feasible_deadline_ns):
            raise ValueError(f"{refused.field} {refused.message}")
        return PlanAnswer(
            feasible=False,
            infeasible_reason=f"{refused.field} {refused.message}",
            earliest_feasible_deadline_ns=refused.earliest_feasible_deadline_ns,
            options=(),
            curve=_curve(request, job, market, known),
        )
    quote = job.on_demand_quote_micro_usd or on_demand_quote_micro_usd(market, job)
    job = valued(market, job, margin=quote_margin)
    outlook = job_outlook(known, job)
    if outlook is None:
        raise ValueError("quotes must hold one of an offering that the job can run on, hold none")
    options: tuple[PlanOption, ...] = ()
    if request.policy_ids:
        options = policy_options(job, market, request.policy_ids)
    return PlanAnswer(
        feasible=True,
        infeasible_reason="",
        earliest_feasible_deadline_ns=0,
        options=options,
        on_demand_quote_micro_usd=quote,
        most_cost_micro_usd=job.budget_micro_usd,
        outlook=outlook,
        likely_enough=is_likely_enough(job, outlook, request.least_on_time_ppm),
        curve=_curve(request, job, market, known),
    )


def is_likely_enough(job: Job, outlook: JobOutlook, least_on_time_ppm: int = 0) -> bool:
    """Whether a job is as likely to be on time as is asked for.

    0 asks for `LEAST_ON_TIME_PPM` of a hard deadline, for nothing of a soft one.
    """
    hard = job.deadline.kind is DeadlineKind.HARD
    least = least_on_time_ppm or (LEAST_ON_TIME_PPM if hard else 0)
    return outlook.on_time_probability_ppm >= least


def _curve(
    request: PlanRequest, job: Job, market: MarketView, known: SelectorSnapshot
) -> tuple[DeadlineOutlook, ...]:
    """The outlook at every deadline asked for, all on the same futures; None where none is met."""
    fit: dict[int, Job] = {}
    for index, at_ns in enumerate(request.deadlines_ns):
        if at_ns <= market.next_slot_start_ns:
            raise ValueError(f"deadlines_ns[{index}] must lie after the next slot's opening")
        other = due_at(job, at_ns)
        if check_job(market, other) is None:
            fit[at_ns] = other
    futures = None
    if fit:
        slots = max(slots_ahead(known.state, other) for other in fit.values())
        futures = market_futures(known.state, slots=slots, futures=futures_for(slots))
    outlooks = {at_ns: job_outlook(known, other, market=futures) for at_ns, other in fit.items()}
    return tuple(
        DeadlineOutlook(deadline_ns=at_ns, outlook=outlooks.get(at_ns))
        for at_ns in request.deadlines_ns
    )


def due_at(job: Job, at_ns: int) -> Job:
    """The job with another deadline; a soft one expires as long after it as before."""
    before = job.deadline
    later_ns = before.expires_ns - before.at_ns
    return replace(job, deadline=replace(before, at_ns=at_ns, expires_ns=at_ns + later_ns))


# --- comparing on what happened ---------------------------------------------------------------


def compare(request: ComparisonRequest) -> ComparisonAnswer:
    """Replay policies for a job on given slots, beside the clairvoyant optimum.

    Each policy is shown on the offering it does best on; name one in `job.offerings` to fix it.
    A job that is not done when the slots end is worth nothing.

    Raises
    ------
    ValueError
        Slots are missing, not consecutive or lack a quote, a policy is unknown, or the job can
        run nowhere; the message begins with the field.
    """
    _check_slots(request)
    policies = policies_named(request.policy_ids) if request.policy_ids else list(POOL)
    first_ns = request.slots[0].slot_start_ns
    best: dict[str, PolicyComparison] = {}
    for offering in sorted(request.offerings, key=lambda o: o.offering_id):
        if request.job.throughput_on(offering.offering_id, offering.instance_type) is None:
            continue
        program = program_of(
            request.job,
            offering.offering_id,
            offering.instance_type,
            request.slot_s,
            first_ns,
            planned_lead_s(request.job, offering.notice_lead_s),
        )
        records = [_record(slot, index, offering) for index, slot in enumerate(request.slots)]
        fallback = policy_named(FALLBACK_POLICY_ID)
        replayed = replay_pool(program, records, policies, fallback)
        results = {
            policy.policy_id: result for policy, result in zip(policies, replayed, strict=True)
        }
        results[CLAIRVOYANT] = clairvoyant_optimum(program, records).result
        for policy_id, result in results.items():
            known = best.get(policy_id)
            if known is None or result.utility_micro_usd > known.utility_micro_usd:
                best[policy_id] = _comparison(policy_id, offering.offering_id, result)
    if not best:
        raise ValueError("job.throughputs must be stated for one of the offerings, is for none")
    return ComparisonAnswer(
        comparisons=tuple(best[policy.policy_id] for policy in policies),
        clairvoyant=best[CLAIRVOYANT],
    )


def _check_slots(request: ComparisonRequest) -> None:
    if not request.slots:
        raise ValueError("slots must hold at least one")
    slot_ns = request.slot_s * NS_PER_S
    for index, (before, after) in enumerate(pairwise(request.slots), start=1):
        if after.slot != before.slot + 1:
            raise ValueError(f"slots[{index}].slot must be {before.slot + 1}, was {after.slot}")
        if after.slot_start_ns != before.slot_start_ns + slot_ns:
            raise ValueError(
                f"slots[{index}].slot_start_ns must be one slot after the one before "
                f"({before.slot_start_ns + slot_ns}), was {after.slot_start_ns}"
            )


def _record(slot: MarketSlot, index: int, offering: Offering) -> SlotRecord:
    residual = ResidualCapacity(slot.quotes)
    for slot_quote in slot.quotes:
        quote = slot_quote.quote
        if quote.offering_id == offering.offering_id:
            return SlotRecord(
                spot_price=quote.spot_price_micro_usd,
                on_demand_price=quote.on_demand_price_micro_usd,
                spot_available=residual.spot(offering.offering_id),
                on_demand_available=residual.on_demand(offering.offering_id),
                forecast=forecast_of(slot.forecast, quote),
            )
    raise ValueError(f"slots[{index}].quotes must hold one of {offering.offering_id}, holds none")


def _comparison(policy_id: str, offering_id: str, result: JobResult) -> PolicyComparison:
    return PolicyComparison(
        policy_id=policy_id,
        offering_id=offering_id,
        cost_micro_usd=result.cost_micro_usd,
        utility_micro_usd=result.utility_micro_usd,
        finished_slot=result.finished_slot,
        on_time=result.on_time,
    )


def warm_up() -> None:
    """Compile the window program, or load it compiled, before the first request needs it."""
    record = SlotRecord(
        spot_price=1, on_demand_price=1, spot_available=1, on_demand_available=1, forecast=None
    )
    clairvoyant_optimum(SMALLEST_PROGRAM, [record])
