"""Which jobs are lived through, and for which others each stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.availability import AssumedSpot, assumed_spot
from spotline.application.assessment.prices import CellCalendar, KnownPrices, SpotPrices
from spotline.domain.assessment.facts import RebuiltBill, RebuiltJob
from spotline.domain.units import PPM, cost_micro_usd

IntArray = npt.NDArray[np.int64]

# The work that is planned for is of a ladder of so many steps to the factor e: jobs on one step
# share their tables. What a job costs is scaled to its own work.
_STEPS = 10
# Likewise the price that a plan begins with.
_PRICE_STEPS = 20
# A job is cut into this many slots, or as many more as keep slots within half an hour. One of more
# than a month has longer ones: its table has to stay in bounds.
_SLOTS = 40
_LONGEST_SLOT_S = 1800
_MOST_SLOTS = 1440
_LEAST_WORK_S = 600
HISTORY_CURRENCY = "USD"
"""What price histories are in."""

# Where jobs stand for others, how much coarser classes may be, one after the other.
_COARSER = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, order=True)
class WorkGrid:
    """The work of a job in whole slots: `slots` of `slot_s` seconds."""

    slots: int
    slot_s: int

    @property
    def work_s(self) -> int:
        """All of it, seconds."""
        return self.slots * self.slot_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssessedJob:
    """A job with what it would have cost on demand, and what every line of an answer carries.

    `on_demand_micro` is its gang for all its work at the list price, but for the share that ran on
    commitments; `carried_micro` is what no other way of buying instances changes: traffic and
    disks, launches that failed, and commitments.
    """

    job: RebuiltJob
    list_price_micro: int
    on_demand_micro: int
    carried_micro: int
    assumed: AssumedSpot
    grid: WorkGrid
    prices: SpotPrices
    planned_ppm: int

    @property
    def place(self) -> str:
        """Where its spot is: jobs of one place meet the same futures."""
        machine = self.job.machine
        return "/".join((machine.provider, machine.region, self.prices.zone, machine.instance_type))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAssessed:
    """Jobs that are in no line, and why."""

    why: str
    jobs: int
    micro: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assessable:
    """All jobs that can be assessed, those among them that are lived through, and who stands for whom.

    `stands_in[j]` is the index, in `lived`, of the job that stands for job j; shape (jobs,).
    """

    jobs: tuple[AssessedJob, ...]
    lived: tuple[AssessedJob, ...]
    stands_in: IntArray
    left_out: tuple[NotAssessed, ...]
    calendar: CellCalendar


def grid_of(work_s: int) -> WorkGrid:
    """The step of the ladder that is nearest to some work."""
    step = round(_STEPS * math.log(max(work_s, _LEAST_WORK_S) / _LEAST_WORK_S))
    work = _LEAST_WORK_S * math.exp(step / _STEPS)
    slots = min(_MOST_SLOTS, max(_SLOTS, 10 * math.ceil(work / (10 * _LONGEST_SLOT_S))))
    return WorkGrid(slots=slots, slot_s=max(1, round(work / slots)))


def assessable(bill: RebuiltBill, calendar: CellCalendar, assumptions: Assumptions) -> Assessable:
    """Lay out the jobs of a bill; of more than `most_lived`, some stand for others like them."""
    listed = _list_prices(bill.jobs)
    # No exchange rate is made up.
    series = bill.prices if bill.currency == HISTORY_CURRENCY else ()
    prices = KnownPrices(bill.jobs, series, calendar, assumptions.spot_share_ppm)
    left: dict[str, list[RebuiltJob]] = {}
    found = []
    for job in bill.jobs:
        price = job.list_price_micro or listed.get(job.machine.instance_type, 0)
        why = _cannot(job, price)
        if why:
            left.setdefault(why, []).append(job)
        else:
            found.append(_laid_out(job, price, prices, calendar))
    jobs = tuple(found)
    lived, stands_in = _chosen(jobs, assumptions.most_lived)
    return Assessable(
        jobs=jobs,
        lived=lived,
        stands_in=stands_in,
        left_out=tuple(
            NotAssessed(why=why, jobs=len(those), micro=sum(job.paid_micro for job in those))
            for why, those in sorted(left.items())
        ),
        calendar=calendar,
    )


def _cannot(job: RebuiltJob, list_price_micro: int) -> str:
    if job.instances < 1 or job.work_s < 1:
        return "no work is on the bill: its instances were never all there at once"
    if list_price_micro < 1:
        return "the bill names no list price of its machine"
    return ""


def _list_prices(jobs: Sequence[RebuiltJob]) -> dict[str, int]:
    """A list price by instance type, for jobs without one: the middle one of those that have."""
    seen: dict[str, list[int]] = {}
    for job in jobs:
        if job.list_price_micro > 0:
            seen.setdefault(job.machine.instance_type, []).append(job.list_price_micro)
    return {name: sorted(prices)[(len(prices) - 1) // 2] for name, prices in seen.items()}


def _laid_out(
    job: RebuiltJob, list_price_micro: int, known: KnownPrices, calendar: CellCalendar
) -> AssessedJob:
    own_ppm = PPM - min(PPM, max(0, job.committed_ppm))
    whole = cost_micro_usd(list_price_micro, job.instances, job.work_s)
    # All on commitments: whatever else was paid is no choice of spot or on-demand either.
    carried = job.egress_micro + job.failed_micro + job.committed_micro
    prices = known.of(job, list_price_micro)
    return AssessedJob(
        job=job,
        list_price_micro=list_price_micro,
        on_demand_micro=whole * own_ppm // PPM,
        carried_micro=carried if own_ppm else job.paid_micro,
        assumed=assumed_spot(job.machine, job.instances),
        grid=grid_of(job.work_s),
        prices=prices,
        planned_ppm=_price_step(int(prices.ratio_ppm[calendar.cell_of(job.begin_s)])),
    )


def _price_step(ratio_ppm: int) -> int:
    """The step of a ladder that is nearest to a price."""
    return max(
        1, round(PPM * math.exp(round(_PRICE_STEPS * math.log(ratio_ppm / PPM)) / _PRICE_STEPS))
    )


def _chosen(jobs: tuple[AssessedJob, ...], most: int) -> tuple[tuple[AssessedJob, ...], IntArray]:
    if len(jobs) <= most:
        return jobs, np.arange(len(jobs), dtype=np.int64)
    classes = _classes(jobs, most)
    money = sum(job.on_demand_micro for job in jobs) or 1
    lived: list[AssessedJob] = []
    stands_in = np.zeros(len(jobs), dtype=np.int64)
    for _, members in sorted(classes.items()):
        own = sum(jobs[index].on_demand_micro for index in members)
        wanted = min(len(members), max(1, most * own // money))
        # In order of their begin, so that those who stand in are spread over the bill's time.
        members.sort(key=lambda index: (jobs[index].job.begin_s, jobs[index].job.job_id))
        for part in np.array_split(np.array(members), wanted):
            stands_in[part] = len(lived)
            lived.append(jobs[int(part[len(part) // 2])])
    return tuple(lived), stands_in


def _classes(jobs: tuple[AssessedJob, ...], most: int) -> dict[tuple[object, ...], list[int]]:
    """Jobs of a kind of spot, a place, a step of work and of price; coarser where there are many."""
    classes: dict[tuple[object, ...], list[int]] = {}
    for coarser in _COARSER:
        classes = {}
        for index, job in enumerate(jobs):
            work = int(_STEPS * math.log(max(1, job.grid.work_s))) // coarser
            price = int(_PRICE_STEPS * math.log(job.planned_ppm)) // coarser
            place = job.place if coarser < _COARSER[-1] else ""
            key = (job.assumed, place, work, price)
            classes.setdefault(key, []).append(index)
        if 2 * len(classes) <= most:
            break
    return classes
