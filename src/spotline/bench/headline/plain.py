"""Spot with plain recovery: what people run who have a script that launches again what was lost.

A job wants its largest count of spot, all or nothing. Where it is taken back it is launched again in
the cheapest zone that grants the whole of it, and works on from its checkpoint; where no zone does, it
waits. It knows no deadline, buys nothing on demand, and ends when it is done or worth nothing any
more. It is served better than a real one: it sees what there is at the opening of a slot, no launch of
it is refused, and nothing is taken back within a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spotline.application.selector.egress import copied_micro_usd
from spotline.application.selector.options import SelectorOptions
from spotline.bench.fleet.instance import programs_of
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import IDLE, Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.market import Market
from spotline.domain.units import cost_micro_usd
from spotline.replay.course import first_slot

_NOWHERE = -1


@dataclass(slots=True, kw_only=True)
class PlainLife:
    """A job under plain recovery. `done_slot` is the slot in which it was done, -1: it was not."""

    job: Job
    first: int
    programs: tuple[JobProgram | None, ...]
    home: int = _NOWHERE
    last: int = _NOWHERE
    progress: JobProgress = field(default_factory=JobProgress)
    cost_micro_usd: int = 0
    losses: int = 0
    done_slot: int = _NOWHERE

    @property
    def is_done(self) -> bool:
        """Whether it was done while it was worth something."""
        return self.done_slot >= 0

    def is_on_time(self) -> bool:
        """Whether it was done by its deadline."""
        program = next(one for one in self.programs if one is not None)
        return self.is_done and self.done_slot - self.first < program.deadline_slots

    def lives(self, slot: int) -> bool:
        """Whether it runs or waits in a slot."""
        program = next(one for one in self.programs if one is not None)
        return self.first <= slot < self.first + program.end_slots and not self.is_done


def plain_recovery(
    market: Market, jobs: Sequence[Job], options: SelectorOptions
) -> tuple[PlainLife, ...]:
    """Run all jobs on a market that they share; who came first keeps what it holds.

    `options` say what copying a checkpoint to another place costs. Returned in the order of `jobs`.
    """
    lives = tuple(
        PlainLife(job=job, first=first_slot(market, job), programs=programs_of(market, job))
        for job in jobs
    )
    in_turn = sorted(lives, key=lambda life: (life.first, life.job.job_id))
    for slot in range(market.slots):
        left = [int(count) for count in market.spot_available[slot]]
        there = [life for life in in_turn if life.lives(slot)]
        taken = [life for life in there if life.home >= 0 and not _keeps(life, left)]
        for life in taken:
            life.losses += 1
            life.home = _NOWHERE
        for life in there:
            if life.home < 0:
                life.home = _granted(life, left, market.spot_price_micro_usd[slot])
            _live(life, market, slot, options, lost=life in taken)
    return lives


def _keeps(life: PlainLife, left: list[int]) -> bool:
    """Take what a job holds out of what is left; False: some of it is gone, and with it all."""
    count = life.progress.holding.spot
    if left[life.home] < count:
        return False
    left[life.home] -= count
    return True


def _granted(life: PlainLife, left: list[int], prices: Sequence[int]) -> int:
    """The cheapest zone that has the whole count left; -1: none has."""
    count = life.job.max_instances
    fits = [
        column
        for column, program in enumerate(life.programs)
        if program is not None and left[column] >= count
    ]
    if not fits:
        return _NOWHERE
    home = min(fits, key=lambda column: (int(prices[column]), column))
    left[home] -= count
    return home


def _live(
    life: PlainLife, market: Market, slot: int, options: SelectorOptions, *, lost: bool
) -> None:
    """Let a job run through a slot where it is, or wait."""
    at = life.home if life.home >= 0 else life.last
    if at < 0:
        return
    program = life.programs[at]
    if program is None:
        raise ValueError(f"{life.job.job_id} cannot run on {market.offerings[at].offering_id}")
    if life.home >= 0 and life.last >= 0 and life.home != life.last:
        pending_s = max(life.progress.pending_overhead_s, life.job.overheads.migrate_s)
        life.progress = replace(life.progress, pending_overhead_s=pending_s)
        here, there = market.offerings[life.last], market.offerings[life.home]
        life.cost_micro_usd += copied_micro_usd(life.job, here, there, options)
    count = life.job.max_instances if life.home >= 0 else 0
    holding = Holding(spot=count) if count else IDLE
    life.progress = advance(program, life.progress, holding, held_s=market.slot_s, interrupted=lost)
    price = int(market.spot_price_micro_usd[slot, at])
    life.cost_micro_usd += cost_micro_usd(price, count, market.slot_s)
    life.last = at
    if life.progress.progress_quanta >= program.work_quanta:
        life.done_slot = slot
