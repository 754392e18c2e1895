"""The selector: admits jobs, decides every slot, closes jobs, learns which policy to trust.

One slot k runs through these phases:

    SlotOpened(k)         settle slot k - 1, close and admit jobs, feed weights    WAITING_FORECAST
    ForecastIssued(k)     ask the allocator (ForecastOverdue: without a forecast)  ALLOCATING
    AllocationAnswered    record decisions, command the cloud                      AWAITING_CAPACITY
    CapacityReported(k)   settled: done; else ask again for the rest of the slot   SETTLED
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.selector.asking import allocate_request, fallback_answers
from spotline.application.selector.believing import homes_by
from spotline.application.selector.commanding import AtLimit, decisions, finish_slot
from spotline.application.selector.endings import ended, moment_s, retry_of
from spotline.application.selector.fold import fold
from spotline.application.selector.home_prospects import HomeProspects
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.learning import (
    JobLesson,
    feedback,
    learner_of,
    rehearse,
    table_of_run,
)
from spotline.application.selector.leaving import departures
from spotline.application.selector.lifecycle import advanced, closed, never_started
from spotline.application.selector.limiting import (
    NO_LIMIT,
    arrival_limit,
    ending_of,
    judged,
    spent_up,
)
from spotline.application.selector.limits_set import options_in_force
from spotline.application.selector.loads import loads_of, most_of, together
from spotline.application.selector.offering_choice import best_offering
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.parked_entries import frozen_by, unfrozen_by
from spotline.application.selector.probing import probes_of
from spotline.application.selector.recomputing import recomputed_answer
from spotline.application.selector.repricing import repriced, repriced_ahead, tables_repriced
from spotline.application.selector.rescuing import RescueRoom
from spotline.application.selector.spending import within_limits
from spotline.application.selector.state import SelectorState, SlotPhase, state_at_start
from spotline.application.selector.tables import (
    most_tables,
    table_room,
    tables_again,
    tables_at_homes,
    tables_on_the_way,
    tables_wanted,
    tables_with_room,
)
from spotline.application.selector.tripping import tripped
from spotline.application.selector.turn_places import serves_in_turn
from spotline.application.slot_checks import check_slot, slot_of
from spotline.application.spec import NOTHING, Call, CallSpec, Context, Outcome, Spec, Timer
from spotline.application.tenancy import check_tenant
from spotline.application.unfit import NOT_BELIEVED, Unfit
from spotline.contracts.subjects import KINDS
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
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
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
from spotline.domain.events.limits import LimitAction, LimitReached, LimitSet
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.training import (
    CheckpointCommitted,
    GenerationFormed,
    JobHeard,
    JobSilent,
    TrainingRestarted,
)
from spotline.domain.policies.answer import JobAnswer
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import POOL
from spotline.domain.selection.learner import Learner
from spotline.domain.selection.rules import drawn_index, weights_ppb

ALLOCATE_CALL = "allocate"

_DECIDES = (
    JobAdmitted,
    JobAdvanced,
    JobClosed,
    JobRetryScheduled,
    AllocationDecided,
    ProvisioningCommanded,
    ProbeCommanded,
    SlotDecided,
    PolicyWeightsUpdated,
    ValueTableRequested,
    ShadowPricesUpdated,
    LimitReached,
    BuyingFrozen,
    BuyingUnfrozen,
)

SPEC = Spec(
    service="selector",
    consumes=(
        MarketOpened,
        SlotOpened,
        ForecastIssued,
        ForecastOverdue,
        JobSubmitted,
        JobCancelled,
        JobUpdated,
        JobExited,
        JobProgressReported,
        AllocationAnswered,
        LaunchRefused,
        CapacityLost,
        CapacityReported,
        OfferingProbed,
        CostAccrued,
        MarketLawLearned,
        ValueTableReady,
        ThroughputReestimated,
        CheckpointCommitted,
        GenerationFormed,
        TrainingRestarted,
        BuyingFrozen,
        BuyingUnfrozen,
        AccountModeSet,
        LimitSet,
        EntryParked,
        ParkedEntryRetried,
        ParkedEntryDropped,
        # What shows that instances are unwell.
        *(InterruptionNoticed, InterruptionWithdrawn, JobSilent, JobHeard),
    ),
    # Jobs are admitted and rehearsed, asked for, decided, and priced.
    long=(SlotOpened, ForecastIssued, ForecastOverdue, AllocationAnswered, CapacityReported),
    produces=(ForecastOverdue, AllocationAnswered, EntryParked, *_DECIDES),
    decides=_DECIDES,
    calls=(
        CallSpec(name=ALLOCATE_CALL, answers=(AllocationAnswered,), recompute=recomputed_answer),
    ),
)


class SelectHandler:
    """Decides allocations through the allocator, and everything about a job's life."""

    spec = SPEC

    def __init__(
        self,
        options: SelectorOptions,
        *,
        digest: Callable[[AllocateRequest], str],
        pool: Sequence[Policy] = POOL,
    ) -> None:
        self._options = options
        self._digest = digest
        self._pool = tuple(pool)
        # Made here, so that options that do not fit are refused at start.
        self._learner = learner_of(options, self._pool)

    def initial(self) -> SelectorState:
        """No market, no jobs, equal weights or those of a warm start."""
        return state_at_start(self._options, self._learner.copy())

    def check(self, state: SelectorState, event: Event) -> None:
        """Refuse a slot that cannot be gone on from, and another tenant's word; see `Checks`."""
        if isinstance(event, SlotOpened) and event.slot > state.slot:
            check_slot(event, *slot_of(state.opened))
        if isinstance(event, ForecastIssued) and event.slot > state.slot:
            # It would be held against what comes, and forecasts be believed less for it.
            raise Unfit("slot", f"one that has opened (<= {state.slot})", event.slot)
        check_tenant(event, state.tenant_of)

    def evolve(self, state: SelectorState, event: Event) -> None:
        """Apply one event."""
        fold(state, event, self._held_to(state))

    def decide(self, state: SelectorState, event: Event, ctx: Context) -> Outcome:
        """What follows from an event that `state` already reflects."""
        match event:
            case SlotOpened() if event is state.heard:
                return Outcome(events=self._turn_of_slot(state, ctx))
            case JobCancelled() | JobExited():
                return Outcome(events=self._heed(state, event, ctx))
            case ForecastIssued() | ForecastOverdue() if event is state.trigger:
                return self._ask(state, state.in_order(), ctx)
            case CapacityReported() if event is state.trigger:
                if state.job_revisions > self._options.most_revisions:
                    # The cloud goes on refusing: keep what is held, and let the slot end.
                    return Outcome(events=finish_slot(state, [], ctx, self._held_to(state)))
                return self._ask(state, state.served_again(), ctx)
            case CapacityReported():
                in_turn = serves_in_turn(state, self._options)
                asked = tables_on_the_way(state, event, self._options)
                return Outcome(events=(*asked, *repriced_ahead(state, event, in_turn=in_turn)))
            case AllocationAnswered() if event is state.trigger:
                return Outcome(events=self._command(state, event, ctx))
            case EntryParked() if self._misses_answer(state, event):
                return Outcome(events=self._fall_back(state, ctx))
            case EntryParked():
                return Outcome(events=frozen_by(state, event))
            case ParkedEntryRetried() | ParkedEntryDropped():
                return Outcome(events=unfrozen_by(state, event))
            case (
                ThroughputReestimated() | JobUpdated() | CheckpointCommitted() | TrainingRestarted()
            ):
                return Outcome(events=tables_again(state, event))
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

    def _held_to(self, state: SelectorState) -> SelectorOptions:
        """The options, with the limits that people have set since."""
        return options_in_force(self._options, state.limits_set)

    def _heed(
        self, state: SelectorState, event: JobCancelled | JobExited, ctx: Context
    ) -> tuple[Event, ...]:
        """What a job's cancellation or the end of its program changes now."""
        run = state.runs.get(event.job_id)
        if run is None:
            return ()
        if run.phase is RunPhase.PENDING:
            return (never_started(run, state.slot),) if run.cancelled else ()
        retry = retry_of(run, state.slot)
        events: tuple[Event, ...] = () if retry is None else (retry,)
        if event is state.trigger:
            events += finish_slot(state, [], ctx, self._held_to(state))
        elif state.phase is SlotPhase.SETTLED and run.phase is RunPhase.RUNNING and run.ending:
            # It holds nothing that would have to be released.
            events += ended(state, run, run.ending, moment_s(state, event.ts_event_ns))
        return events

    def _turn_of_slot(self, state: SelectorState, ctx: Context) -> tuple[Event, ...]:
        """Report the slot that ended, close jobs, learn, admit: in that order."""
        events: list[Event] = list(tripped(state)) if self._options.limits else []
        closing: set[str] = set()
        for run in state.running():
            if run.first_slot < state.slot:
                events.append(advanced(run, state.slot - 1))
            ended = closed(run, state.slot)
            events += (ended,) if ended is not None else judged(state, run, self._held_to(state))
            if events and isinstance(events[-1], JobClosed):
                closing.add(events[-1].job_id)
        learner = state.learner.copy()
        events += self._learn(state, closing, learner)
        running = [run for run in state.running() if run.job.job_id not in closing]
        events += tables_repriced(state, running)
        room = table_room(running, self._options)
        if self._options.homes_by_law:
            late = tables_at_homes(state, running, room)
            events += late
            room -= len(late)
        events += self._admit(state, running, learner, ctx, room)
        return tuple(events)

    def _learn(
        self, state: SelectorState, closing: Collection[str], learner: Learner
    ) -> Iterator[Event]:
        """Move `learner` by every job that is over and whose deadline has passed.

        What was filled on paper is no evidence: it moves nothing.
        """
        if state.mode.on_paper:
            return
        for job_id in sorted(state.runs):
            run = state.runs[job_id]
            over = run.phase is RunPhase.CLOSED or job_id in closing
            if not over or not run.teaches or run.is_spoilt or not run.records:
                continue
            if run.elapsed_slots(state.slot) < run.compiled.deadline_slots:
                continue
            lesson = JobLesson(
                job_id=job_id,
                program=run.compiled,
                records=run.records,
                draw=state.draws.get(job_id),
                table=table_of_run(run),
                agreed=1.0 if run.paths is None else run.paths.agreed,
            )
            yield feedback(self._pool, self._options, learner, lesson)

    def _admit(
        self,
        state: SelectorState,
        running: Sequence[JobRun],
        learner: Learner,
        ctx: Context,
        room: int,
    ) -> Iterator[Event]:
        """Admit the jobs that arrive, beside those `running`; rehearsals move `learner`.

        They are given as many value tables as there is `room` for.
        """
        arrivals = _arrivals(state)
        if not arrivals:
            # Most slots: what jobs leave each other is looked for by those that arrive alone.
            return
        options = self._held_to(state)
        taken = loads_of(state, running, options)
        room_to_rescue = RescueRoom.of(state, running, options)
        prospects = HomeProspects.of(state, options)
        for run in arrivals:
            if run.job.deadline.expires_ns <= state.current.ts_event_ns:
                yield never_started(run, state.slot)
                continue
            opened, past = homes_by(state, run.job, most_of(taken))
            full = room_to_rescue.full_for(state, run)
            offering_id = best_offering(
                run.job, state.offerings, opened, past, taken, full, prospects
            )
            if run.cancelled or offering_id is None:
                continue
            limit = arrival_limit(state, run, offering_id) if options.limits else NO_LIMIT
            if limit.refusal is not None:
                if limit.refusal.action is not LimitAction.WAIT:
                    yield limit.refusal
                    yield never_started(run, state.slot, stopped=True)
                continue
            arriving = limit.planned(run.job)
            yield from rehearse(self._pool, options, state, learner, arriving, offering_id)
            weights = weights_ppb(learner.weights())
            index = drawn_index(weights, ctx.uniform(f"policy:{run.job.job_id}"))
            program = state.program_of(arriving, offering_id)
            yield JobAdmitted(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                policy_id=self._pool[index].policy_id,
                offering_id=offering_id,
                deadline_slot=state.slot + program.deadline_slots - 1,
                weight_ppb=weights[index],
                on_demand_quote_micro_usd=limit.on_demand_quote_micro_usd,
                limit_micro_usd=limit.limit_micro_usd,
            )
            tables = tables_wanted(
                state, JobRun(job=arriving), offering_id, taken, options, room, full, prospects
            )
            tables = tables_with_room(state, tables, room, most_tables(options))
            room -= len(tables)
            yield from tables
            # The next arrival must see this one's demand.
            admitted = JobRun(job=run.job, offering_id=offering_id)
            room_to_rescue.claim(state, admitted, offering_id)
            taken = together(taken, loads_of(state, [admitted], options))

    def _ask(self, state: SelectorState, order: Sequence[str], ctx: Context) -> Outcome:
        if not order:
            return Outcome(
                events=(*repriced(state), *finish_slot(state, [], ctx, self._held_to(state)))
            )
        request = allocate_request(state, order, self._held_to(state))
        return Outcome(
            calls=(Call(name=ALLOCATE_CALL, digest=self._digest(request), request=request),)
        )

    @staticmethod
    def _misses_answer(state: SelectorState, parked: EntryParked) -> bool:
        """Whether the open slot waits for an answer that could not be taken."""
        return (
            parked.service == SPEC.service
            and parked.error_type not in NOT_BELIEVED
            and parked.kind == KINDS[AllocationAnswered]
            and parked.slot == state.slot
            and state.phase is SlotPhase.ALLOCATING
        )

    def _fall_back(self, state: SelectorState, ctx: Context) -> tuple[Event, ...]:
        return self._finished(state, fallback_answers(state, self._held_to(state)), ctx)

    def _command(
        self, state: SelectorState, event: AllocationAnswered, ctx: Context
    ) -> tuple[Event, ...]:
        answers: Sequence[JobAnswer] = event.answers
        if event.outcome is not CallOutcome.ANSWERED:
            answers = fallback_answers(state, self._held_to(state))
        finished = self._finished(state, answers, ctx)
        return (*repriced(state), *probes_of(state, event, finished, ctx, self._options), *finished)

    def _finished(
        self, state: SelectorState, answers: Sequence[JobAnswer], ctx: Context
    ) -> tuple[Event, ...]:
        answers = departures(state, answers, self._held_to(state))
        reached, answers = spent_up(state, answers, self._held_to(state))
        granted = within_limits(state, answers, self._held_to(state))
        decided = decisions(state, granted.answers, self._held_to(state))
        ending = AtLimit(stopped=ending_of(reached), cut=granted.cut, excepted=granted.excepted)
        return (
            *reached,
            *granted.reached,
            *finish_slot(state, decided, ctx, self._held_to(state), ending),
        )


def _arrivals(state: SelectorState) -> list[JobRun]:
    opened = state.current
    pending = [
        run
        for run in state.runs.values()
        if run.phase is RunPhase.PENDING and run.job.start_ns <= opened.ts_event_ns
    ]
    return sorted(pending, key=lambda run: (run.job.start_ns, run.job.job_id))
