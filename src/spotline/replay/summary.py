"""How jobs fared, job by job and as the numbers everything reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.jobs.job import Job
from spotline.domain.policies.replay import Clairvoyant, JobResult
from spotline.domain.selection.regret import SelectionRegret
from spotline.domain.units import usd_from_micro_usd

CLAIRVOYANT = "clairvoyant"
SPOTLINE = "spotline"
"""What everything calls the selector's own behaviour: one policy per job, drawn by weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLife:
    """How one job fared; money in micro-USD.

    `most_value_micro_usd` is what finishing on time would have been worth. `on_time` holds for
    soft deadlines too: finished by the deadline, not only while still worth something.
    `policy_id` is what decided for it, `moves` how often it left an offering it had run on.
    `advances` are its slots where they were followed; no life is another for them.
    """

    job_id: str
    policy_id: str
    cost_micro_usd: int
    value_micro_usd: int
    most_value_micro_usd: int
    on_time: bool
    moves: int = 0
    advances: tuple[JobAdvanced, ...] = field(default=(), compare=False, repr=False)

    @property
    def utility_micro_usd(self) -> int:
        """Value less cost."""
        return self.value_micro_usd - self.cost_micro_usd


def life_of(job: Job, policy_id: str, result: JobResult) -> JobLife:
    """A replayed job's life."""
    return JobLife(
        job_id=job.job_id,
        policy_id=policy_id,
        cost_micro_usd=result.cost_micro_usd,
        value_micro_usd=result.value_micro_usd,
        most_value_micro_usd=job.value_micro_usd,
        on_time=result.on_time,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One policy over all jobs; means are per job.

    `late_value_loss_usd` is the mean value lost by finishing late or never.
    `percent_of_clairvoyant` is 100 * sum of utilities / sum of the optimum's, never a mean of
    ratios; None where the optimum earns nothing. `decisions_per_s` is None where nothing was timed.
    """

    mean_utility_usd: float
    mean_cost_usd: float
    on_time_fraction: float
    late_value_loss_usd: float
    percent_of_clairvoyant: float | None
    decisions_per_s: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """The numbers by name; `decisions_per_s` is left out where nothing was timed."""
        numbers = asdict(self)
        if self.decisions_per_s is None:
            del numbers["decisions_per_s"]
        return numbers


def summarise(
    lives: Sequence[JobLife],
    optimum_micro_usd: int,
    *,
    decisions_per_s: float | None = None,
) -> PolicySummary:
    """Sum up lives against the summed utility of the clairvoyant optimum.

    Raises
    ------
    ValueError
        There are no lives.
    """
    if not lives:
        raise ValueError("there must be at least one job to sum up")
    jobs = len(lives)
    utility = sum(life.utility_micro_usd for life in lives)
    lost = sum(life.most_value_micro_usd - life.value_micro_usd for life in lives)
    return PolicySummary(
        mean_utility_usd=usd_from_micro_usd(utility) / jobs,
        mean_cost_usd=usd_from_micro_usd(sum(life.cost_micro_usd for life in lives)) / jobs,
        on_time_fraction=sum(life.on_time for life in lives) / jobs,
        late_value_loss_usd=usd_from_micro_usd(lost) / jobs,
        percent_of_clairvoyant=percent(utility, optimum_micro_usd),
        decisions_per_s=decisions_per_s,
    )


def summarise_clairvoyant(jobs: Sequence[Job], optima: Sequence[Clairvoyant]) -> PolicySummary:
    """Sum up the optimum: its utility is the bound, everything else that of its schedules.

    The two differ only where a job's grid was too fine to be solved exactly.
    """
    lives = [life_of(job, CLAIRVOYANT, best.result) for job, best in zip(jobs, optima, strict=True)]
    summary = summarise(lives, 0)
    bound = optimum_of(optima)
    mean_usd = usd_from_micro_usd(bound) / len(lives)
    return replace(summary, mean_utility_usd=mean_usd, percent_of_clairvoyant=100.0)


def regret_as_json(regret: SelectionRegret | None) -> dict[str, object] | None:
    """Regret in dollars, as a share and in jobs; `bound_usd` is None where nothing is guaranteed."""
    if regret is None:
        return None
    bound = regret.bound_micro_usd
    return {
        "jobs": regret.jobs,
        "best_fixed_policy": regret.best_policy_id,
        "best_fixed_utility_usd": usd_from_micro_usd(regret.best_utility_micro_usd),
        "regret_usd": usd_from_micro_usd(regret.regret_micro_usd),
        "regret_percent": regret.regret_ppm / 1e4,
        "expected_regret_usd": usd_from_micro_usd(regret.expected_regret_micro_usd),
        "expected_regret_jobs": regret.regret_jobs,
        "bound_usd": usd_from_micro_usd(bound) if bound else None,
        "bound_widened_usd": usd_from_micro_usd(regret.widened_micro_usd),
    }


def regret_line(regret: SelectionRegret) -> str:
    """Regret on one line, for people."""
    bound = regret.bound_micro_usd
    guaranteed = (
        f"at most ${usd_from_micro_usd(bound):,.2f} guaranteed"
        if bound
        else "nothing guaranteed in dollars"
    )
    if regret.widened_micro_usd:
        guaranteed += (
            f", ${usd_from_micro_usd(regret.widened_micro_usd):,.2f} of it as counts are believed"
        )
    return (
        f"regret against {regret.best_policy_id}, the best fixed policy of {regret.jobs} jobs: "
        f"${usd_from_micro_usd(regret.regret_micro_usd):,.2f} ({regret.regret_ppm / 1e4:.2f} %); "
        f"expected ${usd_from_micro_usd(regret.expected_regret_micro_usd):,.2f}, {guaranteed}"
    )


def moves_line(lives: Iterable[JobLife]) -> str:
    """How often jobs moved, on one line, for people; empty where none did."""
    moves = [life.moves for life in lives if life.moves]
    if not moves:
        return ""
    return f"moved {sum(moves)} times between offerings, {len(moves)} jobs"


def optimum_of(optima: Sequence[Clairvoyant]) -> int:
    """The most that could have been earned, micro-USD, summed over jobs."""
    return sum(optimum.upper_utility_micro_usd for optimum in optima)


def percent(part_micro_usd: int, whole_micro_usd: int) -> float | None:
    """100 * part / whole, None where the whole is not > 0."""
    return 100.0 * part_micro_usd / whole_micro_usd if whole_micro_usd > 0 else None
