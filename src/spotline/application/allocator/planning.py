"""What would be done with a job or several, before anything is bought; and what policies did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from spotline.application.admission import check_job
from spotline.application.allocation.allocate import forecast_of, program_of
from spotline.application.allocation.on_demand_quote import (
    DEFAULT_QUOTE_MARGIN,
    on_demand_quote_micro_usd,
    valued,
)
from spotline.application.allocator.joint_planning import plan_together
from spotline.application.allocator.messages import (
    ComparisonAnswer,
    ComparisonRequest,
    MarketSlot,
    PlanAnswer,
    PlanOption,
    PlanRequest,
    PlanStep,
    PolicyComparison,
)
from spotline.application.market_view import MarketView
from spotline.application.scenarios import ScenarioSpec, sample_records
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.law_book import FIRST_AFTER_SLOTS, LawBook
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.program import SMALLEST_PROGRAM, JobProgram
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.offering import Offering, Reservation, check_price
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import JobResult, SlotRecord, clairvoyant_optimum
from spotline.domain.solvers.value_table import TableTerms, table_of
from spotline.domain.units import NS_PER_S, PPM, usd_from_micro_usd

DEFAULT_POLICY_IDS = (
    "on_demand_only",
    "msu",
    "uniform_progress",
    "ahanp(0.5)",
    "ahap(3,1,0.5)",
    "ahap(5,1,0.5)",
    "sdp",
)

SCENARIOS = 32
_FEWEST_SCENARIOS = 8
# Long jobs are planned on fewer futures: about this many slots per option.
_SLOTS_PER_OPTION = 16_384

# A hard deadline must be met in at least this share of the futures.
_SURE_PPM = 990_000

CLAIRVOYANT = "clairvoyant"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """An option with the numbers it is judged by."""

    option: PlanOption
    sure: bool

    @property
    def rank(self) -> tuple[int, int, int, str, str]:
        """Sort key, best first: sure ones by utility, then the likeliest."""
        option = self.option
        likelihood = PPM if self.sure else option.on_time_probability_ppm
        return (
            not self.sure,
            -likelihood,
            -option.expected_utility_micro_usd,
            option.offering_id,
            option.policy_id,
        )


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
    request: PlanRequest, market: MarketView, *, quote_margin: float = DEFAULT_QUOTE_MARGIN
) -> PlanAnswer:
    """Estimate what every considered policy would do on every offering the job can run on.

    Several jobs are planned at once instead, see `joint_planning`. Each policy is replayed over sampled futures from the job's first slot: the next one, or that
    of its start. Among those sure of the deadline the one of highest expected utility is chosen.
    What other jobs hold is not subtracted. Equal requests and markets give equal answers.

    Parameters
    ----------
    request
        The job and the policies to consider; its market, if any, is already in `market`.
    market
        As `market_of_request` or the read model gives it.
    quote_margin
        A job that states no value is planned at (1 + this) x its on-demand quote.

    Raises
    ------
    ValueError
        An unknown policy, no quote to plan on, or a job that does not fit the market's offerings;
        the message begins with the field.
    """
    if request.jobs:
        if request.job is not None:
            raise ValueError("jobs must be empty where job is given")
        return plan_together(request, market, quote_margin=quote_margin)
    if request.job is None:
        raise ValueError("job is missing, and jobs is empty")
    for name in ("quotas", "budget_micro_usd_per_hour", "egress_micro_usd_per_gb"):
        if getattr(request, name):
            raise ValueError(f"{name} must be empty where one job is planned; give it in jobs")
    return _plan_one(request, request.job, market, quote_margin)


def _plan_one(
    request: PlanRequest, job: Job, market: MarketView, quote_margin: float
) -> PlanAnswer:
    policies = _policies(request.policy_ids or DEFAULT_POLICY_IDS)
    refused = check_job(market, job)
    if refused is not None:
        if not (refused.permanent or refused.earliest_feasible_deadline_ns):
            raise ValueError(f"{refused.field} {refused.message}")
        return PlanAnswer(
            feasible=False,
            infeasible_reason=f"{refused.field} {refused.message}",
            earliest_feasible_deadline_ns=refused.earliest_feasible_deadline_ns,
            options=(),
        )
    quote = job.on_demand_quote_micro_usd or on_demand_quote_micro_usd(market, job)
    job = valued(market, job, margin=quote_margin)
    quoted = {slot_quote.quote.offering_id: slot_quote for slot_quote in market.quotes}
    estimates: list[_Estimate] = []
    for offering, _ in market.runnable(job):
        if offering.offering_id in quoted:
            estimates.extend(
                _estimates(job, market, offering, quoted[offering.offering_id], policies)
            )
    if not estimates:
        raise ValueError("quotes must hold one of an offering that the job can run on, hold none")
    estimates.sort(key=lambda estimate: estimate.rank)
    hard = job.deadline.kind is DeadlineKind.HARD
    return PlanAnswer(
        feasible=True,
        infeasible_reason="",
        earliest_feasible_deadline_ns=0,
        options=_explained(estimates, hard=hard),
        on_demand_quote_micro_usd=quote,
        most_cost_micro_usd=job.budget_micro_usd,
    )


def _policies(policy_ids: Sequence[str]) -> list[Policy]:
    policies = []
    for index, policy_id in enumerate(policy_ids):
        try:
            policies.append(policy_named(policy_id))
        except KeyError as error:
            raise ValueError(f"policy_ids[{index}]: {error.args[0]}") from error
    return policies


def _estimates(
    job: Job,
    market: MarketView,
    offering: Offering,
    slot_quote: SlotQuote,
    policies: Sequence[Policy],
) -> list[_Estimate]:
    """Every policy on one offering, over the same futures."""
    first_slot, first_ns = market.first_slot(job)
    program = program_of(
        job,
        offering.offering_id,
        offering.instance_type,
        market.slot_s,
        first_ns,
        planned_lead_s(job, offering.notice_lead_s),
    )
    waits = first_slot - market.next_slot
    slots = max(1, program.end_slots)
    paths = max(_FEWEST_SCENARIOS, min(SCENARIOS, _SLOTS_PER_OPTION // slots))
    sampled = sample_records(
        ScenarioSpec(
            quote=slot_quote.quote,
            forecast=_steps_of(market.forecast, offering.offering_id),
            history=market.history,
            most_spot=job.max_instances,
            slots=waits + slots,
            paths=paths,
            seed=f"{job.job_id}\x1f{offering.offering_id}\x1f{market.next_slot}",
        )
    )
    if offering.reservation is not None:
        sampled = _until_it_ends(sampled, offering.reservation, market)
    futures = [records[waits:] for records in sampled]
    law = _law_of(market.history, offering.offering_id)
    table = None
    if law is not None and program.deadline_slots > 0:
        table = table_of(
            TableTerms(
                program=program,
                law=law,
                on_demand_price=slot_quote.quote.on_demand_price_micro_usd,
                on_demand_available=sampled[0][0].on_demand_available,
            )
        )
        known = _counts_of(market.history, offering.offering_id)
        futures = [_with_run_states(known, records, law)[waits:] for records in sampled]
    fallback = policy_named(FALLBACK_POLICY_ID)
    lives = [replay_pool(program, records, policies, fallback, table) for records in futures]
    return [
        _estimate(program, policy, offering.offering_id, results, first_slot, first_ns)
        for policy, results in zip(policies, zip(*lives, strict=True), strict=True)
    ]


def _until_it_ends(
    sampled: Sequence[Sequence[SlotRecord]], reservation: Reservation, market: MarketView
) -> tuple[tuple[SlotRecord, ...], ...]:
    """Futures of a reservation, empty from its end on."""
    covered = reservation.whole_slots(market.next_slot_start_ns, market.slot_s)
    if covered is None:
        covered = len(sampled[0])
    return tuple(
        (
            *records[:covered],
            *(replace(record, on_demand_available=0) for record in records[covered:]),
        )
        for records in sampled
    )


def _law_of(history: Sequence[SlotOpened], offering_id: str) -> MarketLaw | None:
    """The law that the recent slots show, None where they are too few or tell no counts."""
    book = LawBook()
    for opened in history:
        book.observe(opened)
    if len(book.counts.get(offering_id, ())) < FIRST_AFTER_SLOTS:
        return None
    return book.learn()[offering_id]


def _counts_of(history: Sequence[SlotOpened], offering_id: str) -> list[int]:
    return [
        slot_quote.quote.spot_available.instances
        for opened in history
        for slot_quote in opened.quotes
        if slot_quote.quote.offering_id == offering_id and slot_quote.quote.spot_available.known
    ]


def _with_run_states(
    known: Sequence[int], records: Sequence[SlotRecord], law: MarketLaw
) -> tuple[SlotRecord, ...]:
    """A future that goes on from the past, with where it is in the law."""
    counts = [*known, *(record.spot_available for record in records)]
    states = run_states(law.space, counts)[len(known) :].tolist()
    return tuple(
        replace(record, run_state=state) for record, state in zip(records, states, strict=True)
    )


def _steps_of(issued: ForecastIssued | None, offering_id: str) -> OfferingForecast | None:
    for forecast in issued.forecasts if issued is not None else ():
        if forecast.offering_id == offering_id and forecast.steps:
            return forecast
    return None


def _estimate(
    program: JobProgram,
    policy: Policy,
    offering_id: str,
    results: Sequence[JobResult],
    first_slot: int,
    first_ns: int,
) -> _Estimate:
    count = len(results)
    by_cost = sorted(results, key=lambda result: result.cost_micro_usd)
    on_time_ppm = sum(result.on_time for result in results) * PPM // count
    median = by_cost[(count - 1) // 2]
    slot_ns = program.slot_s * NS_PER_S
    option = PlanOption(
        policy_id=policy.policy_id,
        offering_id=offering_id,
        expected_cost_micro_usd=sum(r.cost_micro_usd for r in results) // count,
        cost_p10_micro_usd=by_cost[(count - 1) // 10].cost_micro_usd,
        cost_p90_micro_usd=by_cost[-1 - (count - 1) // 10].cost_micro_usd,
        on_time_probability_ppm=on_time_ppm,
        expected_utility_micro_usd=sum(r.utility_micro_usd for r in results) // count,
        chosen=False,
        why="",
        steps=tuple(
            PlanStep(
                slot=first_slot + index,
                slot_start_ns=first_ns + index * slot_ns,
                lot=Lot(offering_id=offering_id, spot=holding.spot, on_demand=holding.on_demand),
            )
            for index, holding in enumerate(median.holdings)
        ),
    )
    return _Estimate(option=option, sure=not program.hard or on_time_ppm >= _SURE_PPM)


def _explained(estimates: Sequence[_Estimate], *, hard: bool) -> tuple[PlanOption, ...]:
    """Mark the first as chosen and say why, and of the others why not."""
    best = estimates[0]
    sure = sum(estimate.sure for estimate in estimates)
    options = []
    for index, estimate in enumerate(estimates):
        option = estimate.option
        if index == 0:
            why = _why_chosen(best, sure, hard=hard)
        elif not estimate.sure:
            why = (
                f"on time in {option.on_time_probability_ppm / 10_000:.0f} % of the futures; "
                "a hard deadline asks for 99 %"
            )
        else:
            less = best.option.expected_utility_micro_usd - option.expected_utility_micro_usd
            why = f"{usd_from_micro_usd(less):.2f} USD less expected utility than the chosen one"
        options.append(replace(option, chosen=index == 0, why=why))
    return tuple(options)


def _why_chosen(best: _Estimate, sure: int, *, hard: bool) -> str:
    utility = f"{usd_from_micro_usd(best.option.expected_utility_micro_usd):.2f} USD"
    if not best.sure:
        share = f"{best.option.on_time_probability_ppm / 10_000:.0f} %"
        return (
            f"likeliest to be on time, in {share} of the futures; none reaches the 99 % "
            "that a hard deadline asks for"
        )
    if best.option.expected_utility_micro_usd < 0:
        utility = f"{utility}: it costs more than the job is worth"
    among = f"the {sure} that meet the hard deadline in 99 % of the futures" if hard else "all"
    return f"highest expected utility ({utility}) among {among}"


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
    policies = _policies(request.policy_ids) if request.policy_ids else list(POOL)
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
