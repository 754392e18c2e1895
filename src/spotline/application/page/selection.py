"""How policies were weighed and what that cost: the page of policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.page.applied import Applied
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.selection.regret import SelectionRegret
from spotline.domain.selection.rules import PPB

MOST_ROUNDS = 2_000
_SHOWN_POLICIES = 7
_MISSES = frozenset((JobOutcome.MISSED_DEADLINE, JobOutcome.EXPIRED, JobOutcome.COMPLETED_LATE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The weights after one more job's feedback, parts per billion by policy; those of 0 are left out.

    `rehearsed` are rounds learned from a rehearsal in the past, not from a job that ended.
    """

    number: int
    market_ns: int
    slot: int
    job_id: str
    rule: str
    rehearsed: bool
    weights: tuple[tuple[str, int], ...]
    regret: SelectionRegret | None


@dataclass(slots=True)
class DrawnJobs:
    """What the jobs that drew a policy came to; `saved` is money, value less cost, micro-USD."""

    drawn: int = 0
    ended: int = 0
    misses: int = 0
    spent_micro_usd: int = 0
    value_micro_usd: int = 0


@dataclass(slots=True)
class SelectionChapter:
    """The last `MOST_ROUNDS` rounds of learning, and what became of each policy's jobs.

    `utility_micro_usd` is by policy what it would have earned on all jobs that the rule learned from
    ended jobs, `rehearsed_micro_usd` the same over rehearsals.
    """

    rounds: list[Round] = field(default_factory=list)
    drawn: dict[str, DrawnJobs] = field(default_factory=dict)
    utility_micro_usd: dict[str, int] = field(default_factory=dict)
    rehearsed_micro_usd: dict[str, int] = field(default_factory=dict)
    learned: int = 0
    rehearsed: int = 0
    _policy_of: dict[str, str] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        match event:
            case JobAdmitted():
                self._policy_of[event.job_id] = event.policy_id
                self.drawn.setdefault(event.policy_id, DrawnJobs()).drawn += 1
            case JobClosed():
                policy = self._policy_of.pop(event.job_id, "")
                tally = self.drawn.get(policy)
                if tally is not None:
                    tally.ended += 1
                    tally.misses += event.outcome in _MISSES
                    tally.spent_micro_usd += event.cost_micro_usd
                    tally.value_micro_usd += event.value_micro_usd
            case PolicyWeightsUpdated():
                self._learn(event, told)
            case _:
                pass

    def _learn(self, event: PolicyWeightsUpdated, told: Applied) -> None:
        is_rehearsal = event.rehearsed_slot >= 0
        sums = self.rehearsed_micro_usd if is_rehearsal else self.utility_micro_usd
        for weight in event.weights:
            sums[weight.policy_id] = sums.get(weight.policy_id, 0) + weight.utility_micro_usd
        self.rehearsed += is_rehearsal
        self.learned += not is_rehearsal
        self.rounds.append(
            Round(
                number=event.round,
                market_ns=told.market_ns,
                slot=told.slot,
                job_id=event.job_id,
                rule=event.rule,
                rehearsed=is_rehearsal,
                weights=tuple(
                    (weight.policy_id, weight.weight_ppb)
                    for weight in event.weights
                    if weight.weight_ppb
                ),
                regret=event.regret,
            )
        )
        if len(self.rounds) > MOST_ROUNDS:
            del self.rounds[: MOST_ROUNDS // 10]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy: its weight now, what it would have earned on all jobs learned from, and its own jobs."""

    policy_id: str
    weight_ppb: int
    utility_micro_usd: int | None
    behind_micro_usd: int | None
    rehearsed_micro_usd: int | None
    tally: DrawnJobs


def policy_rows(chapter: SelectionChapter) -> list[PolicyRow]:
    """All policies: the greatest weight first, then the most jobs drawn, then what earned most."""
    weights = dict(chapter.rounds[-1].weights) if chapter.rounds else {}
    best = max(chapter.utility_micro_usd.values(), default=None)
    names = chapter.utility_micro_usd.keys() | chapter.rehearsed_micro_usd.keys()
    rows = []
    for name in sorted(names | chapter.drawn.keys()):
        utility = chapter.utility_micro_usd.get(name)
        behind = None if utility is None or best is None else best - utility
        rows.append(
            PolicyRow(
                policy_id=name,
                weight_ppb=weights.get(name, 0),
                utility_micro_usd=utility,
                behind_micro_usd=behind,
                rehearsed_micro_usd=chapter.rehearsed_micro_usd.get(name),
                tally=chapter.drawn.get(name, DrawnJobs()),
            )
        )
    return sorted(
        rows,
        key=lambda row: (
            -row.weight_ppb,
            -row.tally.drawn,
            -(row.utility_micro_usd or 0),
            row.policy_id,
        ),
    )


def thinned(rounds: list[Round], *, most: int = 400) -> list[Round]:
    """At most so many rounds, one a moment: the last of each, and the last of all."""
    last_of: dict[int, Round] = {each.market_ns: each for each in rounds}
    kept = [last_of[at] for at in sorted(last_of)]
    every = -(-len(kept) // most) or 1
    return [each for at, each in enumerate(kept) if (len(kept) - 1 - at) % every == 0]


def weights_over_time(rounds: list[Round]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """The share of each of the policies that had most weight, and of all others, in every round."""
    most: dict[str, int] = {}
    for each in rounds:
        for name, weight in each.weights:
            most[name] = most.get(name, 0) + weight
    names = sorted(most, key=lambda name: (-most[name], name))[:_SHOWN_POLICIES]
    tables = [dict(each.weights) for each in rounds]
    lines = [(name, tuple(table.get(name, 0) / PPB for table in tables)) for name in names]
    if len(most) > len(names):
        rest = tuple(
            sum(weight for name, weight in table.items() if name not in names) / PPB
            for table in tables
        )
        lines.append(("all others", rest))
    return tuple(lines)


def regret_rounds(rounds: list[Round]) -> Iterator[tuple[Round, SelectionRegret]]:
    """The rounds after which a regret is known."""
    for each in rounds:
        if each.regret is not None:
            yield each, each.regret
