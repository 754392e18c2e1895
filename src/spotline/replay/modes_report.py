"""What a run on paper would have cost, and what a shadow policy would have made of a run's jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.contracts.errors import ContractError
from spotline.domain.market.believed import BelievedCounts, PaperSettings
from spotline.domain.market.market import INFERRED, UNKNOWN, Market
from spotline.domain.modes import Mode
from spotline.domain.units import usd_from_micro_usd
from spotline.replay.account import SIMPLE_RULES, Account, JobLeftOut, account, read_recorded
from spotline.replay.intervals import LEAST_JOBS, RESAMPLES, Estimate, estimate
from spotline.replay.simulate import expand_names
from spotline.replay.summary import JobLife

METHOD = (
    f"95 % intervals: percentile bootstrap over jobs, {RESAMPLES:,} resamples, differences paired "
    "(Efron and Tibshirani 1993); jobs are taken as independent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How the counted jobs fared under one rule: means per job in USD, and the share on time."""

    rule: str
    cost_usd: Estimate
    utility_usd: Estimate
    on_time: int
    on_time_share: Estimate

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        return {
            "rule": self.rule,
            "cost_usd_per_job": self.cost_usd.as_json(),
            "utility_usd_per_job": self.utility_usd.as_json(),
            "on_time": self.on_time,
            "on_time_share": self.on_time_share.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A rule beside what was recorded, job by job; positive: the rule costs, or earns, more."""

    figures: Figures
    cost_more_usd: Estimate
    utility_more_usd: Estimate

    def as_json(self) -> dict[str, object]:
        """The comparison by name."""
        return {
            **self.figures.as_json(),
            "cost_more_usd_per_job": self.cost_more_usd.as_json(),
            "utility_more_usd_per_job": self.utility_more_usd.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesReport:
    """What a log says, and what rules would have made of its jobs.

    `jobs` are those counted; with less than `LEAST_JOBS` there are no intervals. `cells` are slots
    times offerings, of which `believed_cells` had a spot count that nobody observed.
    """

    mode: Mode
    jobs: int
    left_out: tuple[JobLeftOut, ...]
    total_cost_usd: float
    recorded: Figures | None
    rules: tuple[Compared, ...]
    cells: int
    believed_cells: int
    assumptions: tuple[str, ...] = ()

    @property
    def too_few(self) -> bool:
        """Whether there are too few jobs for any interval."""
        return self.jobs < LEAST_JOBS

    def as_json(self) -> dict[str, object]:
        """The report by name."""
        return {
            "mode": self.mode.value,
            "jobs": self.jobs,
            "left_out": [
                {"job_id": out.job_id, "name": out.name, "reason": out.reason}
                for out in self.left_out
            ],
            "total_cost_usd": self.total_cost_usd,
            "recorded": None if self.recorded is None else self.recorded.as_json(),
            "rules": [rule.as_json() for rule in self.rules],
            "believed_share": self.believed_cells / self.cells if self.cells else 0.0,
            "intervals": None if self.too_few else METHOD,
            "assumptions": list(self.assumptions),
        }


def observe_report(directory: Path) -> ModesReport:
    """What the jobs of a log on paper would have cost, beside on-demand and the simple rules.

    Raises
    ------
    UnreadableLog
        It cannot be read to its end.
    ContractError
        It is the log of a live run, or holds no market or no job.
    """
    made = modes_report(directory, SIMPLE_RULES)
    if not made.mode.on_paper:
        raise ContractError(
            str(directory),
            "expected the log of a run on paper (spotline up --mode observe), found a live one: "
            "what it cost is in `spotline simulate --log`, what another policy would have done in "
            "`spotline shadow report`",
        )
    return made


def shadow_report(directory: Path, policy: str) -> ModesReport:
    """What a policy would have made of a log's jobs on the market that it saw; errors as above.

    The policy decides every slot anew, in closed loop, and fills as on paper.
    """
    rules = expand_names([policy])
    if len(rules) != 1:
        raise ContractError("--policy", f"expected one policy, found {', '.join(rules)}")
    return modes_report(directory, rules)


def modes_report(directory: Path, rules: Sequence[str]) -> ModesReport:
    """What a log says, and what each of `rules` would have made of its jobs by itself."""
    recorded = read_recorded(directory)
    known = recorded.market([ran.job for ran in recorded.report.jobs])
    unknown = int((recorded.observed.spot_provenance == UNKNOWN).sum())
    market = believed_market(known.market, _paper_of(EventLogReader(directory).manifest.settings))
    made = account(recorded, rules, market=market)
    assumptions = [*made.assumptions, *filter(None, (known.assumption,))]
    if unknown:
        assumptions.append(
            "where nobody observed how much spot there was, all rules are given what is believed"
        )
    lives = {ran.job.job_id: ran.life for ran in recorded.report.jobs}
    counted = [lives[job.job_id] for job in made.jobs if job.job_id in made.counted]
    return ModesReport(
        mode=recorded.mode,
        jobs=len(counted),
        left_out=made.left_out,
        total_cost_usd=usd_from_micro_usd(sum(life.cost_micro_usd for life in counted)),
        recorded=figures_of("recorded", counted) if counted else None,
        rules=tuple(_compared(made, rule, counted) for rule in rules) if counted else (),
        cells=recorded.observed.spot_provenance.size,
        believed_cells=unknown,
        assumptions=tuple(assumptions),
    )


def believed_market(market: Market, paper: PaperSettings) -> Market:
    """The market with the spot counts that are believed where nobody says any."""
    unknown = market.spot_provenance == UNKNOWN
    if not unknown.any():
        return market
    beliefs = BelievedCounts(paper)
    counts, provenance = market.spot_available.copy(), market.spot_provenance.copy()
    for slot, column in np.argwhere(unknown):
        offering_id = market.offerings[column].offering_id
        counts[slot, column] = beliefs.spot_available(offering_id, int(slot), market.slot_s)
    provenance[unknown] = INFERRED
    return replace(market, spot_available=counts, spot_provenance=provenance)


def figures_of(rule: str, lives: Sequence[JobLife]) -> Figures:
    """How jobs fared under a rule."""
    return Figures(
        rule=rule,
        cost_usd=_mean(lives, lambda life: usd_from_micro_usd(life.cost_micro_usd)),
        utility_usd=_mean(lives, lambda life: usd_from_micro_usd(life.utility_micro_usd)),
        on_time=sum(life.on_time for life in lives),
        on_time_share=_mean(lives, lambda life: float(life.on_time)),
    )


def _mean(lives: Sequence[JobLife], number: Callable[[JobLife], float]) -> Estimate:
    return estimate([number(life) for life in lives])


def _compared(made: Account, rule: str, recorded: Sequence[JobLife]) -> Compared:
    by_id = {life.job_id: life for life in made.by_itself[rule]}
    otherwise = [by_id[life.job_id] for life in recorded]
    pairs = list(zip(otherwise, recorded, strict=True))
    return Compared(
        figures=figures_of(rule, otherwise),
        cost_more_usd=estimate(
            [usd_from_micro_usd(rule.cost_micro_usd - ran.cost_micro_usd) for rule, ran in pairs]
        ),
        utility_more_usd=estimate(
            [
                usd_from_micro_usd(rule.utility_micro_usd - ran.utility_micro_usd)
                for rule, ran in pairs
            ]
        ),
    )


def _paper_of(settings: Mapping[str, Any]) -> PaperSettings:
    """What the run believed, the defaults where it was not on paper."""
    return PaperSettings(**settings.get("cloud_actuator", {}).get("paper", {}))
