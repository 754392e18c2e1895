"""The page of one job: how far it is, what it held, what it cost and would have cost otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.application.board.otherwise import OtherLives, other_lives
from spotline.application.page.certified import certified_bound
from spotline.application.page.holdings import JobPast
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.reasons import Reason
from spotline.domain.certificates.met import MetBound
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.jobs.program import Holding
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.registry import BASELINES, FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import JobResult, SlotRecord, clairvoyant_optimum
from spotline.domain.units import NS_PER_S, PPM, cost_micro_usd

MOST_POINTS = 400
_LONGEST_ID = 80
# The exact optimum of a long life takes seconds and much memory.
_MOST_BOUND_SLOTS = 400

Course = Sequence[tuple[int, float]]
"""Moments, ns since the epoch, and values; between two of them a line is drawn."""

RULE_NAMES = {
    "on_demand_only": "on-demand alone",
    "msu": "MSU",
    "uniform_progress": "Uniform Progress",
}
"""How the simple rules are called."""


def whole_id(state: PageState, job_id: str, tenant: str) -> str:
    """The id of the only job (of a tenant, where one is named) that `job_id` is, or begins.

    Raises
    ------
    ViewRefused
        There is none, or there are several.
    """
    seen = {
        known: status
        for known, status in state.jobs.statuses.items()
        if tenant in ("", status.job.tenant)
    }
    if job_id in seen:
        return job_id
    shown = job_id[:_LONGEST_ID]
    found = [known for known in seen if job_id and known.startswith(job_id)]
    if len(found) == 1:
        return found[0]
    if not found:
        until = f" by the end of slot {state.slot}" if state.slot >= 0 else " yet"
        raise ViewRefused(
            Reason.UNKNOWN_JOB,
            f"there is no job {shown}{until}; the page Jobs lists all",
            (InputProblem(field="job_id", expected="a job's id", found=shown),),
        )
    raise refused_input(
        InputProblem(
            field="job_id",
            expected="an id, or a beginning of one that no other has",
            found=f"{shown!r}, with which {len(found)} begin",
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What was expected of a job, and from where: `from_ns` is when, `done_ppm` its work then."""

    outlook: JobOutlook
    from_ns: int
    done_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fan:
    """Work done in sampled futures, percent: one future in ten has less than `low`, one more than `high`.

    Not `by_slot`: lines are straight from where the job stood to the quantiles of when it is done.
    """

    low: Course
    middle: Course
    high: Course
    by_slot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLines:
    """Work done over time, percent: so far, evenly to the deadline, and as it is expected.

    `latest` is on-demand alone, begun at the last moment. `begun` is what was expected as it began.
    """

    done: Course
    even: Course
    latest: Course
    now: Fan | None = None
    begun: Fan | None = None


def progress_lines(
    state: PageState,
    job_id: str,
    expected: Expected | None,
    begun: Expected | None,
    latest_start_ns: int,
) -> ProgressLines:
    """The lines of a job's progress; `latest_start_ns` is 0 where it is over or runs nowhere.

    `expected` is what is now, `begun` what was as it began; None where that is not known.
    """
    job = state.jobs.statuses[job_id].job
    past = state.holdings.of_job.get(job_id, JobPast())
    begin_ns = begins_ns(state, job_id)
    deadline_ns = job.deadline.at_ns
    standings = [(each.at_ns, _percent(each.progress_ppm)) for each in past.standings()]
    done: list[tuple[int, float]] = [(begin_ns, 0.0), *standings] if standings else []
    latest: list[tuple[int, float]] = []
    if latest_start_ns and latest_start_ns < deadline_ns and done:
        latest = [(latest_start_ns, done[-1][1]), (deadline_ns, 100.0)]
    return ProgressLines(
        done=done,
        even=[(begin_ns, 0.0), (deadline_ns, 100.0)],
        latest=latest,
        now=None if expected is None else fan_of(expected, job.deadline.expires_ns),
        begun=None if begun is None else fan_of(begun, job.deadline.expires_ns),
    )


def fan_of(expected: Expected, ends_ns: int) -> Fan:
    """How far a job comes in its futures; of an outlook that says its ends alone, straight lines.

    Parameters
    ----------
    ends_ns
        When finishing is worth nothing any more.
    """
    told = expected.outlook
    start = (expected.from_ns, _percent(expected.done_ppm))
    if told.progress:
        steps = [step for step in told.progress if step.at_ns > expected.from_ns]
        low, middle, high = (
            [start, *((step.at_ns, _percent(ppm)) for step, ppm in zip(steps, at, strict=True))]
            for at in (
                [step.low_ppm for step in steps],
                [step.middle_ppm for step in steps],
                [step.high_ppm for step in steps],
            )
        )
        return Fan(low=low, middle=middle, high=high, by_slot=True)
    ends = (told.finish_p90_ns, told.finish_p50_ns, told.finish_p10_ns)
    slow, half, quick = (_to_the_end(expected, end_ns, ends_ns) for end_ns in ends)
    return Fan(low=slow, middle=half, high=quick, by_slot=False)


def _to_the_end(expected: Expected, finish_ns: int, ends_ns: int) -> Course:
    """From what is done to all of it; never done: as it stands until the end of all value."""
    start = (expected.from_ns, _percent(expected.done_ppm))
    if finish_ns > expected.from_ns:
        return [start, (finish_ns, 100.0)]
    return [] if finish_ns else [start, (max(ends_ns, expected.from_ns), start[1])]


def _percent(ppm: int) -> float:
    return 100.0 * ppm / PPM


def begins_ns(state: PageState, job_id: str) -> int:
    """When a job's life begins: its first slot, before that when it was handed over."""
    entry = state.jobs.board.entries[job_id]
    return entry.first_slot_start_ns or entry.submitted_ns or state.now_ns


def at_moments(course: Course, moments: Sequence[int]) -> list[float | None]:
    """A course at certain moments, ascending; None where it has not begun or is over."""
    values: list[float | None] = []
    place = 0
    for at in moments:
        while place + 1 < len(course) and course[place + 1][0] <= at:
            place += 1
        if not course or at < course[0][0] or at > course[-1][0]:
            values.append(None)
            continue
        low = course[place]
        if place + 1 >= len(course) or at == low[0]:
            values.append(low[1])
            continue
        high = course[place + 1]
        share = (at - low[0]) / (high[0] - low[0])
        values.append(low[1] + share * (high[1] - low[1]))
    return values


def moments_of(*courses: Course, most: int = MOST_POINTS) -> list[int]:
    """All moments of some courses, thinned to at most so many; ends of courses always stay."""
    ends = {course[at][0] for course in courses if course for at in (0, -1)}
    others = sorted({at for course in courses for at, _ in course} - ends)
    room = max(1, most - len(ends))
    step = -(-len(others) // room) if others else 1
    return sorted(ends | set(others[::step]))


# --- what it would have cost otherwise ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """How a job fares by one rule on the market that it met; `done_ns` is 0: not done.

    `value_micro_usd` is what finishing then is worth to its owner; `cost` is cumulative.
    """

    name: str
    cost_micro_usd: int
    value_micro_usd: int
    done_ns: int
    on_time: bool
    cost: Course

    @property
    def utility_micro_usd(self) -> int:
        """Value less cost."""
        return self.value_micro_usd - self.cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """What simple rules would have made of a job on the spot that was left for it.

    `over` says that all of its life is compared, not only until now. `bound_micro_usd` is more
    value less cost than any schedule can have on this market, even one that knew all of it before;
    `certified` is what is left of that for whoever does not know the future. None where they are
    not worked out.
    """

    rules: tuple[Fared, ...]
    over: bool
    bound_micro_usd: int | None = None
    best: Fared | None = None
    certified: MetBound | None = None

    @property
    def ceiling_micro_usd(self) -> int | None:
        """What nobody who does not know the future exceeds in the mean, value less cost."""
        return None if self.certified is None else round(self.certified.ceiling_micro_usd)


def lives_of(state: PageState, job_id: str) -> OtherLives | None:
    """What comparing a job needs, None where it cannot be compared."""
    jobs = state.jobs
    entry = jobs.board.entries[job_id]
    status = jobs.statuses[job_id]
    if entry.is_run and entry.done is not None:
        return None
    return other_lives(jobs.board.offers.jobs.get(job_id), status.job, jobs.recent)


def otherwise(
    lives: OtherLives,
    begin_ns: int,
    *,
    over: bool,
    law: NamedLaw | None = None,
    holdings: tuple[Holding, ...] = (),
) -> Otherwise:
    """Replay the simple rules; seconds, a minute where kernels are compiled for it.

    Parameters
    ----------
    law
        Of the market that the job met; None bounds it by nothing but the clairvoyant.
    holdings
        What the job held in each of its slots.
    """
    program, records = lives.program, lives.records
    results = replay_pool(program, records, BASELINES, policy_named(FALLBACK_POLICY_ID))
    rules = [
        _fared(RULE_NAMES.get(policy.policy_id, policy.policy_id), result, lives, begin_ns)
        for policy, result in zip(BASELINES, results, strict=True)
    ]
    if not over or len(records) > _MOST_BOUND_SLOTS:
        return Otherwise(rules=tuple(rules), over=over)
    optimum = clairvoyant_optimum(program, records)
    best = None
    if optimum.result.finished_slot:
        best = _fared("knowing all of it before", optimum.result, lives, begin_ns)
    return Otherwise(
        rules=tuple(rules),
        over=over,
        bound_micro_usd=optimum.upper_utility_micro_usd,
        best=best,
        certified=None if law is None else certified_bound(lives, law, holdings),
    )


def _fared(name: str, result: JobResult, lives: OtherLives, begin_ns: int) -> Fared:
    program = lives.program
    slot_ns = program.slot_s * NS_PER_S
    spent = 0
    course: list[tuple[int, float]] = [(begin_ns, 0.0)]
    for place, (record, held) in enumerate(zip(lives.records, result.holdings, strict=False)):
        spent += _slot_cost(record, held.spot, held.on_demand, program.slot_s)
        course.append((begin_ns + (place + 1) * slot_ns, spent / 1e6))
    done_ns = begin_ns + result.finished_slot * slot_ns if result.finished_slot else 0
    return Fared(
        name=name,
        cost_micro_usd=result.cost_micro_usd,
        value_micro_usd=result.value_micro_usd,
        done_ns=done_ns,
        on_time=result.on_time,
        cost=course,
    )


def _slot_cost(record: SlotRecord, spot: int, on_demand: int, slot_s: int) -> int:
    return cost_micro_usd(record.spot_price, spot, slot_s) + cost_micro_usd(
        record.on_demand_price, on_demand, slot_s
    )


def spent_course(past: JobPast, begin_ns: int) -> Course:
    """What a job had spent by the decisions, USD."""
    return [
        (begin_ns, 0.0),
        *((each.at_ns, each.spent_micro_usd / 1e6) for each in past.standings()),
    ]


def billed_course(past: JobPast, begin_ns: int, slot_ns: int) -> Course:
    """What a job had been billed by the ledger, USD; a bill rises over the slot that it is of."""
    course: list[tuple[int, float]] = [(begin_ns, 0.0)]
    for at_ns, billed in past.billed():
        before_ns, before = course[-1]
        if at_ns - slot_ns > before_ns:
            course.append((at_ns - slot_ns, before))
        course.append((at_ns, billed / 1e6))
    return course


def rate_text(job: Job) -> str:
    """How much of a job may run at once: `4`, `1 to 8`, `1, 2 or 4` instances."""
    counts = job.allowed_counts
    if len(counts) == 1:
        return f"{counts[0]}"
    if list(counts) == list(range(counts[0], counts[-1] + 1)):
        return f"{counts[0]} to {counts[-1]}"
    return f"{', '.join(str(count) for count in counts[:-1])} or {counts[-1]}"
