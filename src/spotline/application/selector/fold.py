"""How events change what the selector knows."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.account_modes import note_mode
from spotline.application.allocation.measuring import Followed
from spotline.application.allocation.tasks import at_rates, forecast_of
from spotline.application.allocation.value_tables import same_table_of
from spotline.application.selector.answer_checks import check_answers
from spotline.application.selector.believing import (
    believed_forecast,
    believed_slot,
    settle_beliefs,
    uncounted,
)
from spotline.application.selector.endings import note_cancelled, note_exited, note_retry
from spotline.application.selector.foreseeing import note_arrival
from spotline.application.selector.holding import (
    forget_doubts,
    note_capacity,
    note_refused,
    note_taken,
)
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.probing import note_probe
from spotline.application.selector.sampling import path_sampler
from spotline.application.selector.spent import note_billed, note_ended, note_launched, note_spent
from spotline.application.selector.state import SelectorState, SlotPhase
from spotline.application.selector.stocking import open_stock
from spotline.application.selector.tripping import note_health
from spotline.application.slot_checks import check_slot, completed, slot_of
from spotline.domain.events.allocation import (
    AllocationAnswered,
    AllocationDecided,
    CallOutcome,
    ShadowPricesUpdated,
)
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import MarketLawLearned, ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobProgressReported,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.limits import LimitReached, LimitSet
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.training import CheckpointCommitted, TrainingRestarted
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.program import IDLE
from spotline.domain.limits.expected_rate import ENOUGH_REPORTS
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.interface import START
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.selection.learner import Draw, PoolFeedback


def fold(state: SelectorState, event: Event, options: SelectorOptions) -> None:
    """Apply one event to `state`, in place."""
    note_health(state, event)
    measured = state.measuring.fold(event)
    if measured is not None:
        _take_measured(state, state.runs[measured.stated.job_id], measured)
    match event:
        case (
            MarketOpened()
            | SlotOpened()
            | ForecastIssued()
            | ForecastOverdue()
            | PolicyWeightsUpdated()
            | MarketLawLearned()
        ):
            _fold_market(state, event, options)
        case (
            JobSubmitted()
            | JobCancelled()
            | JobProgressReported()
            | JobExited()
            | JobRetryScheduled()
            | JobUpdated()
            | JobAdmitted()
            | JobClosed()
            | ValueTableRequested()
            | ValueTableReady()
            | ThroughputReestimated()
            | CheckpointCommitted()
            | TrainingRestarted()
        ):
            _fold_job(state, event)
        case LimitReached():
            run = state.runs.get(event.job_id)
            if run is not None:
                run.at_limit = event
        case BuyingFrozen():
            state.freezes.begin(event.freeze)
        case BuyingUnfrozen():
            state.freezes.end(event.freeze_id)
        case AccountModeSet():
            note_mode(state.freezes, event)
        case LimitSet():
            state.limits_set[event.at] = event
        case ProbeCommanded() | OfferingProbed():
            note_probe(state, event, options)
        case _:
            _fold_slot(state, event, options)


def _fold_market(state: SelectorState, event: Event, options: SelectorOptions) -> None:
    match event:
        case MarketOpened():
            state.mode = event.runs_in
            # Nothing that a job may run on ever leaves.
            state.offerings = {**state.offerings, **{o.offering_id: o for o in event.offerings}}
        case SlotOpened():
            _open_slot(state, event, options)
        case ForecastIssued():
            state.trust.note_forecast(event)
            _note_forecast(state, event)
        case ForecastOverdue():
            if event.slot == state.slot and state.phase is SlotPhase.WAITING_FORECAST:
                state.forecast_reason = DecisionReason.FORECAST_OVERDUE
                _start_allocating(state, event)
        case PolicyWeightsUpdated():
            _learn(state, event)
        case MarketLawLearned():
            state.laws[event.offering_id] = event.named
        case _:
            pass


def _fold_job(state: SelectorState, event: Event) -> None:
    if isinstance(event, JobSubmitted):
        state.runs.setdefault(event.job.job_id, JobRun(job=event.job))
    elif isinstance(event, JobAdmitted):
        _admit(state, event)
    elif isinstance(event, ValueTableRequested):
        tables = state.runs[event.job_id].tables
        asked = JobTable(spec=event.table, named=event.named, slot=event.slot)
        known = tables.get(event.table.offering_id)
        if known is not None:
            asked = known.replaced_by(event.table, event.named, event.slot)
        tables[event.table.offering_id] = asked
    elif isinstance(event, ValueTableReady):
        _note_ready(state, event)
    elif isinstance(
        event,
        (
            *(JobCancelled, JobProgressReported, JobClosed, ThroughputReestimated),
            *(JobExited, JobRetryScheduled, JobUpdated),
            *(CheckpointCommitted, TrainingRestarted),
        ),
    ):
        # A platform may speak of a job that was never submitted here.
        run = state.runs.get(event.job_id)
        if run is not None:
            _fold_run(state, run, event)


def _fold_run(state: SelectorState, run: JobRun, event: Event) -> None:
    match event:
        case JobCancelled():
            note_cancelled(state, run, event)
        case JobExited():
            note_exited(state, run, event)
        case JobRetryScheduled():
            note_retry(state, run, event)
        case JobUpdated():
            _take_change(state, run, event)
        case JobProgressReported():
            run.note_progress(event)
        case CheckpointCommitted():
            run.note_saved(event)
        case TrainingRestarted():
            run.note_restart(event)
        case ThroughputReestimated():
            _take_rates(state, run, event)
        case JobClosed():
            run.phase = RunPhase.CLOSED
            run.outcome = event.outcome
            run.spent_micro_usd = event.cost_micro_usd
            run.segments = []
            if not run.teaches:
                state.draws.pop(event.job_id, None)
                run.forget_offers()
            run.target = IDLE
            run.memory = START
        case _:
            pass


def _take_change(state: SelectorState, run: JobRun, event: JobUpdated) -> None:
    """Go on with what its owner has changed; work, rates and offerings are what they are."""
    if run.phase is RunPhase.CLOSED:
        return
    told = event.job
    changed = replace(
        run.job,
        deadline=told.deadline,
        value_micro_usd=told.value_micro_usd,
        budget_micro_usd=told.budget_micro_usd,
        on_limit=told.on_limit,
    )
    program = None
    if run.phase is RunPhase.RUNNING:
        program = state.program_of(changed, run.offering_id)
    run.change(changed, program)


def _note_ready(state: SelectorState, event: ValueTableReady) -> None:
    """Let the decisions of the slots to come name a table; of a job that is over nothing is said."""
    if state.shared_tables:
        state.announced.add(event.table_id)
    run = state.runs.get(event.job_id)
    for table in () if run is None else run.tables.values():
        # Offerings with one law and one price may share a table, too.
        if table.spec.table_id == event.table_id and table.ready_slot is None:
            table.ready_slot = state.slot


def _take_rates(state: SelectorState, run: JobRun, event: ThroughputReestimated) -> None:
    """Believe other rates of a job from now on; one that is over keeps those it ran at."""
    if run.phase is RunPhase.CLOSED:
        return
    before, after = run.job, at_rates(run.job, event.throughputs)
    rerated = []
    for offering_id in run.tables:
        instance_type = state.offerings[offering_id].instance_type
        if before.throughput_on(offering_id, instance_type) != after.throughput_on(
            offering_id, instance_type
        ):
            rerated.append(offering_id)
    program = None
    if run.phase is RunPhase.RUNNING:
        program = state.program_of(after, run.offering_id)
    run.believe(after, program, rerated)
    run.rate_reports = max(run.rate_reports, ENOUGH_REPORTS)


def _take_measured(state: SelectorState, run: JobRun, measured: Followed) -> None:
    """Go on with the saves and overheads that were measured; one that is over keeps its own."""
    if run.phase is RunPhase.CLOSED:
        return
    after = measured.corrected(run.job)
    if run.phase is not RunPhase.RUNNING:
        run.believe(after, None, ())
        return
    stale = [
        offering_id
        for offering_id, table in run.tables.items()
        if same_table_of(table.spec, state.program_of(after, offering_id), table.named.law)
        != table.spec
    ]
    run.believe(after, state.program_of(after, run.offering_id), stale)


def _fold_slot(state: SelectorState, event: Event, options: SelectorOptions) -> None:
    match event:
        case JobAdvanced():
            note_ended(state, event, options)
        case AllocationAnswered():
            _note_answer(state, event)
        case AllocationDecided():
            note_launched(state, state.runs[event.job_id], event, options)
            _note_decided(state, event)
        case ShadowPricesUpdated() if state.shadow is not None:
            state.shadow.published = {
                price.offering_id: price.micro_usd_per_instance_hour for price in event.prices
            }
        case SlotDecided() if event.slot == state.slot:
            state.phase = SlotPhase.AWAITING_CAPACITY
            state.revision = event.revision
            state.fairness_cost_micro_usd = 0
            for run in state.runs.values():
                run.lost = 0
        case LaunchRefused() if event.slot == state.slot and event.offering_id in state.offerings:
            note_refused(state, event)
        case CapacityLost() if event.slot == state.slot:
            if event.job_id in state.runs:
                state.runs[event.job_id].lost += len(event.instance_ids)
                note_taken(state, state.runs[event.job_id], event.offering_id)
        case CostAccrued():
            note_billed(state, event, options)
        case CapacityReported():
            # The actuator has billed the slots before the one that it reports.
            state.spend.settle(event.slot)
            note_capacity(state, event)
        case _:
            pass


def _note_decided(state: SelectorState, event: AllocationDecided) -> None:
    run = state.runs[event.job_id]
    if event.move is not None and event.lots:
        home = event.lots[0].offering_id
        if state.lost_spot(run, 0):
            # It goes with what an interruption left of its work.
            if run.is_run:
                run.note_loss(0)
            run.state = run.state.fallen()
        run.move(home, state.program_of(run.job, home), event.move)
        if state.stays_elsewhere and home not in run.tables:
            # Nobody knows whether it comes back; others have use for the room.
            run.tables = {}
    run.target = holding_of(event.lots)


def _open_slot(state: SelectorState, event: SlotOpened, options: SelectorOptions) -> None:
    if state.opened is not None and event.slot <= state.slot:
        return
    check_slot(event, *slot_of(state.opened))
    if state.opened is not None:
        settle_beliefs(state)
        _record_slot(state, options.belief_paths)
        prices = {sq.quote.offering_id: sq.quote for sq in state.opened.quotes}
        for run in state.running():
            quote = prices[run.offering_id]
            # A slot that was not opened (a live market's clock went on) is held through unchanged.
            for slot in range(state.slot, event.slot):
                note_spent(state, run, quote, slot, options)
                run.settle(quote.spot_price_micro_usd, quote.on_demand_price_micro_usd)
            run.left_alone |= event.missed > 0
            if not run.is_finishing:
                run.finishing_since = -1
            elif run.finishing_since < 0:
                run.finishing_since = event.slot
        trusted = None
        if state.forecast_reason is DecisionReason.POLICY:
            trusted = state.forecast
        state.history.append((state.opened, trusted))
        del state.history[: -options.history_slots]
    opened = completed(event, uncounted(state))
    state.trust.note_slot(opened)
    for slot_quote in opened.quotes:
        available = slot_quote.quote.spot_available
        if available.known:
            counts = state.counts.setdefault(slot_quote.quote.offering_id, [])
            counts.append(available.instances)
            del counts[: -options.history_slots]
        on_demand = slot_quote.quote.on_demand_available
        stock = state.stock.setdefault(slot_quote.quote.offering_id, [])
        stock.append(on_demand.instances if on_demand.known else UNCOUNTED)
        del stock[: -options.history_slots]
    open_stock(state, opened, options.stock_beliefs)
    state.opened = believed_slot(state, opened, options.beliefs)
    if state.shadow is not None:
        quoted = {sq.quote.offering_id: sq.quote.spot_available for sq in state.opened.quotes}
        state.shadow.open(
            event.slot, {name: count.instances for name, count in quoted.items() if count.known}
        )
    state.slot = event.slot
    state.heard = event
    state.forecast = None
    state.forecast_reason = DecisionReason.POLICY
    state.phase = SlotPhase.WAITING_FORECAST
    state.revision = state.job_revisions = 0
    state.offset_s = 0
    state.trigger = None
    state.refused, state.limited = {}, {}
    state.caps, state.own_caps = {}, {}
    for run in state.running():
        run.lost = 0
        forget_doubts(run, event.slot)


def _note_forecast(state: SelectorState, event: ForecastIssued) -> None:
    if event.slot != state.slot or state.phase is not SlotPhase.WAITING_FORECAST:
        return
    # How far it has been right is how far it is believed.
    state.forecast = believed_forecast(state, state.trust.moderated(event))
    if not state.trust.trusted:
        state.forecast_reason = DecisionReason.FORECAST_UNTRUSTED
    _start_allocating(state, event)


def _note_answer(state: SelectorState, event: AllocationAnswered) -> None:
    if state.phase is not SlotPhase.ALLOCATING or event.slot != state.slot:
        return
    if event.revision != state.revision:
        return
    if event.outcome is CallOutcome.ANSWERED:
        check_answers(state, event.answers)
        if event.fairness is not None:
            state.fairness_cost_micro_usd = event.fairness.cost_micro_usd
        for answer in event.answers:
            run = state.runs[answer.job_id]
            run.memory = answer.memory
            run.yielded = run.yielded or answer.yielded is not None
        if state.shadow is not None and not event.revision:
            state.shadow.note(
                event.slot,
                {w.offering_id: w.micro_usd_per_instance_hour for w in event.spot_worth},
                len(event.answers),
            )
    state.trigger = event


def _record_slot(state: SelectorState, belief_paths: int) -> None:
    """Keep what every unfinished or not yet fed-back job was offered in the slot."""
    if state.opened is None:
        return
    trusted = state.forecast if state.forecast_reason is DecisionReason.POLICY else None
    quotes = {sq.quote.offering_id: sq.quote for sq in state.opened.quotes}
    offered, sampled = state.offers(), path_sampler(state, belief_paths)
    for job_id in sorted(state.runs):
        run = state.runs[job_id]
        if not run.teaches:
            continue
        quote = quotes[run.offering_id]
        spot, on_demand = offered(job_id)
        reserve_slots, rescue_instances = state.on_demand_stock(run.job, run.offering_id)
        run.records.append(
            SlotRecord(
                spot_price=quote.spot_price_micro_usd,
                on_demand_price=quote.on_demand_price_micro_usd,
                spot_available=spot,
                on_demand_available=on_demand,
                forecast=forecast_of(trusted, quote, left=spot),
                run_state=_run_state(state, run),
                reserve_slots=reserve_slots,
                rescue_instances=rescue_instances,
                sampled=sampled(run, spot),
            )
        )


def _run_state(state: SelectorState, run: JobRun) -> int:
    # Feedback looks into the table of the first home: other homes are told in its law's states.
    table = run.table_in(state.slot, run.first_offering_id)
    if table is None:
        return -1
    return state.run_state(run.offering_id, table.named.law.space, run.job.max_instances)


def _admit(state: SelectorState, event: JobAdmitted) -> None:
    run = state.runs[event.job_id]
    opened = state.current
    run.phase = RunPhase.RUNNING
    run.policy_id = event.policy_id
    run.offering_id = event.offering_id
    run.first_offering_id = event.offering_id
    run.first_slot = event.slot
    run.first_slot_start_ns = opened.ts_event_ns
    run.on_demand_quote_micro_usd = event.on_demand_quote_micro_usd
    run.is_limited = event.limit_micro_usd > 0
    run.program = state.program_of(run.job, event.offering_id)
    note_arrival(state, run)
    state.draws[event.job_id] = Draw(weights=state.learner.weights(), policy_id=event.policy_id)


def _learn(state: SelectorState, event: PolicyWeightsUpdated) -> None:
    rehearsed = event.rehearsed_slot >= 0
    draw = None if rehearsed else state.draws.pop(event.job_id, None)
    feedback = PoolFeedback(
        policy_ids=tuple(weight.policy_id for weight in event.weights),
        utility_micro_usd=tuple(weight.utility_micro_usd for weight in event.weights),
        floor_micro_usd=event.utility_floor_micro_usd,
        ceiling_micro_usd=event.utility_ceiling_micro_usd,
        sampled_paths=event.sampled_paths,
        misfit_ppm=event.misfit_ppm,
    )
    state.learner.learn(feedback, draw)
    if not rehearsed:
        run = state.runs[event.job_id]
        run.fed_back = True
        run.forget_offers()


def _start_allocating(state: SelectorState, event: Event) -> None:
    state.phase = SlotPhase.ALLOCATING
    state.trigger = event
    served = state.in_order()
    # Those whose program has only to end keep what they hold before anybody is served.
    ending = [run.job.job_id for run in state.running() if run.is_finishing or run.is_at_limit]
    state.order = (*ending, *served)
    if state.clearing:
        state.reclaimed = state.over_held()
