"""One job as the selector follows it: from its submission to the feedback it gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from spotline.application.selector.job_table import JobTable
from spotline.domain.beliefs.count_paths import CountPaths
from spotline.domain.events.lifecycle import JobExited, JobOutcome, JobProgressReported
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.events.training import CheckpointCommitted, TrainingRestarted
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot, holding_of, lot_of
from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.jobs.run import ProgressSource
from spotline.domain.ledger.billing import OfferingPrice, lots_cost_micro_usd
from spotline.domain.limits.judgement import FORWARD, limit_micro_usd, planned_budget_micro_usd
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import Move
from spotline.domain.policies.interface import START, Memory
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.units import PPM, WorkScale

# Every checkpoint of a generation is newer than where it began.
_BEFORE_ITS_FIRST = -1


class RunPhase(Enum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStretch:
    """What was held from `offset_s` into the slot on."""

    offset_s: int
    holding: Holding
    interrupted: bool


@dataclass(slots=True, kw_only=True)
class JobRun:
    """Mutable state of one job; only the selector's `evolve` touches it.

    `offering_id` is the job's home, where it runs or ran last, `first_offering_id` where it was
    admitted. `state` stands at the opening of the current slot, `held_lots` is what the cloud last
    reported, `target` what was last decided for the home, `in_doubt` the slot of the latest launch of
    unknown outcome by offering: something may turn up there. `tables` are by offering. `records` are
    what the job was offered at its home of each slot; once it has moved to where it runs at other
    rates, or its owner has changed it (`mixed`), they are those of no one job; `paths` are where their
    sampled counts stand. `moves` counts those
    that copied a checkpoint, which has cost `egress_micro_usd` in all, `transfer_cost_micro_usd` of
    it in this slot; probes for it have cost `probed_micro_usd` in this slot. It was `copied_in_vain` if a limit refused all that it moved for and it has held nothing since.

    `generation` is the latest start of the program that was heard of, `saved_quanta` what its
    newest checkpoint holds, written by `saved_at` (generation and step) where that is known,
    `ended_generation` the latest that exited. Of a program that Spotline runs, `has_moved` says that
    it was told to have gone on in this slot, `stands_still` that it should have in the last and has not. With an `ending` the job is
    closed by the next revision. After `failure`, which waits for its retry to be scheduled, it
    holds nothing before `not_before_ns`. It has been finishing since slot `finishing_since` (-1).

    `on_demand_quote_micro_usd` is what all of it would have cost on on-demand when it was admitted;
    it `is_limited` if limits were on then. `at_limit` is the last that was said of a limit that it
    has reached. `rate_reports` counts reports of its progress, by which its rates are known. It was `left_alone` if it ran in slots that nobody opened.
    """

    job: Job
    phase: RunPhase = RunPhase.PENDING
    offering_id: str = ""
    first_offering_id: str = ""
    policy_id: str = ""
    program: JobProgram | None = None
    first_slot: int = -1
    first_slot_start_ns: int = 0
    state: JobProgress = field(default_factory=JobProgress)
    held_lots: tuple[Lot, ...] = ()
    launched: bool = False
    moves: int = 0
    mixed: bool = False
    yielded: bool = False
    left_alone: bool = False
    target: Holding = IDLE
    in_doubt: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    memory: Memory = START
    spent_micro_usd: int = 0
    transfer_cost_micro_usd: int = 0
    egress_micro_usd: int = 0
    probed_micro_usd: int = 0
    copied_in_vain: bool = False
    last_slot_cost_micro_usd: int = 0
    last_slot_lots: tuple[Lot, ...] = ()
    segments: list[HeldStretch] = field(default_factory=list)
    records: list[SlotRecord] = field(default_factory=list)
    paths: CountPaths | None = None
    tables: dict[str, JobTable] = field(default_factory=dict)
    reported_quanta: int | None = None
    generation: int = 0
    saved_quanta: int | None = None
    saved_at: tuple[int, int] = (0, 0)
    has_moved: bool = False
    stands_still: bool = False
    ended_generation: int = 0
    ending: JobOutcome | None = None
    failure: JobExited | None = None
    retry: int = 0
    not_before_ns: int = 0
    finishing_since: int = -1
    cancelled: bool = False
    outcome: JobOutcome | None = None
    fed_back: bool = False
    on_demand_quote_micro_usd: int = 0
    is_limited: bool = False
    at_limit: LimitReached | None = None
    rate_reports: int = 0

    @property
    def compiled(self) -> JobProgram:
        """The program of an admitted job."""
        if self.program is None:
            raise ValueError(f"job {self.job.job_id} has not been admitted")
        return self.program

    @property
    def is_run(self) -> bool:
        """Whether Spotline runs its program, so that what it does is told."""
        return self.job.run is not None

    @property
    def saves_with_us(self) -> bool:
        """Whether its program speaks through the library, which tells every checkpoint."""
        run = self.job.run
        if run is None:
            return False
        return run.progress is None or run.progress.source is ProgressSource.SDK

    @property
    def saved(self) -> int | None:
        """What its newest checkpoint holds, quanta; None: it is not known."""
        if self.saved_quanta is None and self.saves_with_us:
            return 0
        return self.saved_quanta

    @property
    def teaches(self) -> bool:
        """Whether what it is offered is still to be kept, for feedback that will come.

        A job that never started, was cancelled, failed, was several jobs (`mixed`), `yielded` spot or
        was `left_alone` gives none when it is over: no policy chose how it ended.
        """
        if self.program is None or self.fed_back:
            return False
        return self.phase is not RunPhase.CLOSED or not self.is_spoilt

    @property
    def is_spoilt(self) -> bool:
        """Whether no one replay says what another policy would have made of what it was offered."""
        return self.was_cut_short or self.mixed or self.yielded or self.left_alone

    @property
    def was_cut_short(self) -> bool:
        """Whether its owner, its program or a limit ended it: no policy had a part in that."""
        stopped = self.is_limited and self.outcome is JobOutcome.STOPPED_BY_LIMIT
        return self.cancelled or stopped or JobOutcome.FAILED in (self.ending, self.outcome)

    @property
    def limit_micro_usd(self) -> int:
        """What it may spend before its limit is reached; 0 where limits are off."""
        if not self.is_limited:
            return 0
        return limit_micro_usd(self.job, self.on_demand_quote_micro_usd)

    @property
    def is_at_limit(self) -> bool:
        """Whether it has reached a limit and no policy decides it: it winds down, or is not worth it.

        One that waits for more of a budget is asked on: spot may become cheap enough for the rest.
        """
        said = self.at_limit
        if said is None:
            return False
        waits = said.action is LimitAction.WAIT and said.limit == FORWARD
        return said.action is LimitAction.WIND_DOWN or waits

    def planned(self, job: Job) -> Job:
        """The job as policies plan it: with the budget that is left to them."""
        if not self.is_limited:
            return job
        return replace(job, budget_micro_usd=planned_budget_micro_usd(job))

    @property
    def held(self) -> Holding:
        """What the cloud last reported to be held at the home."""
        return self.held_at(self.offering_id)

    def held_at(self, offering_id: str) -> Holding:
        """What the cloud last reported to be held of an offering."""
        if not self.held_lots:
            return IDLE
        return holding_of([lot for lot in self.held_lots if lot.offering_id == offering_id])

    def forget_offers(self) -> None:
        """Let go of what only feedback needed: it has come, or none will."""
        self.records, self.paths = [], None
        self.tables = {}

    def table_in(self, slot: int, offering_id: str) -> JobTable | None:
        """The value table that decisions of a slot name, None while it is being built.

        That is the slot in which it was asked for: the job's first, or that of new rates. A shared
        one is named only behind the slot in which it was announced, so that no decision builds one.
        """
        table = self.tables.get(offering_id)
        if table is None or table.stale:
            return None
        return table.named_in(slot) if slot > self.first_slot else None

    def change(self, job: Job, program: JobProgram | None) -> None:
        """Go on as the job that its owner has made of it; all its tables are of the old one.

        It gives no feedback: what it was offered until now was offered to another job.
        """
        self.job = job
        # Another value, budget or choice is judged anew.
        self.at_limit = None
        if program is None or program == self.program:
            return
        self.program = program
        self.mixed = True
        self.memory = START
        for table in self.tables.values():
            table.stale = True

    def believe(self, job: Job, program: JobProgram | None, outdated: Iterable[str]) -> None:
        """Go on with the job at other rates or overheads; tables of `outdated` are of the old ones.

        Work done stays as it is: it is counted in quanta of the work, which is the same.
        """
        self.job = job
        for offering_id in outdated:
            if offering_id in self.tables:
                self.tables[offering_id].stale = True
        if program is not None and program != self.program:
            self.program = program
            # Plans that a policy remembers were made with what was believed before.
            self.memory = START

    def move(self, offering_id: str, program: JobProgram, move: Move) -> None:
        """Make another offering the home, as the open slot's first act.

        What was held is released at once, the overhead is pending, the checkpoint's copy is paid.
        """
        if program != self.compiled:
            self.mixed = True
        self.offering_id = offering_id
        self.program = program
        self.state = JobProgress(
            progress_quanta=self.state.progress_quanta, pending_overhead_s=move.overhead_s
        )
        self.segments = []
        self.moves += self.launched
        self.transfer_cost_micro_usd += move.cost_micro_usd
        self.egress_micro_usd += move.cost_micro_usd

    @property
    def is_finishing(self) -> bool:
        """Whether all work is done, and the program is awaited to end."""
        done = self.program is not None and self.state.progress_quanta >= self.program.work_quanta
        return done and self.job.awaits_exit

    def waits_at(self, ts_ns: int) -> bool:
        """Whether the job waits for its retry at a moment; one that failed just now does."""
        return self.failure is not None or self.not_before_ns > ts_ns

    def fail_at(self, offset_s: int) -> None:
        """Nothing runs from this moment of the slot on, and what was not saved is lost."""
        if offset_s:
            self.place(HeldStretch(offset_s=offset_s, holding=IDLE, interrupted=True))
        else:
            self.state = self.state.fallen()
        self._fall_to_saved()

    def elapsed_slots(self, slot: int) -> int:
        """Slots of the job's life before `slot`."""
        return slot - self.first_slot

    def slack_slots(self, slot: int) -> int:
        """Slots to the deadline beyond those that on-demand alone still needs."""
        program = self.compiled
        left = program.work_quanta - self.state.progress_quanta
        needed = program.slots_on_demand(left, program.launch_s)
        return program.deadline_slots - self.elapsed_slots(slot) - needed

    def note_progress(self, report: JobProgressReported) -> None:
        """Take the platform's word for the work done.

        Of the present generation the latest report counts, so that work done may fall; what is
        said of no generation is the greatest there is.
        """
        scale = WorkScale.for_amount(self.job.work.amount)
        quanta = scale.quanta_from_work(report.done)
        if report.generation < self.generation:
            return
        self.rate_reports += 1
        if report.generation == 0:
            self.has_moved |= quanta > (self.reported_quanta or 0)
            self.reported_quanta = max(quanta, self.reported_quanta or 0)
            return
        if report.generation > self.generation:
            self.generation = report.generation
            if not self.is_run:
                # A program starts from what was saved: that much it cannot lose.
                self.saved_quanta = None
        self.has_moved |= quanta > (self.reported_quanta or 0)
        self.reported_quanta = quanta
        if report.checkpointed is not None:
            told = scale.quanta_from_work(report.checkpointed)
            # Where its checkpoints are told one by one, a report may lag behind them.
            known = self.saved_quanta or 0 if self.is_run else 0
            self.saved_quanta = min(quanta, max(told, known))

    def note_saved(self, event: CheckpointCommitted) -> None:
        """Take a checkpoint, unless a newer one is known already."""
        at = (event.generation, event.step)
        if not self.is_run or at <= self.saved_at:
            return
        self.saved_at = at
        self.saved_quanta = WorkScale.for_amount(self.job.work.amount).quanta_from_work(event.done)
        if event.generation >= self.generation:
            # Saved work is done work, whether or not it was reported yet.
            told = self.reported_quanta or 0 if event.generation == self.generation else 0
            self.generation = event.generation
            self.has_moved |= self.saved_quanta > (self.reported_quanta or 0)
            self.reported_quanta = max(told, self.saved_quanta)

    def note_restart(self, event: TrainingRestarted) -> None:
        """Take what a start of the program went on from: what is older than it counts no more."""
        at = (event.generation, _BEFORE_ITS_FIRST)
        if not self.is_run or event.generation < self.generation:
            return
        self.has_moved = True
        if not event.resumed_sha256 and not self.saves_with_us:
            # Its checkpoints are its own: it says in its reports where it stands.
            return
        resumed = WorkScale.for_amount(self.job.work.amount).quanta_from_work(event.resumed_done)
        if event.generation > self.generation:
            self.generation = event.generation
            self.reported_quanta = resumed
        if at > self.saved_at:
            self.saved_at = at
            self.saved_quanta = resumed

    def note_loss(self, offset_s: int) -> None:
        """What is not in the newest checkpoint is gone; the next generation says what is left."""
        if not self.compiled.lost_s:
            return
        if self.saved is None and self.is_run and self.reported_quanta is not None:
            # Its checkpoints are its own: it is taken to save as often as it says.
            unsaved = self._through(offset_s)[0].unsaved_quanta
            self.reported_quanta = max(0, self.reported_quanta - unsaved)
        self._fall_to_saved()

    def _fall_to_saved(self) -> None:
        if self.saved is None:
            return
        # A start that fell back to an older checkpoint has less than the newest one holds.
        most = min(self.saved, self.reported_quanta or 0) if self.is_run else self.saved
        self.reported_quanta = most

    def place(self, segment: HeldStretch) -> None:
        """Say what is held from an offset on; a later word on the same offset replaces it."""
        while self.segments and self.segments[-1].offset_s >= segment.offset_s:
            self.segments.pop()
        self.segments.append(segment)

    def state_at(self, offset_s: int) -> JobProgress:
        """Where the job stands `offset_s` seconds into the slot."""
        now = self._through(offset_s)[0]
        if not self.is_run:
            return now
        last = self.segments[-1] if self.segments else None
        if last is not None and last.interrupted and last.offset_s == offset_s:
            # What a loss at this very moment has thrown away is not in what is reported.
            now = now.fallen()
        return self._as_reported(now)

    def settle(self, spot_price: int, on_demand_price: int) -> None:
        """Close the slot: progress and cost of every segment, priced at the slot's quote."""
        program = self.compiled
        before = self.state.progress_quanta
        self.state, held = self._through(program.slot_s)
        runs = self.is_run and self.state.holding.instances > 0
        self.stands_still = runs and not self.has_moved and self.state.progress_quanta > before
        self.has_moved = False
        price = OfferingPrice(
            offering_id=self.offering_id,
            spot_micro_usd=spot_price,
            on_demand_micro_usd=on_demand_price,
        )
        cost = self._cost(held, price, program.slot_s)
        self.transfer_cost_micro_usd = self.probed_micro_usd = 0
        self.state = self._as_reported(self.state)
        self.last_slot_cost_micro_usd = cost
        self.spent_micro_usd += cost
        last = self.state.holding
        self.last_slot_lots = self.lots(last)
        # The next slot opens with what is held now.
        self.segments = []

    def ended_at(self, price: OfferingPrice, offset_s: int) -> tuple[JobProgress, int]:
        """Where the job stands if it ends inside the slot, and what the slot cost it until then."""
        now, held = self._through(offset_s)
        return self._as_reported(now), self._cost(held, price, offset_s)

    def costs_until(
        self, prices: tuple[int, int], offset_s: int
    ) -> tuple[tuple[CapacityType, int], ...]:
        """What the slot has cost until a moment, by capacity type; copying is on-demand's.

        `prices` are those of spot and on-demand.
        """
        price = OfferingPrice(
            offering_id=self.offering_id,
            spot_micro_usd=prices[0],
            on_demand_micro_usd=prices[1],
        )
        _, held = self._through(offset_s)
        spot = [(at_s, self.lots(Holding(spot=holding.spot))) for at_s, holding in held]
        on_spot = self.probed_micro_usd
        on_spot += lots_cost_micro_usd(spot, {self.offering_id: price}, offset_s)
        return (
            (CapacityType.SPOT, on_spot),
            (CapacityType.ON_DEMAND, self._cost(held, price, offset_s) - on_spot),
        )

    def _cost(self, held: list[tuple[int, Holding]], price: OfferingPrice, until_s: int) -> int:
        steps = [(offset_s, self.lots(holding)) for offset_s, holding in held]
        cost = lots_cost_micro_usd(steps, {self.offering_id: price}, until_s)
        return cost + self.transfer_cost_micro_usd + self.probed_micro_usd

    def _as_reported(self, now: JobProgress) -> JobProgress:
        """A live job's own word replaces the formula.

        Of a program that Spotline runs there is no other: without a word it stands still.
        """
        reported = self.reported_quanta
        if reported is None:
            if not self.is_run:
                return now
            reported = 0
        done = min(self.compiled.work_quanta, reported)
        unsaved = now.unsaved_quanta
        if self.saved is not None and self.compiled.lost_s:
            unsaved = max(0, done - self.saved)
        return JobProgress(
            progress_quanta=done,
            holding=now.holding,
            pending_overhead_s=now.pending_overhead_s,
            unsaved_quanta=min(done, unsaved),
        )

    def _through(self, until_s: int) -> tuple[JobProgress, list[tuple[int, Holding]]]:
        state = self.state
        parts = []
        segments = self.segments or [
            HeldStretch(offset_s=0, holding=self.state.holding, interrupted=False)
        ]
        for index, segment in enumerate(segments):
            last = index + 1 == len(segments)
            end_s = until_s if last else min(until_s, segments[index + 1].offset_s)
            held_s = end_s - segment.offset_s
            if held_s <= 0:
                continue
            state = advance(
                self.compiled,
                state,
                segment.holding,
                held_s=held_s,
                interrupted=segment.interrupted,
            )
            parts.append((segment.offset_s, segment.holding))
        return state, parts

    def lots(self, holding: Holding) -> tuple[Lot, ...]:
        """A holding as lots on the job's offering; none when idle."""
        if not holding.instances:
            return ()
        return (lot_of(self.offering_id, holding.spot, holding.on_demand),)

    @property
    def progress_ppm(self) -> int:
        """Share of the work done."""
        return self.state.progress_quanta * PPM // self.compiled.work_quanta
