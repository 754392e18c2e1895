"""The selector in a closed loop, over a whole market."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from spotline.application.allocator.handler import JobsHandler
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Call
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobOutcome, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.policies.replay import Clairvoyant, SlotRecord, clairvoyant_optimum
from spotline.domain.units import NS_PER_S
from spotline.replay.clouds import TellingCloud
from spotline.replay.course import MarketCourse
from spotline.replay.host import Answer, LocalHost
from spotline.replay.parts import ExactCloud, KnownForecasts, WatchedSelector
from spotline.replay.summary import JobLife


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRun:
    """A run of the selector over the whole market."""

    watched: WatchedSelector
    state: SelectorState
    deciding_s: float

    def lives(self, jobs: Sequence[Job]) -> list[JobLife]:
        """How the jobs fared, in order."""
        lives = []
        for job in jobs:
            closed = self.watched.closed[job.job_id]
            lives.append(
                JobLife(
                    job_id=job.job_id,
                    policy_id=closed.policy_id,
                    cost_micro_usd=closed.cost_micro_usd,
                    value_micro_usd=closed.value_micro_usd,
                    most_value_micro_usd=job.value_micro_usd,
                    on_time=closed.outcome is JobOutcome.COMPLETED,
                    moves=self.state.runs[job.job_id].moves,
                    advances=tuple(self.watched.advances.get(job.job_id, ())),
                )
            )
        return lives

    def moved(self, job_id: str) -> bool:
        """Whether a job ever ran elsewhere than where it began."""
        run = self.state.runs[job_id]
        return run.moves > 0 or run.offering_id != run.first_offering_id

    def optimum(self, job_id: str) -> Clairvoyant:
        """The best there was on what the job was offered where it was, moving being free."""
        run = self.state.runs[job_id]
        program = run.compiled
        if run.mixed:
            # A bound for a job that ran at several rates: the best of them all the time.
            homes = [self.state.program_of(run.job, home) for home in self.watched.tables[job_id]]
            rates = zip(*(home.rate_quanta_per_s for home in homes), strict=True)
            program = replace(program, rate_quanta_per_s=tuple(max(at) for at in rates))
        return clairvoyant_optimum(
            program, padded(program, self.watched.offered_to(self.state, job_id))
        )


def padded(program: JobProgram, records: Sequence[SlotRecord]) -> tuple[SlotRecord, ...]:
    """What was offered, carried on to the job's end as the selector's feedback does.

    After the deadline only on-demand runs, so no spot is offered, and its price is taken to stay.
    """
    short = program.end_slots - len(records)
    if short <= 0 or not records:
        return tuple(records)
    return (*records, *[replace(records[-1], spot_available=0)] * short)


def run_selector(
    course: MarketCourse,
    jobs: Sequence[Job],
    handler: SelectHandler,
    answer: Answer,
    seed: int,
    *,
    cloud: ExactCloud | TellingCloud | None = None,
    settled: Callable[[SelectorState], None] | None = None,
) -> SelectorRun:
    """Run jobs through a selector over a market, in a cloud that is exact unless it is given.

    `settled` is shown the selector's state after every slot; it must not change it.
    """
    market = course.market
    watched = WatchedSelector(handler)
    deciding_s = 0.0

    def timed(call: Call) -> Sequence[Event]:
        nonlocal deciding_s
        began_s = perf_counter()
        answers = answer(call)
        deciding_s += perf_counter() - began_s
        return answers

    host = LocalHost(
        [KnownForecasts(course.issued), watched, JobsHandler(), cloud or ExactCloud()],
        answers={ALLOCATE_CALL: timed},
        run=f"simulate:{seed}",
    )
    opened = MarketOpened(
        offerings=market.offerings,
        slot_s=market.slot_s,
        first_slot_start_ns=market.start_ns,
        source=market.source,
    )
    host.publish(opened, source="market_ingest")
    for job in jobs:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    for slot in course.slots:
        host.publish(slot, source="market_ingest")
        if settled is not None:
            settled(host.state_of("selector"))
    # One opening more settles the last slot and closes the jobs that ended in it.
    host.publish(_closing(course.slots[-1]), source="market_ingest")
    return SelectorRun(watched=watched, state=host.state_of("selector"), deciding_s=deciding_s)


def _closing(last: SlotOpened) -> SlotOpened:
    return replace(last, slot=last.slot + 1, ts_event_ns=last.ts_event_ns + last.slot_s * NS_PER_S)
