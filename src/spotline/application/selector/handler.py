"""The selector: admits jobs, decides every slot, closes jobs, learns which policy to trust.

One slot k runs through these phases:

    SlotOpened(k)         settle slot k - 1, close and admit jobs, feed weights    WAITING_FORECAST
    ForecastIssued(k)     ask the allocator (ForecastOverdue: without a forecast)  ALLOCATING
    AllocationAnswered    record decisions, command the cloud                      AWAITING_CAPACITY
    CapacityReported(k)   settled: done; else ask again for the rest of the slot   SETTLED
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.allocate import allocate, capped_quotes
from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.allocation.value_tables import same_table_of
from spotline.application.selector.fold import fold
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.learning import feedback, learner_of, rehearse, table_of_run
from spotline.application.selector.offering_choice import best_offering, other_offerings
from spotline.application.selector.recomputing import recomputed_answer
from spotline.application.selector.state import (
    SelectorOptions,
    SelectorState,
    SlotPhase,
    holding_of,
)
from spotline.application.spec import NOTHING, Call, CallSpec, Context, Outcome, Spec, Timer
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import MarketLawLearned, ValueTableRequested
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move
from spotline.domain.policies.interface import START, Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.sdp import ValueToGo
from spotline.domain.selection.rules import (
    drawn_index,
    weights_ppb,
)
from spotline.domain.solvers.table_spec import TableUse
from spotline.domain.solvers.value_table import MOST_TABLES

ALLOCATE_CALL = "allocate"

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
        MarketLawLearned,
        ThroughputReestimated,
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
        ValueTableRequested,
    ),
    decides=(
        JobAdmitted,
        JobAdvanced,
        JobClosed,
        AllocationDecided,
        ProvisioningCommanded,
        SlotDecided,
        PolicyWeightsUpdated,
        ValueTableRequested,
    ),
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
        return SelectorState(
            learner=self._learner.copy(),
            trust=ForecastTrust(),
            competing=self._options.competing,
        )

    def evolve(self, state: SelectorState, event: Event) -> None:
        """Apply one event."""
        fold(state, event, self._options)

    def decide(self, state: SelectorState, event: Event, ctx: Context) -> Outcome:
        """What follows from an event that `state` already reflects."""
        match event:
            case SlotOpened() if event is state.opened:
                return Outcome(events=self._turn_of_slot(state, ctx))
            case JobCancelled():
                return Outcome(events=self._cancel_pending(state, event))
            case ForecastIssued() | ForecastOverdue() if event is state.trigger:
                return self._ask(state, state.in_order(), ctx)
            case CapacityReported() if event is state.trigger:
                if state.job_revisions > self._options.most_revisions:
                    # The cloud goes on refusing: keep what is held, and let the slot end.
                    return Outcome(events=self._finish_slot(state, [], ctx))
                return self._ask(state, list(state.affected), ctx)
            case AllocationAnswered() if event is state.trigger:
                return Outcome(events=self._command(state, event, ctx))
            case ThroughputReestimated():
                return Outcome(events=_tables_anew(state, event))
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
        learner = state.learner.copy()
        for job_id in sorted(state.runs):
            run = state.runs[job_id]
            over = run.phase is RunPhase.CLOSED or job_id in closing
            # A job that moved to other rates (`mixed`) has offers that no one replay is of.
            if not over or not run.teaches or run.mixed or run.cancelled or not run.records:
                continue
            if run.elapsed_slots(state.slot) < run.compiled.deadline_slots:
                continue
            events.append(
                feedback(
                    self._pool,
                    self._options,
                    learner,
                    job_id,
                    run.compiled,
                    run.records,
                    draw=state.draws.get(job_id),
                    table=table_of_run(run),
                )
            )
        running = [run for run in state.running() if run.job.job_id not in closing]
        opened = state.current
        room = MOST_TABLES - sum(len(run.tables) for run in running)
        for run in self._arrivals(state):
            if run.job.deadline.expires_ns <= opened.ts_event_ns:
                events.append(_never_started(run, state.slot))
                continue
            offering_id = self._best_offering(state, run.job, running)
            if run.cancelled or offering_id is None:
                continue
            events.extend(rehearse(self._pool, self._options, state, learner, run.job, offering_id))
            weights = weights_ppb(learner.weights())
            index = drawn_index(weights, ctx.uniform(f"policy:{run.job.job_id}"))
            program = state.program_of(run.job, offering_id)
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
            asked = self._tables(state, run, offering_id, running)
            # While room is short, a home is worth more than places to move to.
            asked = asked[: len(asked) if 2 * room > MOST_TABLES else min(1, max(0, room))]
            room -= len(asked)
            events.extend(asked)
            # The next arrival must see this one's demand.
            running.append(JobRun(job=run.job, offering_id=offering_id))
        return tuple(events)

    def _tables(
        self, state: SelectorState, run: JobRun, home: str, running: Sequence[JobRun]
    ) -> list[ValueTableRequested]:
        """An arriving job's value tables, at home first, wherever laws are known."""
        wanted = [home]
        if self._options.moves and home in state.laws:
            wanted += other_offerings(
                run.job,
                home,
                state.offerings,
                state.current,
                [slot for slot, _ in state.history],
                self._taken(running),
            )
        events = []
        for offering_id in wanted:
            named = state.laws.get(offering_id)
            program = state.program_of(run.job, offering_id)
            if named is None or program.deadline_slots < 1:
                continue
            events.append(
                ValueTableRequested(
                    job_id=run.job.job_id,
                    tenant=run.job.tenant,
                    slot=state.slot,
                    table=state.table_spec(named, offering_id, program),
                    named=named,
                )
            )
        return events

    def _taken(self, running: Sequence[JobRun]) -> list[tuple[str, int]]:
        """What jobs that run may take of each offering."""
        if not self._options.competing:
            return []
        return [(run.offering_id, run.job.max_instances) for run in running]

    def _arrivals(self, state: SelectorState) -> list[JobRun]:
        opened = state.current
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
            state.current,
            [slot for slot, _ in state.history],
            self._taken(running),
        )

    def _cancel_pending(self, state: SelectorState, event: JobCancelled) -> tuple[Event, ...]:
        run = state.runs.get(event.job_id)
        if run is None or run.phase is not RunPhase.PENDING:
            return ()
        return (_never_started(run, state.slot),)

    def _ask(self, state: SelectorState, order: list[str], ctx: Context) -> Outcome:
        if not order:
            return Outcome(events=self._finish_slot(state, [], ctx))
        request = self._request(state, order)
        return Outcome(
            calls=(Call(name=ALLOCATE_CALL, digest=self._digest(request), request=request),)
        )

    def _request(self, state: SelectorState, order: Sequence[str]) -> AllocateRequest:
        opened = state.current
        residual = state.residual()
        asked = set(order)
        for run in state.running():
            if run.job.job_id not in asked:
                residual.take_what_is_left(run.held_lots)
        reason = state.forecast_reason
        if state.revision:
            lost = any(state.runs[job_id].lost for job_id in order)
            reason = DecisionReason.INTERRUPTED if lost else DecisionReason.LAUNCH_REFUSED
        trusted = state.forecast_reason is DecisionReason.POLICY
        tasks = tuple(self._task(state, state.runs[job_id]) for job_id in order)
        return AllocateRequest(
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            slot_s=opened.slot_s,
            quotes=capped_quotes(opened.quotes, residual),
            forecast=state.forecast if trusted else None,
            reason=reason,
            tasks=tasks,
            laws=_laws_of(tasks, state.runs),
        )

    def _task(self, state: SelectorState, run: JobRun) -> JobTask:
        now = run.state_at(state.offset_s) if state.offset_s else run.state
        reserve_slots, rescue_instances = state.on_demand_stock(run.job, run.offering_id)
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
            spent_micro_usd=run.spent_micro_usd + run.transfer_cost_micro_usd,
            memory=run.memory,
            spot_firm=self._options.spot_firm,
            table_use=_table_use(state, run, run.offering_id),
            alternatives=self._alternatives(state, run),
            on_demand_reserve_slots=reserve_slots,
            rescue_instances=rescue_instances,
        )

    def _alternatives(self, state: SelectorState, run: JobRun) -> tuple[Alternative, ...]:
        """Where a job could go now: a slot's first moment, tables at hand."""
        if not self._options.moves or state.offset_s:
            return ()
        # Nobody pays for the way to where it is not known that there is anything.
        counted = {
            one.quote.offering_id for one in state.current.quotes if one.quote.spot_available.known
        }
        found = []
        for offering_id in run.tables:
            use = _table_use(state, run, offering_id)
            if use is None or offering_id == run.offering_id or offering_id not in counted:
                continue
            program = state.program_of(run.job, offering_id)
            reserve_slots, rescue_instances = state.on_demand_stock(run.job, offering_id)
            migrate_s, egress = program.launch_s, 0
            # What a job needs before it first runs is taken to be everywhere.
            if run.launched:
                migrate_s = max(migrate_s, run.job.overheads.migrate_s)
                egress = state.egress_micro_usd(
                    run.job, run.offering_id, offering_id, self._options
                )
            found.append(
                Alternative(
                    offering_id=offering_id,
                    instance_type=use.table.instance_type,
                    table_use=use,
                    migrate_s=migrate_s,
                    move_cost_micro_usd=egress,
                    on_demand_reserve_slots=reserve_slots,
                    rescue_instances=rescue_instances,
                )
            )
        return tuple(found)

    def _command(
        self, state: SelectorState, event: AllocationAnswered, ctx: Context
    ) -> tuple[Event, ...]:
        answers: Sequence[JobAnswer] = event.answers
        if event.outcome is not CallOutcome.ANSWERED:
            answers = self._fallback_answers(state)
        decided = []
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
                    and _looks_at_forecasts(policy_named(answer.policy_id)),
                    explanation=_explain(run, answer, state),
                    move=answer.move,
                )
            )
        return self._finish_slot(state, decided, ctx)

    def _fallback_answers(self, state: SelectorState) -> Sequence[JobAnswer]:
        """Nobody answers: decide here, with the policy that needs neither forecast nor table."""
        order = state.affected if state.revision else state.in_order()
        request = self._request(state, order)
        tasks = tuple(
            replace(
                task, policy_id=FALLBACK_POLICY_ID, memory=START, table_use=None, alternatives=()
            )
            for task in request.tasks
        )
        local = replace(
            request,
            tasks=tasks,
            laws=(),
            forecast=None,
            reason=DecisionReason.ALLOCATOR_UNAVAILABLE,
        )
        return allocate(local).answers

    def _finish_slot(
        self, state: SelectorState, decided: list[AllocationDecided], ctx: Context
    ) -> tuple[Event, ...]:
        """Decisions, then the commands they need (releases first), then the end of the slot."""
        changes: list[_Change] = []
        for one in decided:
            changes += _changes(state.runs[one.job_id], one.lots, one.move)
        if state.revision == 0:
            for job_id in sorted(state.runs):
                run = state.runs[job_id]
                if run.phase is RunPhase.CLOSED:
                    changes += _changes(run, ())
        # Releases go first: what they free may be what the others launch.
        changes.sort(key=lambda one: (one.grows, one.run.job.job_id, one.target.offering_id))
        commands: list[Event] = [
            ProvisioningCommanded(
                command_id=ctx.derive_id(one.id_part),
                job_id=one.run.job.job_id,
                tenant=one.run.job.tenant,
                quota_pool=state.offerings[one.target.offering_id].quota_pool,
                slot=state.slot,
                revision=state.revision,
                offset_s=state.offset_s,
                target=one.target,
                transfer_cost_micro_usd=one.transfer_cost_micro_usd,
            )
            for one in changes
        ]
        ended = SlotDecided(
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            commands=len(commands),
        )
        return (*decided, *commands, ended)


def _looks_at_forecasts(policy: Policy) -> bool:
    return policy.needs_forecast or (isinstance(policy, ValueToGo) and policy.window > 0)


def _table_use(state: SelectorState, run: JobRun, offering_id: str) -> TableUse | None:
    table = run.table_in(state.slot, offering_id)
    if table is None:
        return None
    return TableUse(table=table.spec, run_state=state.run_state(offering_id, table.named.law.space))


def _tables_anew(state: SelectorState, event: ThroughputReestimated) -> tuple[Event, ...]:
    """Ask again for the tables that a job's new rates made stale; as many as it had.

    Only the job's program differs: on the same law, what the job was offered so far is told in
    the states that feedback will look up.
    """
    run = state.runs.get(event.job_id)
    if run is None or run.phase is not RunPhase.RUNNING:
        return ()
    asked = []
    for offering_id, table in run.tables.items():
        if not table.stale:
            continue
        program = state.program_of(run.job, offering_id)
        asked.append(
            ValueTableRequested(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                table=same_table_of(table.spec, program, table.named.law),
                named=table.named,
            )
        )
    return tuple(asked)


def _laws_of(tasks: Sequence[JobTask], runs: Mapping[str, JobRun]) -> tuple[NamedLaw, ...]:
    """The laws of all the tables that tasks name."""
    laws: dict[str, NamedLaw] = {}
    for task in tasks:
        for use in (task.table_use, *(one.table_use for one in task.alternatives)):
            if use is not None:
                table = runs[task.job.job_id].tables[use.table.offering_id]
                laws[table.named.law_id] = table.named
    return tuple(laws[law_id] for law_id in sorted(laws))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A lot to be brought to other counts; `id_part` tells a job's commands apart."""

    run: JobRun
    target: Lot
    grows: bool
    id_part: str
    transfer_cost_micro_usd: int = 0


def _changes(run: JobRun, lots: tuple[Lot, ...], move: Move | None = None) -> list[_Change]:
    """What must change for a job to hold `lots` and nothing else; no lots: nothing at all."""
    job_id = run.job.job_id
    target = lots[0] if lots else Lot(offering_id=run.offering_id)
    changes = [
        _Change(
            run=run,
            target=Lot(offering_id=lot.offering_id),
            grows=False,
            id_part=f"command:{job_id}:{lot.offering_id}",
        )
        for lot in run.held_lots
        if lot.offering_id != target.offering_id
    ]
    before = run.held_at(target.offering_id)
    if move is not None or before != holding_of(lots):
        changes.append(
            _Change(
                run=run,
                target=target,
                grows=target.spot > before.spot or target.on_demand > before.on_demand,
                id_part=f"command:{job_id}",
                transfer_cost_micro_usd=move.cost_micro_usd if move is not None else 0,
            )
        )
    return changes


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
    holding = holding_of(answer.lots)
    moved = f", moved from {answer.move.from_offering_id}" if answer.move is not None else ""
    slack_s = run.slack_slots(state.slot) * run.compiled.slot_s
    return (
        f"{holding.spot} spot + {holding.on_demand} on-demand by {answer.policy_id}: "
        f"{answer.reason.value.replace('_', ' ')}, slack {slack_s / 3600:.1f} h{moved}"
    )
