"""A job's life in one future: every slot is decided by what decides it when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.outlook.places import FuturePlace, Left
from spotline.application.selector.egress import copy_micro_usd
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.jobs.program import IDLE
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move
from spotline.domain.policies.interface import START, Memory
from spotline.domain.policies.registry import policy_named
from spotline.domain.solvers.table_spec import TableUse
from spotline.domain.units import NS_PER_S, PPM, cost_micro_usd

_MODEL_ID = "law"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a job stands as the first slot of its futures opens.

    Slots of its life are counted from its first, which opens at `first_slot_start_ns`: it has had
    `elapsed_slots`. It looks into the tables of the offerings `tabled` from slot `tables_from` of
    its life on.
    """

    home: str
    policy_id: str
    first_slot_start_ns: int
    tabled: tuple[str, ...] = ()
    elapsed_slots: int = 0
    state: JobProgress = field(default_factory=JobProgress)
    memory: Memory = START
    spent_micro_usd: int = 0
    egress_micro_usd: int = 0
    launched: bool = False
    tables_from: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeAhead:
    """How a job fares in one future: `finished_slot` counts from 1 in its life, 0: never.

    `progress_ppm` is the work done at the end of each slot that was lived through.
    """

    home: str
    policy_id: str
    cost_micro_usd: int
    value_micro_usd: int
    finished_slot: int
    on_time: bool
    moves: int
    progress_ppm: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Now:
    """What changes from slot to slot."""

    home: str
    state: JobProgress
    memory: Memory
    spent: int
    egress: int
    launched: bool
    moves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureCourse:
    """What is the same in every slot of every future.

    `waits` slots of the futures pass before the job's first.
    """

    state: SelectorState
    job: Job
    places: Mapping[str, FuturePlace]
    options: SelectorOptions
    next_slot_start_ns: int
    waits: int = 0


def live_alone(course: FutureCourse, begins: Beginning, future: int) -> LifeAhead:
    """Run a job to its end, or to where the futures end."""
    life = FutureLife(course, begins, future)
    while not life.over:
        life.hold(life.decided(life.offers()))
    return life.result()


class FutureLife:
    """A job in one future, slot by slot: `decided` says what it would hold, `hold` goes on.

    `at` is the slot of the futures, `elapsed` that of the job's life.
    """

    def __init__(self, course: FutureCourse, begins: Beginning, future: int) -> None:
        self.course = course
        self.begins = begins
        self.at = course.waits
        self.elapsed = begins.elapsed_slots
        self._future = future
        self._now = _Now(
            home=begins.home,
            state=begins.state,
            memory=begins.memory,
            spent=begins.spent_micro_usd,
            egress=begins.egress_micro_usd,
            launched=begins.launched,
        )
        self._finished = self.elapsed if self._done else 0
        self._progress_ppm: list[int] = []
        self._slots = next(iter(course.places.values())).spot.shape[1]

    @property
    def _place(self) -> FuturePlace:
        return self.course.places[self._now.home]

    @property
    def _done(self) -> bool:
        return self._now.state.progress_quanta >= self._place.program.work_quanta

    @property
    def over(self) -> bool:
        """Whether nothing more happens: it is done, or there is no time left."""
        late = self.elapsed >= self._place.program.end_slots or self.at >= self._slots
        return bool(self._finished) or late

    @property
    def slack_slots(self) -> int:
        """As `JobRun.slack_slots`."""
        program = self._place.program
        left = program.work_quanta - self._now.state.progress_quanta
        needed = program.slots_on_demand(left, program.launch_s)
        return program.deadline_slots - self.elapsed - needed

    def offers(self) -> dict[str, Left]:
        """What the future has in this slot wherever the job can run."""
        return {
            offering_id: Left(
                int(place.spot[self._future, self.at]), int(place.on_demand[self._future, self.at])
            )
            for offering_id, place in self.course.places.items()
        }

    def decided(self, left: Mapping[str, Left]) -> JobAnswer:
        """What it would hold of what is left."""
        (answer,) = allocate(self._request(left)).answers
        return answer

    def cost_micro_usd(self, answer: JobAnswer) -> int:
        """What an answer costs in this slot, a move with it."""
        if not answer.lots:
            return 0
        place = self.course.places[answer.lots[0].offering_id]
        held, slot_s = holding_of(answer.lots), place.program.slot_s
        spot_price = int(place.spot_price[self._future, self.at])
        cost = cost_micro_usd(spot_price, held.spot, slot_s)
        cost += cost_micro_usd(place.on_demand_price, held.on_demand, slot_s)
        return cost + (0 if answer.move is None else answer.move.cost_micro_usd)

    def hold(self, answer: JobAnswer, left: Mapping[str, Left] | None = None) -> None:
        """Live through the slot on what was decided for it, of what was left."""
        now, place = self._now, self._place
        offered = (left or self.offers())[now.home].spot
        interrupted = now.state.holding.spot > offered
        now.memory = answer.memory
        now.spent += self.cost_micro_usd(answer)
        if answer.move is not None and answer.lots:
            _move(now, answer.lots[0].offering_id, answer.move, interrupted)
            place, interrupted = self._place, False
        held = holding_of(answer.lots) if answer.lots else IDLE
        now.launched = now.launched or held.instances > 0
        slot_s = place.program.slot_s
        now.state = advance(place.program, now.state, held, held_s=slot_s, interrupted=interrupted)
        self.at += 1
        self.elapsed += 1
        done = now.state.progress_quanta * PPM // place.program.work_quanta
        self._progress_ppm.append(min(PPM, done))
        if self._done:
            self._finished = self.elapsed

    def result(self) -> LifeAhead:
        """How it fared."""
        program, finished = self._place.program, self._finished
        # One that begins when its life is over is worth nothing, done or not.
        in_time = 0 < finished <= program.end_slots
        return LifeAhead(
            home=self.begins.home,
            policy_id=self.begins.policy_id,
            cost_micro_usd=self._now.spent,
            value_micro_usd=program.value_micro_usd[finished] if in_time else 0,
            finished_slot=finished,
            on_time=0 < finished <= program.deadline_slots,
            moves=self._now.moves,
            progress_ppm=tuple(self._progress_ppm),
        )

    def _request(self, left: Mapping[str, Left]) -> AllocateRequest:
        course, begins, now = self.course, self.begins, self._now
        future, at, elapsed = self._future, self.at, self.elapsed
        place = self._place
        ts_ns = course.next_slot_start_ns + at * place.program.slot_s * NS_PER_S
        use = _table_use(place, begins, future, at, elapsed)
        alternatives: tuple[Alternative, ...] = ()
        if use is not None and course.options.moves:
            alternatives = _alternatives(course, begins, now, future, at, elapsed)
        named = [place, *(course.places[other.offering_id] for other in alternatives)]
        task = JobTask(
            job=course.job,
            policy_id=begins.policy_id,
            offering_id=now.home,
            instance_type=place.offering.instance_type,
            first_slot_start_ns=begins.first_slot_start_ns,
            elapsed_slots=elapsed,
            progress_quanta=now.state.progress_quanta,
            holding=Lot(
                offering_id=now.home,
                spot=now.state.holding.spot,
                on_demand=now.state.holding.on_demand,
            ),
            interrupted=False,
            pending_overhead_s=now.state.pending_overhead_s,
            spent_micro_usd=now.spent,
            memory=now.memory,
            spot_firm=course.options.spot_firm,
            table_use=use,
            alternatives=alternatives,
            on_demand_reserve_slots=place.reserve_slots,
            rescue_instances=place.rescue_instances,
            unsaved_quanta=now.state.unsaved_quanta,
            notice_lead_s=place.lead_s,
        )
        issued = None
        if policy_named(begins.policy_id).forecast_slots:
            found = (each.forecast(future, at) for each in named)
            forecasts = tuple(forecast for forecast in found if forecast is not None)
            issued = ForecastIssued(slot=at, model_id=_MODEL_ID, forecasts=forecasts, scores=())
        laws: dict[str, NamedLaw] = {}
        for each in named:
            if each.table is not None:
                laws[each.table.named.law_id] = each.table.named
        return AllocateRequest(
            slot=at,
            revision=0,
            offset_s=0,
            slot_s=place.program.slot_s,
            quotes=tuple(
                each.quote(future, at, ts_ns, left[each.offering.offering_id]) for each in named
            ),
            forecast=issued,
            reason=DecisionReason.POLICY,
            tasks=(task,),
            laws=tuple(laws.values()) if use is not None else (),
        )


def _move(now: _Now, home: str, move: Move, interrupted: bool) -> None:
    """As `JobRun.move`: what was held is released, the overhead pending, the copy paid."""
    state = now.state.fallen() if interrupted else now.state
    now.state = JobProgress(
        progress_quanta=state.progress_quanta, pending_overhead_s=move.overhead_s
    )
    now.home = home
    now.moves += now.launched
    now.egress += move.cost_micro_usd


def _table_use(
    place: FuturePlace, begins: Beginning, future: int, at: int, elapsed: int
) -> TableUse | None:
    if elapsed < begins.tables_from or place.offering.offering_id not in begins.tabled:
        return None
    if place.table is None or place.run_state is None:
        return None
    return TableUse(table=place.table.spec, run_state=int(place.run_state[future, at]))


def _alternatives(
    course: FutureCourse, begins: Beginning, now: _Now, future: int, at: int, elapsed: int
) -> tuple[Alternative, ...]:
    """Where the job could go, as the selector offers it; never to a reservation."""
    found = []
    for offering_id in begins.tabled:
        place = course.places[offering_id]
        if offering_id == now.home or not place.spot_known:
            continue
        if place.offering.reservation is not None:
            continue
        use = _table_use(place, begins, future, at, elapsed)
        if use is None:
            continue
        overhead_s, cost = place.program.launch_s, 0
        if now.launched:
            overhead_s = max(overhead_s, course.job.overheads.migrate_s)
            cost = copy_micro_usd(course.state, course.job, now.home, offering_id, course.options)
            if _held_back(course, now, offering_id, cost):
                continue
        found.append(
            Alternative(
                offering_id=offering_id,
                instance_type=place.offering.instance_type,
                table_use=use,
                migrate_s=overhead_s,
                move_cost_micro_usd=cost,
                on_demand_reserve_slots=place.reserve_slots,
                rescue_instances=place.rescue_instances,
                notice_lead_s=place.lead_s,
            )
        )
    return tuple(found)


def _held_back(course: FutureCourse, now: _Now, offering_id: str, cost: int) -> bool:
    """As `egress.held_back`, for a job that has been launched."""
    job = course.job
    here, there = course.places[now.home].offering, course.places[offering_id].offering
    leaves_region = (here.provider, here.region) != (there.provider, there.region)
    if leaves_region and job.run is not None and not job.checkpoint.size_gb:
        return True
    cap = job.egress_cap_micro_usd
    return cap is not None and cost > 0 and now.egress + cost > cap
