"""One account of a recorded run: what it really cost, and what other rules would have cost.

Three bases, always named:

- `recorded`: what really happened, from the log itself; nothing is assumed.
- `on_what_was_left`: a rule replayed for one job at a time on what the others left to that job.
- `by_itself`: a rule runs all jobs on the market, with its own contention, from the beginning.

All means are over the same jobs: those for which all three can be said. The others are left out by
name; where they can be run again, they take their capacity in `by_itself` nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.allocation.tasks import at_rates
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.jobs.unattended import without_program
from spotline.domain.market.market import Market
from spotline.domain.modes import Mode
from spotline.domain.policies.registry import BASELINES
from spotline.domain.units import PPM, usd_from_micro_usd, utc_iso
from spotline.replay.closed_loop import LoopOptions, closed_loop
from spotline.replay.course import coverage
from spotline.replay.handlers import (
    forecaster_stated,
    learning_rules,
    priors_stated,
    selector_options,
)
from spotline.replay.log_market import LogMarket, market_of_log
from spotline.replay.reconcile import AccountChain, LedgerSums, reconcile
from spotline.replay.recorded import observations_of, readable_events
from spotline.replay.report import ON_DEMAND, JobReport, LeftOut, RunReport, report_of
from spotline.replay.summary import JobLife, PolicySummary, summarise
from spotline.replay.what_if import WhatIf

RECORDED = "recorded"
ON_WHAT_WAS_LEFT = "on_what_was_left"
BY_ITSELF = "by_itself"

SIMPLE_RULES = tuple(policy.policy_id for policy in BASELINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeftOut:
    """A job that the means do not speak of; `reason` is said of it, as `it`."""

    job_id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """How one job fared on one basis under one rule; money in micro-USD.

    `counted` says that the means speak of it.
    """

    job_id: str
    name: str
    deadline_kind: str
    deadline_ns: int
    basis: str
    policy_id: str
    on_time: bool
    cost_micro_usd: int
    value_micro_usd: int
    moves: int
    counted: bool

    def as_json(self) -> dict[str, object]:
        """The row by name, amounts in USD and the deadline in ISO 8601."""
        return {
            "job_id": self.job_id,
            "name": self.name,
            "deadline_kind": self.deadline_kind,
            "deadline": utc_iso(self.deadline_ns),
            "basis": self.basis,
            "policy": self.policy_id,
            "on_time": self.on_time,
            "cost_usd": usd_from_micro_usd(self.cost_micro_usd),
            "value_usd": usd_from_micro_usd(self.value_micro_usd),
            "utility_usd": usd_from_micro_usd(self.value_micro_usd - self.cost_micro_usd),
            "moves": self.moves,
            "counted": self.counted,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLog:
    """A recorded run with its market: what `account` is made from.

    `directory` is the log's, `observed` the market as its slots told it, `mode` whether what it says
    was paid for.
    """

    directory: Path
    report: RunReport
    observed: Market
    options: LoopOptions
    mode: Mode = Mode.LIVE

    def market(self, jobs: Sequence[Job]) -> LogMarket:
        """The market until the last of these jobs is worth nothing any more."""
        until_ns = max((job.deadline.expires_ns for job in jobs), default=self.observed.start_ns)
        return market_of_log(self.directory, self.observed, until_ns)


def read_recorded(directory: Path) -> RecordedLog:
    """Read the log in a directory, and fold it to its report.

    Raises
    ------
    UnreadableLog
        It cannot be read to its end.
    ContractError
        It holds no market, or no job was ever submitted in it.
    """
    reader = EventLogReader(directory)
    settings = reader.manifest.settings
    forecaster, horizon_slots = forecaster_stated(settings)
    observed = observations_of(reader)
    return RecordedLog(
        directory=directory,
        report=report_of(reader),
        observed=observed.market,
        mode=observed.mode,
        options=LoopOptions(
            forecaster=forecaster,
            horizon_slots=horizon_slots,
            learning=learning_rules(settings),
            selector=selector_options(settings),
            priors=priors_stated(settings),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A recorded run, and what each of `rules` would have made of its jobs by itself.

    `jobs` were run again, in the order of `by_itself`; `counted` are the ids of those that the
    means speak of, `left_out` all others. `changed` says what was asked for other than as it was,
    `assumptions` what else was taken for granted. `recorded_counted` is the recorded summary over
    the counted jobs: that of `report` unless less jobs are counted than it compares.
    """

    report: RunReport
    market: Market
    jobs: tuple[Job, ...]
    by_itself: Mapping[str, tuple[JobLife, ...]]
    counted: frozenset[str]
    left_out: tuple[JobLeftOut, ...]
    changed: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    rules: Mapping[str, PolicySummary] = field(default_factory=dict)
    recorded_counted: PolicySummary | None = None

    @property
    def as_it_was(self) -> bool:
        """Whether the means on what was left are of the counted jobs, on the terms of the rules."""
        compared = sum(job.compared for job in self.report.jobs)
        return not self.changed and compared == len(self.counted)

    @property
    def recorded_micro_usd(self) -> int:
        """What the counted jobs really cost."""
        lives = [job.life for job in self.report.jobs if job.job.job_id in self.counted]
        return sum(life.cost_micro_usd for life in lives)

    def cost_micro_usd(self, rule: str) -> int:
        """What the counted jobs would have cost under a rule by itself."""
        return sum(life.cost_micro_usd for life in self._counted(rule))

    def on_time(self, rule: str) -> int:
        """How many of the counted jobs a rule by itself would have finished on time."""
        return sum(life.on_time for life in self._counted(rule))

    def _counted(self, rule: str) -> list[JobLife]:
        return [life for life in self.by_itself[rule] if life.job_id in self.counted]

    @property
    def best_simple_rule(self) -> str:
        """The simple rule of the greatest utility by itself, on-demand apart; empty for none."""
        found = [name for name in self.rules if name in SIMPLE_RULES and name != ON_DEMAND]
        return min(found, key=lambda name: (-self.rules[name].mean_utility_usd, name), default="")

    def as_json(self) -> dict[str, object]:
        """What is said of the jobs, for `spotline demo` and `spotline simulate --log`."""
        return {
            "counted": len(self.counted),
            "left_out": [
                {"job_id": out.job_id, "name": out.name, "reason": out.reason}
                for out in self.left_out
            ],
            BY_ITSELF: {
                "jobs": len(self.jobs),
                "counted": len(self.counted),
                "changed": list(self.changed),
                "assumptions": list(self.assumptions),
                "best_simple_rule": self.best_simple_rule,
                "policies": {
                    name: _without_clairvoyant(summary) for name, summary in self.rules.items()
                },
            },
        }

    def rows(self) -> list[JobRow]:
        """Each job on each basis under each rule: as recorded, on what was left, by itself."""
        rows: list[JobRow] = []
        for ran in self.report.jobs:
            counted = ran.job.job_id in self.counted
            rows.append(row_of(ran.job, RECORDED, ran.life, counted=counted))
            for name, life in ran.otherwise.items():
                rows.append(
                    row_of(ran.job, ON_WHAT_WAS_LEFT, life, policy_id=name, counted=counted)
                )
        for name, lives in self.by_itself.items():
            for job, life in zip(self.jobs, lives, strict=True):
                counted = job.job_id in self.counted
                rows.append(row_of(job, BY_ITSELF, life, policy_id=name, counted=counted))
        return sorted(rows, key=lambda row: (row.deadline_ns, row.job_id))


def reconciled(made: Account, directory: Path, ledger: LedgerSums | None = None) -> AccountChain:
    """Lead from an account's headline to the bills, over the log in a directory.

    Raises
    ------
    UnreadableLog
        The log cannot be read to its end.
    """
    events = (found.event for found in readable_events(EventLogReader(directory)))
    return reconcile(events, made.report.spent_by_job, made.counted, ledger)


def account(
    recorded: RecordedLog,
    rules: Iterable[str] = SIMPLE_RULES,
    *,
    terms: WhatIf | None = None,
    market: Market | None = None,
    options: LoopOptions | None = None,
) -> Account:
    """Say what a recorded run cost, and let each rule run its jobs by itself.

    Parameters
    ----------
    rules
        Names of the registry, or `spotline`, which decides everything anew.
    terms
        Other deadlines or prices for the rules; what is recorded stays as it was.
    market
        Another market for the rules than the log's.

    Raises
    ------
    ContractError
        WhatIf fit no job, or the market file beside the log is another log's.
    """
    terms = terms or WhatIf()
    report = recorded.report
    again = terms.jobs([_as_it_ran(ran) for ran in report.jobs if _can_run_again(ran)])
    assumed = ""
    if market is None:
        known = recorded.market(again)
        market, assumed = known.market, known.assumption
    unscaled = terms.availability.assumption(market)
    market = terms.market(market, first_slot=report.slots[0].slot if report.slots else 0)
    uncovered = {job.job_id: coverage(market, job) for job in again}
    jobs = tuple(job for job in again if not uncovered[job.job_id])
    counted = frozenset(
        ran.job.job_id
        for ran in report.jobs
        if ran.compared and not uncovered.get(ran.job.job_id, "")
    )
    names = tuple(dict.fromkeys(rules))
    lives = closed_loop(market, jobs, names, options or recorded.options)
    made = Account(
        report=report,
        market=market,
        jobs=jobs,
        by_itself=lives,
        counted=counted,
        left_out=_left_out(report, uncovered),
        changed=tuple(terms.describe()),
        assumptions=tuple(filter(None, (assumed, unscaled, *_at_shown_rates(report, jobs)))),
    )
    if not counted:
        return made
    return replace(
        made,
        rules={name: summarise(made._counted(name), 0) for name in names},
        recorded_counted=_recorded_summary(report, counted),
    )


def _recorded_summary(report: RunReport, counted: frozenset[str]) -> PolicySummary:
    chosen = [ran for ran in report.jobs if ran.job.job_id in counted]
    best = sum(
        ran.clairvoyant.upper_utility_micro_usd for ran in chosen if ran.clairvoyant is not None
    )
    return summarise([ran.life for ran in chosen], best)


def _can_run_again(ran: JobReport) -> bool:
    return ran.left_out is None or ran.left_out.can_run_again


def _as_it_ran(ran: JobReport) -> Job:
    """The job as it was submitted, at the rates that its reports showed last.

    Those are the middle of the last estimate: what was planned on is less, so that a deadline holds.
    """
    job = without_program(ran.job)
    if ran.left_out is not LeftOut.REPORTED or not ran.reestimates:
        return job
    last = ran.reestimates[-1]
    factor = last.factor_ppm / PPM
    if len(last.throughputs) != len(job.throughputs):
        return job
    shown = [
        before if before == after else _scaled(before, factor)
        for before, after in zip(job.throughputs, last.throughputs, strict=True)
    ]
    return at_rates(job, tuple(shown))


def _scaled(throughput: Throughput, factor: float) -> Throughput:
    # Rates of few digits keep the exact programs small.
    return replace(
        throughput,
        alpha=float(f"{throughput.alpha * factor:.4g}"),
        beta=float(f"{throughput.beta * factor:.4g}"),
        table=tuple(float(f"{rate * factor:.4g}") for rate in throughput.table),
    )


def _at_shown_rates(report: RunReport, jobs: Sequence[Job]) -> list[str]:
    running = {job.job_id for job in jobs}
    return [
        f"{ran.name} is not counted and takes its capacity, at the rates "
        + ("that its reports showed" if ran.reestimates else "it was submitted with")
        for ran in report.jobs
        if ran.left_out is LeftOut.REPORTED and ran.job.job_id in running
    ]


def _left_out(report: RunReport, uncovered: Mapping[str, str]) -> tuple[JobLeftOut, ...]:
    found = []
    for ran in report.jobs:
        reason = ran.left_out.value if ran.left_out else ""
        problem = uncovered.get(ran.job.job_id, "")
        if not reason and problem:
            reason = f"it {problem}"
        if reason:
            found.append(JobLeftOut(job_id=ran.job.job_id, name=ran.name, reason=reason))
    return tuple(found)


def _without_clairvoyant(summary: PolicySummary) -> dict[str, float | None]:
    numbers = summary.as_json()
    del numbers["percent_of_clairvoyant"]
    return numbers


def row_of(
    job: Job, basis: str, life: JobLife, *, policy_id: str = "", counted: bool = True
) -> JobRow:
    """How a job fared; `policy_id` where another name is wanted than the life's own."""
    return JobRow(
        job_id=job.job_id,
        name=job.name or job.job_id,
        deadline_kind=job.deadline.kind.value,
        deadline_ns=job.deadline.at_ns,
        basis=basis,
        policy_id=policy_id or life.policy_id,
        on_time=life.on_time,
        cost_micro_usd=life.cost_micro_usd,
        value_micro_usd=life.value_micro_usd,
        moves=life.moves,
        counted=counted,
    )
