"""What the proof came to, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.envelope import StoredEntry
from spotline.demo.train.accounts import TrainingAccount
from spotline.demo.train.diary import Page
from spotline.demo.train.evidence import JobEvidence
from spotline.demo.train.scenario import Compression, TrainingTask
from spotline.demo.train.undisturbed import UndisturbedRun
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.job import Job, Overheads, Throughput
from spotline.domain.market.market import Market
from spotline.domain.units import S_PER_HOUR
from spotline.replay.simulate import SimulationOptions, simulate

ON_DEMAND, MSU = "on_demand_only", "msu"

LEAST_INTERRUPTIONS = 10
LEAST_SUDDEN_SHARE = 0.3
LEAST_RESIZES = 5
MOST_SPREADS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFared:
    """One job of the proof: what was asked, what the log and the diaries say, what it cost."""

    task: TrainingTask
    job: Job
    evidence: JobEvidence
    account: TrainingAccount
    undisturbed: tuple[UndisturbedRun, ...]
    cost_micro_usd: int
    on_demand_micro_usd: int
    msu_micro_usd: int

    @property
    def on_time(self) -> bool:
        """Whether it was done by its deadline."""
        return self.evidence.outcome is JobOutcome.COMPLETED

    @property
    def loss_gap(self) -> float:
        """Held-out loss over the mean of the undisturbed runs, less one; NaN without a result."""
        loss = self.account.held_out_loss
        mean = fmean(run.held_out_loss for run in self.undisturbed)
        return math.nan if loss is None else loss / mean - 1.0

    @property
    def spread(self) -> float:
        """Largest less smallest held-out loss of the undisturbed runs, over their mean."""
        losses = [run.held_out_loss for run in self.undisturbed]
        return (max(losses) - min(losses)) / fmean(losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """The whole proof; `ledger_micro_usd` is what the ledger says, which the jobs' costs must sum to.

    Where it was `rehearsed`, how many are taken back, and how many of them without notice, is the
    market's and AWS's: demanded is that jobs heard of each that the rehearsal `took`, by its own bill.
    """

    jobs: tuple[JobFared, ...]
    ledger_micro_usd: int
    wall_s: float
    rehearsed: bool = False
    took: frozenset[str] = frozenset()

    @property
    def interruptions(self) -> int:
        """Instances that the cloud took back."""
        return sum(len(job.evidence.taken_back) for job in self.jobs)

    @property
    def without_notice(self) -> int:
        """Those of them that were gone without a word."""
        return sum(job.evidence.without_notice for job in self.jobs)

    @property
    def resizes(self) -> int:
        """Changes of the number of ranks between generations that trained."""
        return sum(job.account.resizes for job in self.jobs)

    @property
    def loss_gap(self) -> float:
        """The largest relative difference of any job, without its sign."""
        gaps = [abs(job.loss_gap) for job in self.jobs]
        return math.nan if any(map(math.isnan, gaps)) else max(gaps)

    def as_json(self) -> dict[str, object]:
        """The numbers, as `spotline train-demo --json` writes them."""
        cost = sum(job.cost_micro_usd for job in self.jobs)
        on_demand = sum(job.on_demand_micro_usd for job in self.jobs)
        gap = self.loss_gap
        return {
            "jobs": len(self.jobs),
            "completed": sum(job.account.held_out_loss is not None for job in self.jobs),
            "missed_deadlines": sum(not job.on_time for job in self.jobs),
            "interruptions": self.interruptions,
            "without_notice": self.without_notice,
            "resizes": self.resizes,
            "steps_lost": sum(job.account.steps_lost for job in self.jobs),
            "steps_total": sum(job.account.steps for job in self.jobs),
            "notice_saves": {
                "tried": sum(job.evidence.saves_tried for job in self.jobs),
                "completed": sum(job.evidence.saves_completed for job in self.jobs),
            },
            # JSON knows no NaN.
            "loss_gap": None if math.isnan(gap) else round(gap, 6),
            "cost_usd": cost / 1e6,
            "on_demand_cost_usd": on_demand / 1e6,
            "saving_percent": round(100 * (1 - cost / on_demand), 2) if on_demand else 0.0,
            "wall_s": round(self.wall_s, 1),
        }

    def failures(self) -> list[str]:
        """All that the proof demands and that does not hold; empty where it holds."""
        found: list[str] = []
        for job in self.jobs:
            name = job.task.name
            if not job.on_time:
                outcome = job.evidence.outcome
                found.append(f"{name}: {outcome.value if outcome else 'not over'}, not on time")
            found += [f"{name}: {problem}" for problem in job.evidence.problems()]
            found += [f"{name}: {problem}" for problem in job.account.problems]
            if math.isnan(job.loss_gap):
                found.append(f"{name}: there is no held-out loss, as it did not end")
            elif abs(job.loss_gap) > MOST_SPREADS * job.spread:
                found.append(
                    f"{name}: held-out loss is {job.loss_gap:+.4%} off, more than "
                    f"{MOST_SPREADS:g} spreads of {job.spread:.4%}"
                )
            if job.evidence.accrued_micro_usd != job.cost_micro_usd:
                found.append(
                    f"{name}: the log says that it cost {job.evidence.accrued_micro_usd} micro-USD, "
                    f"its bills {job.cost_micro_usd}"
                )
        found += self._too_few()
        billed = sum(job.cost_micro_usd for job in self.jobs)
        if billed != self.ledger_micro_usd:
            found.append(
                f"the jobs were charged {billed} micro-USD, the ledger says {self.ledger_micro_usd}"
            )
        return found

    def _too_few(self) -> list[str]:
        if self.rehearsed:
            return self._unheard()
        found = []
        if self.interruptions < LEAST_INTERRUPTIONS:
            found.append(f"{self.interruptions} interruptions, fewer than {LEAST_INTERRUPTIONS}")
        if self.without_notice < LEAST_SUDDEN_SHARE * self.interruptions:
            found.append(
                f"{self.without_notice} of {self.interruptions} interruptions without notice, "
                f"fewer than {LEAST_SUDDEN_SHARE:.0%}"
            )
        if self.resizes < LEAST_RESIZES:
            found.append(f"{self.resizes} resizes, fewer than {LEAST_RESIZES}")
        return found

    def _unheard(self) -> list[str]:
        """What the rehearsal took back, and no job heard of; or that it took nothing."""
        if not self.took:
            return ["the rehearsal took nothing back"]
        heard = {name for job in self.jobs for name in job.evidence.taken_back}
        return [
            f"{name} was taken back, and no job heard of it" for name in sorted(self.took - heard)
        ]


def events_in(entries: Iterable[StoredEntry]) -> list[Event]:
    """The events of a log, in its order."""
    return [
        event_of(single)
        for entry in entries
        if not is_dead_letter(entry)
        for single in unpacked(entry)
    ]


def as_simulated(job: Job) -> Job:
    """The job without its program: a simulation runs none whose end could be awaited."""
    return replace(job, run=None, awaits_exit=False)


def measured_job(
    job: Job, steps: int, pages: Sequence[Page], evidence: JobEvidence, compression: Compression
) -> Job:
    """The job as it proved to be: its rates and its restarts as measured in this run."""
    tokens = job.work.amount / steps
    seconds = seconds_per_update(pages)
    throughput = job.throughputs[0]
    table = list(throughput.table)
    for count, wall_s in seconds.items():
        if count <= len(table):
            table[count - 1] = float(
                f"{tokens / wall_s * S_PER_HOUR / compression.market_s_per_s:.3g}"
            )
    restarts = [restart.restart_s for restart in evidence.restarted if restart.restart_s > 0]
    overheads = job.overheads
    if restarts:
        restart_s = round(median(restarts))
        overheads = Overheads(
            launch_s=restart_s,
            grow_s=restart_s,
            shrink_s=restart_s,
            migrate_s=restart_s,
            interrupted_s=restart_s,
        )
    return replace(
        as_simulated(job),
        throughputs=(Throughput(offering=throughput.offering, table=tuple(table)),),
        overheads=overheads,
    )


def seconds_per_update(pages: Sequence[Page]) -> Mapping[int, float]:
    """Median wall seconds from one update to the next, by the number of ranks."""
    found: dict[int, list[float]] = {}
    for page in pages:
        began = next(page.of("began"), None)
        reached = [note["at_s"] for note in page.of("reached")]
        if began is not None:
            gaps = [after - before for before, after in pairwise(reached)]
            found.setdefault(began["world"], []).extend(gaps)
    return {world: median(gaps) for world, gaps in sorted(found.items()) if gaps}


def simulated_costs(market: Market, jobs: Sequence[Job]) -> Mapping[str, Mapping[str, int]]:
    """What each job would have cost under a rule of thumb, micro-USD, by policy and job id.

    All share the market, as they did. Work and rates are those that were measured.
    """
    report = simulate(market, jobs, (MSU, ON_DEMAND), options=SimulationOptions(contention=True))
    return {
        policy: {life.job_id: life.cost_micro_usd for life in lives}
        for policy, lives in report.lives.items()
    }
