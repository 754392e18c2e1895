"""What each of several policies would do with a job, every one on every offering, without moves.

Not what Spotline will do, see `outlook`: for whoever asks about a policy by its name. Each policy is
replayed over sampled futures of one offering from the job's first slot: the next one, or that of
its start. Among those sure of the deadline the one of highest expected utility comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.tasks import program_of
from spotline.application.allocator.messages import PlanOption, PlanStep
from spotline.application.market_view import MarketView
from spotline.application.scenarios import ScenarioSpec, sample_records
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.law_book import FIRST_AFTER_SLOTS, LawBook
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.learning_rules import OF_ONE_LAW
from spotline.domain.market.offering import Offering, Reservation
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import JobResult, SlotRecord
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.units import NS_PER_S, PPM, usd_from_micro_usd

SCENARIOS = 32
_FEWEST_SCENARIOS = 8
# Long jobs are planned on fewer futures: about this many slots per option.
_SLOTS_PER_OPTION = 16_384

# A hard deadline must be met in at least this share of the futures.
_SURE_PPM = 990_000


def policy_options(
    job: Job, market: MarketView, policy_ids: Sequence[str]
) -> tuple[PlanOption, ...]:
    """What every policy would do on every quoted offering the job can run on, best first.

    What other jobs hold is not subtracted, and a job stays where it begins. Equal arguments give
    equal options.

    Raises
    ------
    ValueError
        An unknown policy, or no quote to plan on; the message begins with the field.
    """
    policies = policies_named(policy_ids)
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
    return _explained(estimates, hard=job.deadline.kind is DeadlineKind.HARD)


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


def policies_named(policy_ids: Sequence[str]) -> list[Policy]:
    """The policies of these names; `ValueError` where one is unknown."""
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
                even_cells=True,
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
    book = LawBook(learning=OF_ONE_LAW)
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
