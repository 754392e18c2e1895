"""The selector: admits jobs, decides every slot, closes jobs, learns which policy to trust.

One slot k runs through these phases:

    SlotOpened(k)         settle slot k - 1, close and admit jobs, feed weights    WAITING_FORECAST
    ForecastIssued(k)     ask the allocator (ForecastOverdue: without a forecast)  ALLOCATING
    AllocationAnswered    record decisions, command the cloud                      AWAITING_CAPACITY
    CapacityReported(k)   settled: done; else ask again for the rest of the slot   SETTLED
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from spotline.application.allocation import (
    allocate,
    capped_quotes,
    forecast_of,
    program_of,
)
from spotline.application.job_run import JobRun, RunPhase, Segment
from spotline.application.offering_choice import best_offering
from spotline.application.requests import AllocateRequest, JobTask
from spotline.application.spec import NOTHING, Call, Context, Outcome, Spec, Timer
from spotline.domain.events import (
    AllocationAnswered,
    AllocationDecided,
    CallOutcome,
    CapacityLost,
    CapacityReported,
    DecisionReason,
    Event,
    ForecastIssued,
    ForecastOverdue,
    JobAdmitted,
    JobAdvanced,
    JobAnswer,
    JobCancelled,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
    LaunchRefused,
    Lot,
    MarketOpened,
    PolicyWeight,
    PolicyWeightsUpdated,
    ProvisioningCommanded,
    SlotDecided,
    SlotOpened,
    SlotQuote,
)
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.market.offering import CapacityType, Offering
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.interface import START
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.selection.rules import (
    DEFAULT_RULE,
    RULES,
    SelectionRule,
    drawn_index,
    normalised_utility,
    weights_ppb,
)
from spotline.domain.units import cost_micro_usd

SPEC = Spec(
    service="selector",
    consumes=(
        MarketOpened,
        SlotOpened,
        ForecastIssued,
        ForecastOverdue,
        JobSubmitted,
        JobCancelled,
        JobProgressReported,
        AllocationAnswered,
        LaunchRefused,
        CapacityLost,
        CapacityReported,
    ),
    produces=(
        ForecastOverdue,
        AllocationAnswered,
        JobAdmitted,
        JobAdvanced,
        JobClosed,
        AllocationDecided,
        ProvisioningCommanded,
        SlotDecided,
        PolicyWeightsUpdated,
    ),
    decides=(
        JobAdmitted,
        JobAdvanced,
        JobClosed,
        AllocationDecided,
        ProvisioningCommanded,
        SlotDecided,
        PolicyWeightsUpdated,
    ),
)

ALLOCATE_CALL = "allocate"


class SlotPhase(Enum):
    """What the current slot waits for."""

    WAITING_FORECAST = "waiting_forecast"
    ALLOCATING = "allocating"
    AWAITING_CAPACITY = "awaiting_capacity"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorOptions:
    """How the selector behaves; equal options give equal decisions.

    `rehearsals` jobs are replayed on the market seen so far before the first realised ones can
    teach anything (0: start from equal weights); `history_slots` bounds how far back they reach.
    `most_revisions` bounds how often one slot is decided anew.
    """

    rule: str = DEFAULT_RULE
    forecast_timeout_s: float = 10.0
    rehearsals: int = 24
    rehearsals_per_job: int = 6
    history_slots: int = 192
    most_revisions: int = 8
    spot_firm: bool = True


@dataclass(slots=True, kw_only=True)
class SelectorState:
    """Everything the selector knows: a fold over the log."""

    rule: SelectionRule
    trust: ForecastTrust
    offerings: dict[str, Offering] = field(default_factory=dict)
    slot: int = -1
    opened: SlotOpened | None = None
    forecast: ForecastIssued | None = None
    forecast_reason: DecisionReason = DecisionReason.POLICY
    phase: SlotPhase = SlotPhase.SETTLED
    revision: int = 0
    offset_s: int = 0
    trigger: Event | None = None
    order: tuple[str, ...] = ()
    affected: tuple[str, ...] = ()
    refused: dict[tuple[str, CapacityType], bool] = field(default_factory=dict)
    caps: dict[tuple[str, CapacityType], int] = field(default_factory=dict)
    runs: dict[str, JobRun] = field(default_factory=dict)
    history: list[tuple[SlotOpened, ForecastIssued | None]] = field(default_factory=list)

    def running(self) -> list[JobRun]:
        """Admitted jobs that are not closed, by job id."""
        return [
            self.runs[job_id]
            for job_id in sorted(self.runs)
            if self.runs[job_id].phase is RunPhase.RUNNING
        ]


class SelectHandler:
    """Decides allocations through the allocator, and everything about a job's life."""

    spec = SPEC

    def __init__(
        self, options: SelectorOptions, *, digest: Callable[[AllocateRequest], str]
    ) -> None:
        self._options = options
        self._digest = digest
        self._pool = POOL

    def initial(self) -> SelectorState:
        """No market, no jobs, equal weights."""
        return SelectorState(rule=RULES[self._options.rule](len(self._pool)), trust=ForecastTrust())

    # --- evolve -------------------------------------------------------------------------------

    def evolve(self, state: SelectorState, event: Event) -> None:
        """Apply one event."""
        match event:
            case MarketOpened():
                state.offerings = {o.offering_id: o for o in event.offerings}
            case SlotOpened():
                self._open_slot(state, event)
            case ForecastIssued():
                state.trust.note_forecast(event)
                self._note_forecast(state, event)
            case ForecastOverdue():
                if event.slot == state.slot and state.phase is SlotPhase.WAITING_FORECAST:
                    state.forecast_reason = DecisionReason.FORECAST_OVERDUE
                    _start_allocating(state, event)
            case JobSubmitted():
                state.runs.setdefault(event.job.job_id, JobRun(job=event.job))
            case JobCancelled():
                run = state.runs.get(event.job_id)
                if run is not None:
                    run.cancelled = True
            case JobProgressReported():
                run = state.runs.get(event.job_id)
                if run is not None:
                    run.note_progress(event.done)
            case AllocationAnswered():
                self._note_answer(state, event)
            case AllocationDecided():
                run = state.runs[event.job_id]
                run.target = _holding_of(event.lots)
            case SlotDecided():
                if event.slot == state.slot:
                    state.phase = SlotPhase.AWAITING_CAPACITY
                    state.revision = event.revision
                    for run in state.runs.values():
                        run.lost = 0
            case LaunchRefused():
                if event.slot == state.slot:
                    state.refused[event.offering_id, event.capacity_type] = True
            case CapacityLost():
                run = state.runs.get(event.job_id)
                if run is not None and event.slot == state.slot:
                    run.lost += len(event.instance_ids)
            case CapacityReported():
                self._note_capacity(state, event)
            case JobAdmitted():
                self._admit(state, event)
            case JobClosed():
                run = state.runs[event.job_id]
                run.phase = RunPhase.CLOSED
                run.outcome = event.outcome
                run.target = IDLE
                run.memory = START
            case PolicyWeightsUpdated():
                self._learn(state, event)
            case _:
                pass

    def _open_slot(self, state: SelectorState, event: SlotOpened) -> None:
        if state.opened is not None:
            if event.slot <= state.slot:
                return
            self._record_slot(state)
            prices = {sq.quote.offering_id: sq.quote for sq in state.opened.quotes}
            for run in state.running():
                quote = prices[run.offering_id]
                # A slot nobody opened (a live market's clock went on) is held through unchanged.
                for _ in range(event.slot - state.slot):
                    run.settle(quote.spot_price_micro_usd, quote.on_demand_price_micro_usd)
            trusted = None
            if state.forecast_reason is DecisionReason.POLICY:
                trusted = state.forecast
            state.history.append((state.opened, trusted))
            del state.history[: -self._options.history_slots]
        state.trust.note_slot(event)
        state.slot = event.slot
        state.opened = event
        state.forecast = None
        state.forecast_reason = DecisionReason.POLICY
        state.phase = SlotPhase.WAITING_FORECAST
        state.revision = 0
        state.offset_s = 0
        state.trigger = None
        state.refused = {}
        state.caps = {}
        for run in state.running():
            run.lost = 0

    def _note_forecast(self, state: SelectorState, event: ForecastIssued) -> None:
        if event.slot != state.slot or state.phase is not SlotPhase.WAITING_FORECAST:
            return
        state.forecast = event
        if not state.trust.trusted:
            state.forecast_reason = DecisionReason.FORECAST_UNTRUSTED
        _start_allocating(state, event)

    def _note_answer(self, state: SelectorState, event: AllocationAnswered) -> None:
        if state.phase is not SlotPhase.ALLOCATING or event.slot != state.slot:
            return
        if event.revision != state.revision:
            return
        state.trigger = event
        if event.outcome is CallOutcome.ANSWERED:
            for answer in event.answers:
                state.runs[answer.job_id].memory = answer.memory

    def _note_capacity(self, state: SelectorState, event: CapacityReported) -> None:
        if event.slot != state.slot or event.revision != state.revision:
            return
        if state.phase is not SlotPhase.AWAITING_CAPACITY:
            return
        reported = {holding.job_id: _holding_of(holding.lots) for holding in event.holdings}
        first_s = state.offset_s
        for job_id in sorted(state.runs):
            run = state.runs[job_id]
            held = reported.get(job_id, IDLE)
            if run.phase is RunPhase.RUNNING:
                # What was granted was held until instances were lost inside the slot.
                granted = replace(held, spot=held.spot + run.lost)
                broken = self._interrupted(state, run, granted)
                run.place(Segment(offset_s=first_s, holding=granted, interrupted=broken))
                if run.lost:
                    run.place(Segment(offset_s=event.offset_s, holding=held, interrupted=True))
            run.held = held
        if event.settled or state.revision >= self._options.most_revisions:
            state.phase = SlotPhase.SETTLED
            return
        self._note_caps(state)
        state.affected = tuple(
            job_id for job_id in state.order if state.runs[job_id].held != state.runs[job_id].target
        )
        state.offset_s = event.offset_s
        state.revision += 1
        state.refused = {}
        state.phase = SlotPhase.ALLOCATING
        state.trigger = event

    def _interrupted(self, state: SelectorState, run: JobRun, granted: Holding) -> bool:
        """Whether the segment that starts now follows a loss of what was held before it."""
        if state.offset_s:
            return any(s.interrupted and s.offset_s == state.offset_s for s in run.segments)
        return run.state.holding.spot > self._offered(state, run.job.job_id)[0]

    def _note_caps(self, state: SelectorState) -> None:
        """A refusal shows the stock: what everybody holds of the offering is all there is."""
        for offering_id, capacity_type in state.refused:
            held = 0
            for run in state.runs.values():
                if run.offering_id == offering_id:
                    spot = capacity_type is CapacityType.SPOT
                    held += run.held.spot if spot else run.held.on_demand
            state.caps[offering_id, capacity_type] = held

    def _residual(self, state: SelectorState) -> ResidualCapacity:
        quotes: Sequence[SlotQuote] = state.opened.quotes if state.opened is not None else ()
        residual = ResidualCapacity(quotes)
        for (offering_id, capacity_type), held in sorted(
            state.caps.items(), key=lambda item: (item[0][0], item[0][1].value)
        ):
            spot = capacity_type is CapacityType.SPOT
            residual.cap(
                offering_id, spot=held if spot else None, on_demand=None if spot else held
            )
        return residual

    def _offered(self, state: SelectorState, job_id: str) -> tuple[int, int]:
        """Spot and on-demand left for a job after those before it, at the opening of the slot."""
        residual = self._residual(state)
        for other in state.order:
            if other == job_id:
                break
            run = state.runs[other]
            if run.phase is RunPhase.RUNNING:
                _take_what_is_left(residual, run.lots(run.target))
        offering_id = state.runs[job_id].offering_id
        return residual.spot(offering_id), residual.on_demand(offering_id)

    def _record_slot(self, state: SelectorState) -> None:
        """Keep what every unfinished or not yet fed-back job was offered in the slot."""
        if state.opened is None:
            return
        trusted = state.forecast if state.forecast_reason is DecisionReason.POLICY else None
        quotes = {sq.quote.offering_id: sq.quote for sq in state.opened.quotes}
        for job_id in sorted(state.runs):
            run = state.runs[job_id]
            if run.phase is RunPhase.PENDING or run.fed_back:
                continue
            quote = quotes[run.offering_id]
            spot, on_demand = self._offered(state, job_id)
            run.records.append(
                SlotRecord(
                    spot_price=quote.spot_price_micro_usd,
                    on_demand_price=quote.on_demand_price_micro_usd,
                    spot_available=spot,
                    on_demand_available=on_demand,
                    forecast=forecast_of(trusted, quote),
                )
            )

    def _admit(self, state: SelectorState, event: JobAdmitted) -> None:
        run = state.runs[event.job_id]
        opened = _opened(state)
        run.phase = RunPhase.RUNNING
        run.policy_id = event.policy_id
        run.offering_id = event.offering_id
        run.first_slot = event.slot
        run.first_slot_start_ns = opened.ts_event_ns
        run.program = self._program(state, run.job, event.offering_id)

    def _learn(self, state: SelectorState, event: PolicyWeightsUpdated) -> None:
        utilities = np.array([w.utility_micro_usd for w in event.weights], dtype=np.int64)
        state.rule.update(
            normalised_utility(
                utilities,
                floor_micro_usd=event.utility_floor_micro_usd,
                ceiling_micro_usd=event.utility_ceiling_micro_usd,
            )
        )
        if event.rehearsed_slot < 0:
            run = state.runs[event.job_id]
            run.fed_back = True
            run.records = []

    # --- decide -------------------------------------------------------------------------------

    def decide(self, state: SelectorState, event: Event, ctx: Context) -> Outcome:
        """What follows from an event that `state` already reflects."""
        match event:
            case SlotOpened() if event is state.opened:
                return Outcome(events=self._turn_of_slot(state, ctx))
            case JobCancelled():
                return Outcome(events=self._cancel_pending(state, event))
            case ForecastIssued() | ForecastOverdue() if event is state.trigger:
                return self._ask(state, self._order(state), ctx)
            case CapacityReported() if event is state.trigger:
                return self._ask(state, list(state.affected), ctx)
            case AllocationAnswered() if event is state.trigger:
                return Outcome(events=self._command(state, event, ctx))
            case _:
                return NOTHING

    def due(self, state: SelectorState) -> Sequence[Timer]:
        """While a slot waits for its forecast, the moment it stops waiting."""
        if state.phase is not SlotPhase.WAITING_FORECAST:
            return ()
        wait_s = self._options.forecast_timeout_s
        overdue = ForecastOverdue(slot=state.slot, waited_ms=round(wait_s * 1000))
        return (
            Timer(timer_id=f"forecast_overdue:{state.slot}", after_s=wait_s, events=(overdue,)),
        )

    def _turn_of_slot(self, state: SelectorState, ctx: Context) -> tuple[Event, ...]:
        """Report the slot that ended, close jobs, learn, admit: in that order."""
        events: list[Event] = []
        closing: set[str] = set()
        for run in state.running():
            if run.first_slot < state.slot:
                events.append(_advanced(run, state.slot - 1))
            closed = _closed(run, state.slot)
            if closed is not None:
                events.append(closed)
                closing.add(run.job.job_id)
        rule = state.rule.copy()
        for job_id in sorted(state.runs):
            run = state.runs[job_id]
            over = run.phase is RunPhase.CLOSED or job_id in closing
            if not over or run.fed_back or run.program is None or not run.records:
                continue
            if run.cancelled or run.elapsed_slots(state.slot) < run.compiled.deadline_slots:
                continue
            events.append(self._feedback(rule, job_id, run.compiled, run.records, -1))
        running = [run for run in state.running() if run.job.job_id not in closing]
        opened = _opened(state)
        for run in self._arrivals(state):
            if run.job.deadline.expires_ns <= opened.ts_event_ns:
                events.append(_never_started(run, state.slot))
                continue
            offering_id = self._best_offering(state, run.job, running)
            if run.cancelled or offering_id is None:
                continue
            events.extend(self._rehearse(state, rule, run.job, offering_id))
            weights = weights_ppb(rule.weights())
            index = drawn_index(weights, ctx.uniform(f"policy:{run.job.job_id}"))
            program = self._program(state, run.job, offering_id)
            events.append(
                JobAdmitted(
                    job_id=run.job.job_id,
                    tenant=run.job.tenant,
                    slot=state.slot,
                    policy_id=self._pool[index].policy_id,
                    offering_id=offering_id,
                    deadline_slot=state.slot + program.deadline_slots - 1,
                    weight_ppb=weights[index],
                )
            )
            # The next arrival must see this one's demand.
            running.append(JobRun(job=run.job, offering_id=offering_id))
        return tuple(events)

    def _arrivals(self, state: SelectorState) -> list[JobRun]:
        opened = _opened(state)
        pending = [
            run
            for run in state.runs.values()
            if run.phase is RunPhase.PENDING and run.job.start_ns <= opened.ts_event_ns
        ]
        return sorted(pending, key=lambda run: (run.job.start_ns, run.job.job_id))

    def _best_offering(
        self, state: SelectorState, job: Job, running: Sequence[JobRun]
    ) -> str | None:
        return best_offering(
            job,
            state.offerings,
            _opened(state),
            [slot for slot, _ in state.history],
            [(run.offering_id, run.job.max_instances) for run in running],
        )

    def _rehearse(
        self, state: SelectorState, rule: SelectionRule, job: Job, offering_id: str
    ) -> list[Event]:
        """Replay an arriving job on the market seen so far, while little has been realised."""
        missing = self._options.rehearsals - rule.rounds
        count = min(missing, self._options.rehearsals_per_job)
        program = self._program(state, job, offering_id)
        slots = len(state.history)
        room = slots - program.deadline_slots
        if count <= 0 or room < 0 or program.deadline_slots < 1:
            return []
        starts = sorted({round(i * room / max(1, count - 1)) for i in range(count)})
        events: list[Event] = []
        for start in starts:
            records = []
            for opened, forecast in state.history[start : start + program.end_slots]:
                quotes = {sq.quote.offering_id: sq.quote for sq in opened.quotes}
                quote = quotes[offering_id]
                residual = ResidualCapacity(opened.quotes)
                records.append(
                    SlotRecord(
                        spot_price=quote.spot_price_micro_usd,
                        on_demand_price=quote.on_demand_price_micro_usd,
                        spot_available=residual.spot(offering_id),
                        on_demand_available=residual.on_demand(offering_id),
                        forecast=forecast_of(forecast, quote),
                    )
                )
            first = state.history[start][0].slot
            events.append(self._feedback(rule, job.job_id, program, records, first))
        return events

    def _feedback(
        self,
        rule: SelectionRule,
        job_id: str,
        program: JobProgram,
        records: Sequence[SlotRecord],
        rehearsed_slot: int,
    ) -> PolicyWeightsUpdated:
        """Replay the whole pool on what a job was offered, and move `rule` by it."""
        short = program.end_slots - len(records)
        # After the deadline only on-demand runs; its price is taken to stay.
        padded = list(records) + [replace(records[-1], spot_available=0)] * max(0, short)
        fallback = policy_named(FALLBACK_POLICY_ID)
        utilities = np.array(
            [
                replay_policy(program, padded, policy, fallback).utility_micro_usd
                for policy in self._pool
            ],
            dtype=np.int64,
        )
        dearest = max(record.on_demand_price for record in records)
        worst = cost_micro_usd(dearest, program.max_instances, program.slot_s) * program.end_slots
        ceiling = program.value_micro_usd[0]
        rule.update(
            normalised_utility(utilities, floor_micro_usd=-worst, ceiling_micro_usd=ceiling)
        )
        weights = weights_ppb(rule.weights())
        return PolicyWeightsUpdated(
            round=rule.rounds,
            job_id=job_id,
            rule=rule.name,
            weights=tuple(
                PolicyWeight(
                    policy_id=policy.policy_id,
                    weight_ppb=weights[index],
                    utility_micro_usd=int(utilities[index]),
                )
                for index, policy in enumerate(self._pool)
            ),
            rehearsed_slot=rehearsed_slot,
            utility_floor_micro_usd=-worst,
            utility_ceiling_micro_usd=ceiling,
        )

    def _cancel_pending(self, state: SelectorState, event: JobCancelled) -> tuple[Event, ...]:
        run = state.runs.get(event.job_id)
        if run is None or run.phase is not RunPhase.PENDING:
            return ()
        return (_never_started(run, state.slot),)

    def _order(self, state: SelectorState) -> list[str]:
        """Jobs in the order they are served: least slack first, then job id."""
        return [
            run.job.job_id
            for run in sorted(
                state.running(), key=lambda r: (r.slack_slots(state.slot), r.job.job_id)
            )
        ]

    def _ask(self, state: SelectorState, order: list[str], ctx: Context) -> Outcome:
        if not order:
            return Outcome(events=self._finish_slot(state, [], ctx))
        request = self._request(state, order)
        return Outcome(
            calls=(Call(name=ALLOCATE_CALL, digest=self._digest(request), request=request),)
        )

    def _request(self, state: SelectorState, order: Sequence[str]) -> AllocateRequest:
        opened = _opened(state)
        residual = self._residual(state)
        asked = set(order)
        for run in state.running():
            if run.job.job_id not in asked:
                _take_what_is_left(residual, run.lots(run.held))
        reason = state.forecast_reason
        if state.revision:
            lost = any(state.runs[job_id].lost for job_id in order)
            reason = DecisionReason.INTERRUPTED if lost else DecisionReason.LAUNCH_REFUSED
        trusted = state.forecast_reason is DecisionReason.POLICY
        return AllocateRequest(
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            slot_s=opened.slot_s,
            quotes=capped_quotes(opened.quotes, residual),
            forecast=state.forecast if trusted else None,
            reason=reason,
            tasks=tuple(self._task(state, state.runs[job_id]) for job_id in order),
        )

    def _task(self, state: SelectorState, run: JobRun) -> JobTask:
        now = run.state_at(state.offset_s) if state.offset_s else run.state
        return JobTask(
            job=run.job,
            policy_id=run.policy_id,
            offering_id=run.offering_id,
            instance_type=state.offerings[run.offering_id].instance_type,
            first_slot_start_ns=run.first_slot_start_ns,
            elapsed_slots=run.elapsed_slots(state.slot),
            progress_quanta=now.progress_quanta,
            holding=Lot(
                offering_id=run.offering_id,
                spot=now.holding.spot,
                on_demand=now.holding.on_demand,
            ),
            interrupted=bool(state.offset_s and run.lost),
            pending_overhead_s=now.pending_overhead_s,
            spent_micro_usd=run.spent_micro_usd,
            memory=run.memory,
            spot_firm=self._options.spot_firm,
        )

    def _command(
        self, state: SelectorState, event: AllocationAnswered, ctx: Context
    ) -> tuple[Event, ...]:
        answers: Sequence[JobAnswer] = event.answers
        if event.outcome is not CallOutcome.ANSWERED:
            answers = self._fallback_answers(state)
        decided: list[Event] = []
        for answer in answers:
            run = state.runs[answer.job_id]
            decided.append(
                AllocationDecided(
                    job_id=answer.job_id,
                    tenant=run.job.tenant,
                    slot=state.slot,
                    revision=state.revision,
                    offset_s=state.offset_s,
                    policy_id=answer.policy_id,
                    lots=answer.lots,
                    reason=answer.reason,
                    forecast_used=state.forecast_reason is DecisionReason.POLICY
                    and policy_named(answer.policy_id).needs_forecast,
                    explanation=_explain(run, answer, state),
                )
            )
        return self._finish_slot(state, decided, ctx)

    def _fallback_answers(self, state: SelectorState) -> Sequence[JobAnswer]:
        """Nobody answers: decide here, with the prediction-free policy."""
        order = state.affected if state.revision else self._order(state)
        request = self._request(state, order)
        tasks = tuple(
            replace(task, policy_id=FALLBACK_POLICY_ID, memory=START) for task in request.tasks
        )
        local = replace(
            request,
            tasks=tasks,
            forecast=None,
            reason=DecisionReason.ALLOCATOR_UNAVAILABLE,
        )
        return allocate(local).answers

    def _finish_slot(
        self, state: SelectorState, decided: list[Event], ctx: Context
    ) -> tuple[Event, ...]:
        """Decisions, then the commands they need (releases first), then the end of the slot."""
        targets: list[tuple[JobRun, Holding]] = []
        for event in decided:
            if isinstance(event, AllocationDecided):
                targets.append((state.runs[event.job_id], _holding_of(event.lots)))
        if state.revision == 0:
            for job_id in sorted(state.runs):
                run = state.runs[job_id]
                if run.phase is RunPhase.CLOSED and run.held != IDLE:
                    targets.append((run, IDLE))
        changes = [(run, target) for run, target in targets if run.held != target]
        # Releases go first: what they free may be what the others launch.
        changes.sort(key=lambda c: (_grows(c[0].held, c[1]), c[0].job.job_id))
        commands: list[Event] = [
            ProvisioningCommanded(
                command_id=ctx.derive_id(f"command:{run.job.job_id}"),
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                quota_pool=state.offerings[run.offering_id].quota_pool,
                slot=state.slot,
                revision=state.revision,
                offset_s=state.offset_s,
                target=Lot(
                    offering_id=run.offering_id, spot=target.spot, on_demand=target.on_demand
                ),
            )
            for run, target in changes
        ]
        ended = SlotDecided(
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            commands=len(commands),
        )
        return (*decided, *commands, ended)

    def _program(self, state: SelectorState, job: Job, offering_id: str) -> JobProgram:
        opened = _opened(state)
        run = state.runs.get(job.job_id)
        start_ns = opened.ts_event_ns
        if run is not None and run.phase is not RunPhase.PENDING:
            start_ns = run.first_slot_start_ns
        return program_of(
            job,
            offering_id,
            state.offerings[offering_id].instance_type,
            opened.slot_s,
            start_ns,
        )


def _start_allocating(state: SelectorState, event: Event) -> None:
    state.phase = SlotPhase.ALLOCATING
    state.trigger = event
    state.order = tuple(
        run.job.job_id
        for run in sorted(state.running(), key=lambda r: (r.slack_slots(state.slot), r.job.job_id))
    )


def _opened(state: SelectorState) -> SlotOpened:
    if state.opened is None:
        raise ValueError("no slot has opened yet")
    return state.opened


def _holding_of(lots: Sequence[Lot]) -> Holding:
    return Holding(spot=sum(lot.spot for lot in lots), on_demand=sum(lot.on_demand for lot in lots))


def _take_what_is_left(residual: ResidualCapacity, lots: Sequence[Lot]) -> None:
    for lot in lots:
        spot = min(lot.spot, residual.spot(lot.offering_id))
        on_demand = min(lot.on_demand, residual.on_demand(lot.offering_id))
        residual.take([Lot(offering_id=lot.offering_id, spot=spot, on_demand=on_demand)])


def _grows(before: Holding, after: Holding) -> bool:
    return after.spot > before.spot or after.on_demand > before.on_demand


def _advanced(run: JobRun, slot: int) -> JobAdvanced:
    return JobAdvanced(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot,
        lots=run.last_slot_lots,
        progress_ppm=run.progress_ppm,
        slot_cost_micro_usd=run.last_slot_cost_micro_usd,
        cost_micro_usd=run.spent_micro_usd,
    )


def _closed(run: JobRun, slot: int) -> JobClosed | None:
    """How the job ended, if it did when `slot` opened."""
    program = run.compiled
    elapsed = run.elapsed_slots(slot)
    value = 0
    if run.state.progress_quanta >= program.work_quanta:
        on_time = elapsed <= program.deadline_slots
        outcome = JobOutcome.COMPLETED if on_time else JobOutcome.COMPLETED_LATE
        if elapsed <= program.end_slots:
            value = program.value_micro_usd[elapsed]
    elif run.cancelled:
        outcome = JobOutcome.CANCELLED
    elif elapsed >= program.end_slots:
        outcome = JobOutcome.MISSED_DEADLINE if program.hard else JobOutcome.EXPIRED
    else:
        return None
    return JobClosed(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot - 1,
        outcome=outcome,
        policy_id=run.policy_id,
        cost_micro_usd=run.spent_micro_usd,
        value_micro_usd=value,
        progress_ppm=run.progress_ppm,
    )


def _never_started(run: JobRun, slot: int) -> JobClosed:
    if run.cancelled:
        outcome = JobOutcome.CANCELLED
    elif run.job.deadline.kind is DeadlineKind.HARD:
        outcome = JobOutcome.MISSED_DEADLINE
    else:
        outcome = JobOutcome.EXPIRED
    return JobClosed(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=max(0, slot),
        outcome=outcome,
        policy_id="",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )


def _explain(run: JobRun, answer: JobAnswer, state: SelectorState) -> str:
    """One line for people: what, why, and how much slack there is."""
    holding = _holding_of(answer.lots)
    slack_s = run.slack_slots(state.slot) * run.compiled.slot_s
    return (
        f"{holding.spot} spot + {holding.on_demand} on-demand by {answer.policy_id}: "
        f"{answer.reason.value.replace('_', ' ')}, slack {slack_s / 3600:.1f} h"
    )
