"""Until when on-demand alone can still be begun in time, and what is done at the present pace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from spotline.application.board.entry import BoardEntry
from spotline.application.market_view import MarketFold
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.program import Holding, JobProgram, compile_program
from spotline.domain.jobs.progress import overhead_s
from spotline.domain.units import NS_PER_S, PPM, WorkScale


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """How a job is for time at `now_ns`.

    `latest_start_ns` is when on-demand alone must have begun (0: nowhere can it run),
    `done_at_ns` when the work is done with what it holds now (0: it holds nothing that is known).
    """

    now_ns: int = 0
    latest_start_ns: int = 0
    done_at_ns: int = 0

    @property
    def slack_s(self) -> int:
        """Seconds until the latest start; negative: it is over. 0 where it can run nowhere."""
        return (self.latest_start_ns - self.now_ns) // NS_PER_S if self.latest_start_ns else 0


def pace_of(entry: BoardEntry, job: Job, market: MarketFold, now_ns: int) -> JobPace:
    """Work a job's pace out from what it has done and holds.

    Of all offerings that it can run on and counts that it is allowed, the fastest counts; the
    whole slots that it takes are those that the selector reckons with. At home the overhead is
    that of changing what it holds, elsewhere that of a migration. What a job that trains has done
    since its work was counted last is not known; its slack is taken to have stayed the same.
    """
    if not market.slot_s:
        return JobPace(now_ns=now_ns)
    worked_ns = now_ns - _counted_ns(entry, now_ns, market.slot_s * NS_PER_S)
    first_ns = _first_slot_start_ns(entry, job, market)
    left = work_left_quanta(entry, job)
    latest_ns = done_at_ns = 0
    lots = {lot.offering_id: lot for lot in entry.held}
    empty: set[tuple[Throughput, int | None, bool, bool]] = set()
    for offering in market.offerings:
        throughput = job.throughput_on(offering.offering_id, offering.instance_type)
        if throughput is None:
            continue
        lead_s = planned_lead_s(job, offering.notice_lead_s)
        away = entry.launched and offering.offering_id != entry.offering_id
        if offering.offering_id not in lots:
            # Where it holds nothing, places that differ in nothing else are all the same to it.
            alike = throughput, lead_s, away, offering.reservation is None
            if alike in empty:
                continue
            empty.add(alike)
        program = _program(job, throughput, lead_s, market.slot_s, first_ns)
        held = holding_of([lot for lot in entry.held if lot.offering_id == offering.offering_id])
        rate = program.rate_quanta_per_s[min(held.instances, program.max_instances)]
        if rate:
            done_at_ns = now_ns - worked_ns + -(-left // rate) * NS_PER_S
        if offering.reservation is None:
            slots = min(_slots_needed(job, program, held, left, away=away))
            ends_ns = first_ns + (program.deadline_slots - slots) * market.slot_s * NS_PER_S
            latest_ns = max(latest_ns, ends_ns)
    return JobPace(
        now_ns=now_ns,
        latest_start_ns=latest_ns + worked_ns if latest_ns else 0,
        done_at_ns=done_at_ns if left else 0,
    )


@lru_cache(maxsize=4096)
def _program(
    job: Job,
    throughput: Throughput,
    notice_lead_s: int | None,
    slot_s: int,
    first_slot_start_ns: int,
) -> JobProgram:
    """The job at a throughput; kept apart from the programs that decisions ask for again and again."""
    return compile_program(
        job,
        throughput,
        slot_s=slot_s,
        first_slot_start_ns=first_slot_start_ns,
        notice_lead_s=notice_lead_s,
    )


def _counted_ns(entry: BoardEntry, now_ns: int, slot_ns: int) -> int:
    """The moment to which its work done belongs: now where it does none."""
    if not (entry.trains_ns and entry.held):
        return now_ns
    return min(now_ns, max(entry.progress_ns, entry.trains_ns, now_ns - slot_ns))


def work_left_quanta(entry: BoardEntry, job: Job) -> int:
    """Work that is left, by what the decisions count or its program says."""
    scale = WorkScale.for_amount(job.work.amount)
    whole = scale.quanta_from_work(job.work.amount)
    if entry.done is not None and entry.is_run:
        return max(0, whole - scale.quanta_from_work(entry.done))
    return whole - whole * entry.progress_ppm // PPM


def _slots_needed(
    job: Job, program: JobProgram, held: Holding, left: int, *, away: bool
) -> list[int]:
    needed = []
    for count in program.allowed_counts:
        if program.rate_quanta_per_s[count] < 1:
            continue
        first_s = overhead_s(program, held, Holding(on_demand=count))
        if away:
            first_s = max(first_s, job.overheads.migrate_s)
        needed.append(program.slots_on_demand(left, first_s, instances=count))
    return needed or [program.deadline_slots + 1]


def _first_slot_start_ns(entry: BoardEntry, job: Job, market: MarketFold) -> int:
    """When its life on the slot grid begins: a job that was not taken up yet begins next."""
    if entry.first_slot >= 0:
        return entry.first_slot_start_ns
    view = market.view()
    return market.first_slot_start_ns if view is None else view.first_slot(job)[1]
