"""From rebuilt jobs to an answer: what else they would have cost, and how sure that is.

Equal bills and assumptions give equal answers. Nothing is read but the bill and the prior laws in
the wheel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.application.assessment.answer import (
    Assessment,
    BreakEven,
    JobLine,
    MoneySpread,
    PriceUse,
    PriorUse,
    SlackAnswer,
)
from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.availability import (
    AssumedSpot,
    chains_of,
    shares_by_kind,
    spot_paths,
)
from spotline.application.assessment.living import plain_lives, planned_lives, tables_for
from spotline.application.assessment.prices import CELL_S, CellCalendar, PriceFrom
from spotline.application.assessment.standing_in import Assessable, AssessedJob, assessable
from spotline.domain.assessment.facts import RebuiltBill
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.units import PPM

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Time after the last job in which plain recovery may still wait for spot.
_TAIL_S = 14 * 86_400
# Shares of time with spot at which break-evens are looked for, between none and always.
LADDER = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
_LADDER_FUTURES = 12
_QUANTILES = (0.1, 0.5, 0.9)
# Sums of lives are floating point: what is nearer than this share is equal.
_EQUAL = 1e-9


def assess(bill: RebuiltBill, assumptions: Assumptions) -> Assessment:
    """Say what the jobs of a bill would have cost otherwise."""
    calendar = calendar_of(bill, assumptions)
    known = assessable(bill, calendar, assumptions)
    drawn = _Drawn(calendar, assumptions)
    plain = _plain(known, drawn, assumptions)
    sums = _Sums.of(known)
    answers, middles = [], []
    for slack_ppm in assumptions.slacks_ppm:
        lives = _planned(known, slack_ppm, drawn, assumptions)
        answers.append(_answer(slack_ppm, known, plain, lives))
        middles.append(np.median(lives.ratio, axis=1) if len(known.lived) else np.zeros(0))
    return Assessment(
        bill=bill,
        assumptions=assumptions,
        paid_micro=sums.paid,
        on_demand_micro=sums.carried + int(sums.on_demand.sum()),
        answers=tuple(answers),
        jobs=_job_lines(known, middles),
        lived=len(known.lived),
        left_out=known.left_out,
        priors=_priors_used(known),
        priors_sha256=shipped_priors().sha256,
        prices=_prices_used(known),
    )


def calendar_of(bill: RebuiltBill, assumptions: Assumptions) -> CellCalendar:
    """The cells from the first job on until every job's last deadline, and a tail."""
    begin_s = min((job.begin_s for job in bill.jobs), default=bill.begin_s)
    begin_s -= begin_s % CELL_S
    most = assumptions.slacks_ppm[-1]
    end_s = max(
        (job.begin_s + max(job.work_s, CELL_S) * most // PPM for job in bill.jobs),
        default=bill.begin_s,
    )
    return CellCalendar(
        begin_s=begin_s, cells=(max(end_s, bill.end_s) + _TAIL_S - begin_s) // CELL_S
    )


# --- futures ----------------------------------------------------------------------------------


class _Drawn:
    """When spot is there: in every future by place, and on the ladder of shares."""

    def __init__(self, calendar: CellCalendar, assumptions: Assumptions) -> None:
        self.calendar = calendar
        self._assumptions = assumptions
        self._of_place: dict[tuple[str, AssumedSpot], BoolArray] = {}
        self._of_ladder: dict[AssumedSpot, BoolArray] = {}

    def futures(self, job: AssessedJob) -> BoolArray:
        """Shape (futures, cells)."""
        key = (job.place, job.assumed)
        if key not in self._of_place:
            chains = chains_of(job.assumed)
            ruled = chains.matrices[chains.in_future(self._assumptions.futures)]
            # Gangs of all sizes meet the same chances: what is there for more is there for fewer.
            seed = f"{self._assumptions.seed}\x1f{job.place}"
            self._of_place[key] = spot_paths(ruled, self.calendar.cells, seed)
        return self._of_place[key]

    def ladder(self, job: AssessedJob) -> BoolArray:
        """Futures with no spot, with each share of `LADDER`, and with spot always."""
        assumed = job.assumed
        if assumed not in self._of_ladder:
            chains, cells = chains_of(assumed), self.calendar.cells
            which = chains.in_future(_LADDER_FUTURES)
            seed = f"{self._assumptions.seed}\x1fladder"
            ruled = np.concatenate([chains.scaled(share)[which] for share in LADDER])
            none, always = (np.full((1, cells), there) for there in (False, True))
            paths = (none, spot_paths(ruled, cells, seed, len(LADDER)), always)
            self._of_ladder[assumed] = np.concatenate(paths)
        return self._of_ladder[assumed]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plain:
    ratio: FloatArray
    took: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Planned:
    """`ratio` has the shape (lived, futures), `ladder` (lived, shares with none and always)."""

    ratio: FloatArray
    ladder: FloatArray
    missed: int


def _plain(known: Assessable, drawn: _Drawn, assumptions: Assumptions) -> _Plain:
    shape = (len(known.lived), assumptions.futures)
    ratio, took = np.ones(shape), np.ones(shape)
    for index, job in enumerate(known.lived):
        if job.on_demand_micro:
            lives = plain_lives(job, drawn.futures(job), drawn.calendar, assumptions)
            ratio[index], took[index] = lives.ratio, lives.took
    return _Plain(ratio=ratio, took=took)


def _planned(
    known: Assessable, slack_ppm: int, drawn: _Drawn, assumptions: Assumptions
) -> _Planned:
    futures = assumptions.futures
    ratio = np.ones((len(known.lived), futures))
    ladder = np.ones((len(known.lived), len(LADDER) + 2))
    missed = 0
    at = [i for i, job in enumerate(known.lived) if job.on_demand_micro]
    jobs = [known.lived[index] for index in at]
    for index, table in tables_for(jobs, slack_ppm, assumptions):
        job = jobs[index]
        paths = np.concatenate((drawn.futures(job), drawn.ladder(job)))
        lives = planned_lives(job, table, paths, drawn.calendar)
        ratio[at[index]] = lives.ratio[:futures]
        rungs = lives.ratio[futures + 1 : -1].reshape(len(LADDER), -1).mean(axis=1)
        ladder[at[index]] = (lives.ratio[futures], *rungs, lives.ratio[-1])
        missed += int((~lives.on_time).sum())
    return _Planned(ratio=ratio, ladder=ladder, missed=missed)


# --- sums -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """What each life stands for: money on demand and jobs, shape (lived,); and what is carried."""

    paid: int
    carried: int
    on_demand: IntArray
    jobs: IntArray
    lives_a_future: int

    @classmethod
    def of(cls, known: Assessable) -> _Sums:
        on_demand = np.zeros(len(known.lived), dtype=np.int64)
        jobs = np.zeros(len(known.lived), dtype=np.int64)
        np.add.at(on_demand, known.stands_in, [job.on_demand_micro for job in known.jobs])
        np.add.at(jobs, known.stands_in, [int(job.on_demand_micro > 0) for job in known.jobs])
        return cls(
            paid=sum(job.job.paid_micro for job in known.jobs),
            carried=sum(job.carried_micro for job in known.jobs),
            on_demand=on_demand,
            jobs=jobs,
            lives_a_future=sum(job.on_demand_micro > 0 for job in known.lived),
        )

    def total(self, ratio: FloatArray) -> FloatArray:
        """The money of all jobs, from lives' ratios, shape (lived, futures)."""
        found: FloatArray = self.carried + self.on_demand.astype(np.float64) @ ratio
        return found


def _answer(slack_ppm: int, known: Assessable, plain: _Plain, planned: _Planned) -> SlackAnswer:
    sums = _Sums.of(known)
    costs = sums.total(planned.ratio)
    futures = planned.ratio.shape[1]
    late = (plain.took > slack_ppm / PPM).mean(axis=1) if len(plain.took) else np.zeros(0)
    curve = sums.total(planned.ladder)
    on_demand = sums.carried + int(sums.on_demand.sum())
    ran_late = sum(
        (job.job.end_s - job.job.begin_s) * PPM > job.job.work_s * slack_ppm for job in known.jobs
    )
    return SlackAnswer(
        slack_ppm=slack_ppm,
        ran_late_ppm=PPM * ran_late // max(1, len(known.jobs)),
        spot_plain=_spread(sums.total(plain.ratio)),
        late_ppm=round(PPM * float(sums.jobs @ late) / max(1, int(sums.jobs.sum()))),
        spotline=_spread(costs),
        saving=_spread(sums.paid - costs),
        missed=planned.missed,
        lives=sums.lives_a_future * (futures + 2 + len(LADDER) * _LADDER_FUTURES),
        as_paid=break_even(curve, sums.paid),
        as_on_demand=break_even(curve, on_demand),
    )


def _spread(totals: FloatArray) -> MoneySpread:
    p10, p50, p90 = (round(float(value)) for value in np.quantile(totals, _QUANTILES))
    mean = round(float(totals.mean()))
    return MoneySpread(p10_micro=p10, p50_micro=p50, p90_micro=p90, mean_micro=mean)


def break_even(curve: FloatArray, line_micro: int) -> BreakEven:
    """Where the mean cost by share of time with spot comes down to a line.

    `curve` has the costs without spot, at each share of `LADDER`, and with spot always.
    """
    shares = np.array((0.0, *LADDER, 1.0))
    near = _EQUAL * max(1.0, abs(float(line_micro)))
    above = curve > line_micro + near
    below = curve < line_micro - near
    if not below[-1]:
        return BreakEven(ahead="never")
    if not above.any():
        return BreakEven(ahead="always")
    last = int(np.flatnonzero(above)[-1])
    share = shares[last] + (shares[last + 1] - shares[last]) * (
        (curve[last] - line_micro) / (curve[last] - curve[last + 1])
    )
    return BreakEven(ahead="from", share_ppm=round(PPM * float(share)))


# --- what it rests on -------------------------------------------------------------------------


def _job_lines(known: Assessable, middles: list[FloatArray]) -> tuple[JobLine, ...]:
    lines = []
    for index, job in enumerate(known.jobs):
        life = int(known.stands_in[index])
        costs = [round(job.carried_micro + job.on_demand_micro * float(m[life])) for m in middles]
        lines.append(
            JobLine(
                assessed=job,
                on_demand_micro=job.carried_micro + job.on_demand_micro,
                spotline_micro=tuple(costs),
                own_life=known.lived[life] is job,
            )
        )
    return tuple(lines)


def _priors_used(known: Assessable) -> tuple[PriorUse, ...]:
    counted: dict[str, int] = {}
    shares: dict[str, dict[str, list[int]]] = {}
    for job in known.jobs:
        kind = job.assumed.kind
        counted[kind] = counted.get(kind, 0) + 1
        of_law = shares.setdefault(kind, {})
        for name, share in shares_by_kind(job.assumed).items():
            of_law.setdefault(name, []).append(share)
    return tuple(
        PriorUse(kind=kind, jobs=counted[kind], share_ppm=_means(shares[kind]))
        for kind in sorted(counted)
    )


def _means(shares: Mapping[str, list[int]]) -> dict[str, int]:
    return {name: sum(found) // len(found) for name, found in shares.items()}


def _prices_used(known: Assessable) -> tuple[PriceUse, ...]:
    found = []
    for source in PriceFrom:
        jobs = [job for job in known.jobs if job.prices.source is source]
        if jobs:
            ratios = [job.planned_ppm for job in jobs]
            found.append(
                PriceUse(
                    source=source,
                    jobs=len(jobs),
                    held=sum(job.prices.held for job in jobs),
                    mean_ppm=sum(ratios) // len(ratios),
                )
            )
    return tuple(found)
