"""The stateless allocator: one slot, several jobs, in order, on what is left for each.

The allocator service answers with it, verification recomputes recorded answers with it, and the
selector falls back to it when nobody answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from spotline.application.requests import AllocateAnswer, AllocateRequest, JobTask
from spotline.application.value_tables import outlook_of
from spotline.domain.events import DecisionReason, ForecastIssued, JobAnswer, Lot, SlotQuote
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import Holding, JobProgram, compile_program
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance, Quote
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import decide_slot
from spotline.domain.policies.interface import START, PolicyView, WindowForecast
from spotline.domain.policies.prediction import UNCOUNTED, window_forecast
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named


def allocate(request: AllocateRequest) -> AllocateAnswer:
    """Decide what every task's job holds for the rest of the slot.

    Raises
    ------
    ValueError
        A task names an unknown policy or offering, or a job that cannot run on its offering.
    """
    residual = ResidualCapacity(request.quotes)
    quotes = {sq.quote.offering_id: sq.quote for sq in request.quotes}
    answers = []
    for task in request.tasks:
        if task.offering_id not in quotes:
            raise ValueError(f"tasks.offering_id must have a quote, {task.offering_id!r} has none")
        answer = _answer(request, task, quotes[task.offering_id], residual)
        residual.take(answer.lots)
        answers.append(answer)
    return AllocateAnswer(answers=tuple(answers))


def _answer(
    request: AllocateRequest, task: JobTask, quote: Quote, residual: ResidualCapacity
) -> JobAnswer:
    try:
        policy = policy_named(task.policy_id)
    except KeyError as error:
        raise ValueError(f"tasks.policy_id: {error.args[0]}") from error
    view = task_view(request, task, quote, residual)
    reason = request.reason
    memory = task.memory
    asked = policy
    if policy.needs_forecast and view.forecast is None:
        asked = policy_named(FALLBACK_POLICY_ID)
        memory = START
        if reason is DecisionReason.POLICY:
            reason = DecisionReason.FORECAST_OVERDUE
    decision = decide_slot(asked, view, memory)
    if decision.reason is not DecisionReason.POLICY:
        reason = decision.reason
    lot = Lot(
        offering_id=task.offering_id,
        spot=decision.holding.spot,
        on_demand=decision.holding.on_demand,
    )
    return JobAnswer(
        job_id=task.job.job_id,
        policy_id=asked.policy_id,
        lots=(lot,) if decision.holding.instances else (),
        # The plans of a policy that was not asked are stale: it starts them anew.
        memory=decision.memory if asked is policy else START,
        reason=reason,
    )


def task_view(
    request: AllocateRequest, task: JobTask, quote: Quote, residual: ResidualCapacity
) -> PolicyView:
    """What a task's policy may know: the request's market, less what earlier jobs took."""
    spot_available = residual.spot(task.offering_id)
    program = program_of(
        task.job, task.offering_id, task.instance_type, request.slot_s, task.first_slot_start_ns
    )
    return PolicyView(
        program=program,
        elapsed_slots=task.elapsed_slots,
        state=JobProgress(
            progress_quanta=task.progress_quanta,
            holding=Holding(spot=task.holding.spot, on_demand=task.holding.on_demand),
            pending_overhead_s=task.pending_overhead_s,
        ),
        interrupted=task.interrupted or task.holding.spot > spot_available,
        spot_price=quote.spot_price_micro_usd,
        on_demand_price=quote.on_demand_price_micro_usd,
        spot_available=spot_available,
        on_demand_available=residual.on_demand(task.offering_id),
        forecast=forecast_of(request.forecast, quote, left=spot_available),
        slot_left_s=request.slot_s - request.offset_s,
        spent_micro_usd=task.spent_micro_usd,
        spot_firm=task.spot_firm,
        outlook=outlook_of(task.table_use, program, request.laws),
    )


def forecast_of(
    issued: ForecastIssued | None, quote: Quote, *, left: int | None = None
) -> WindowForecast | None:
    """The forecast of one offering as planners use it, None where there is none.

    `left` is what of the quoted spot jobs served earlier leave to this one (None: all of it);
    what they take now is not counted on later.
    """
    if issued is None:
        return None
    available = quote.spot_available
    taken = 0
    if left is not None and available.known:
        taken = max(0, available.instances - left)
    for forecast in issued.forecasts:
        if forecast.offering_id == quote.offering_id and forecast.steps:
            return window_forecast(
                forecast,
                on_demand_price_micro_usd=quote.on_demand_price_micro_usd,
                taken=taken,
                counted=available.known,
            )
    return None


@lru_cache(maxsize=1024)
def program_of(
    job: Job, offering_id: str, instance_type: str, slot_s: int, first_slot_start_ns: int
) -> JobProgram:
    """The job compiled for one offering and slot grid.

    Raises
    ------
    ValueError
        The job states no throughput for the offering.
    """
    throughput = job.throughput_on(offering_id, instance_type)
    if throughput is None:
        raise ValueError(f"job {job.job_id} states no throughput for {offering_id}")
    return compile_program(job, throughput, slot_s=slot_s, first_slot_start_ns=first_slot_start_ns)


def capped_quotes(quotes: Sequence[SlotQuote], residual: ResidualCapacity) -> tuple[SlotQuote, ...]:
    """The same quotes with what is left of every offering as its counts."""
    capped = []
    for slot_quote in quotes:
        quote = slot_quote.quote
        capped.append(
            replace(
                slot_quote,
                quote=replace(
                    quote,
                    spot_available=_left(residual.spot(quote.offering_id)),
                    on_demand_available=_left(residual.on_demand(quote.offering_id)),
                ),
            )
        )
    return tuple(capped)


def _left(instances: int) -> Count:
    if instances >= UNCOUNTED:
        return UNKNOWN_COUNT
    return Count(instances=instances, provenance=Provenance.INFERRED)
