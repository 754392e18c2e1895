"""Why accounts of the same run differ: a chain from the headline to the bills, each step named.

From one account to the next lead terms; an account is exactly the one before it plus these. All
money is micro-USD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed
from spotline.domain.ledger.bills import InstanceBill
from spotline.domain.units import usd_from_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStep:
    """An account (`is_account`) and its sum, or a term that leads from one to the next.

    `jobs` are the ids of those that a term is made of, by id; none where it is 0.
    """

    name: str
    micro_usd: int
    is_account: bool = False
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChain:
    """Accounts and terms in order."""

    steps: tuple[AccountStep, ...]

    @property
    def differences(self) -> tuple[AccountStep, ...]:
        """The terms that are not 0."""
        return tuple(step for step in self.steps if step.micro_usd and not step.is_account)

    @property
    def unexplained_micro_usd(self) -> int:
        """What the terms leave between neighbouring accounts, summed without signs."""
        left, expected = 0, 0
        for index, step in enumerate(self.steps):
            if step.is_account:
                left += abs(step.micro_usd - expected) if index else 0
                expected = step.micro_usd
            else:
                expected += step.micro_usd
        return left

    def as_json(self) -> list[dict[str, object]]:
        """The steps in order, amounts in USD and in micro-USD."""
        return [
            {
                "name": step.name,
                "is_account": step.is_account,
                "usd": usd_from_micro_usd(step.micro_usd),
                "micro_usd": step.micro_usd,
                "jobs": list(step.jobs),
            }
            for step in self.steps
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSums:
    """What a ledger holds: charges by job, and the bills of its instances."""

    charged: Mapping[str, int]
    bills: tuple[InstanceBill, ...]


@dataclass(slots=True, kw_only=True)
class _Sums:
    """What the log says, by job or by job and slot; `copies` are checkpoints' within `accrued`."""

    advanced: Counter[tuple[str, int]] = field(default_factory=Counter)
    accrued: Counter[tuple[str, int]] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    closed: dict[str, JobClosed] = field(default_factory=dict)
    last_billed: int = -1

    def note(self, event: Event) -> None:
        match event:
            case JobAdvanced():
                self.advanced[event.job_id, event.slot] += event.slot_cost_micro_usd
            case JobClosed():
                self.closed[event.job_id] = event
            case CostAccrued():
                self.accrued[event.job_id, event.slot] += event.cost_micro_usd
                self.last_billed = max(self.last_billed, event.slot)
                if not event.instances:
                    self.copies[event.job_id] += event.cost_micro_usd
            case _:
                pass


HEADLINE = "cost of the jobs in the headline"
SPENT = "spent by the decisions, all jobs"
ADVANCED = "sum of JobAdvanced"
ACCRUED = "sum of CostAccrued"
CHARGED = "charges in the ledger"
BILLED = "bills of the ledger's instances"

OTHER_JOBS = "jobs that the headline leaves out"
CLOSED_OTHERWISE = "closed at another sum than its slots"
NO_JOBS = "held by what is no job, such as a pipeline"
NOT_BILLED = "decided in slots that the log holds no bill of"
AFTER_THE_END = "held after the job had ended"
HELD_LONGER = "held longer than decided, such as beyond a release or a move"
HELD_SHORTER = "held shorter than decided, such as launched late or lost early"
NOT_IN_THE_LOG = "charged, and not in the log"
COPIES = "copies of checkpoints, which are no instance's"
SETTLED = "settled at another amount than estimated"


def reconcile(
    events: Iterable[Event],
    spent: Mapping[str, int],
    counted: Iterable[str],
    ledger: LedgerSums | None = None,
) -> AccountChain:
    """Lead from the headline's cost to what was accrued, and charged and billed where there is a ledger.

    Parameters
    ----------
    events
        Those of the log, each once.
    spent
        What each job cost by the decisions (see `RunReport.spent_by_job`), by job id.
    counted
        Ids of the jobs in the headline.
    """
    sums = _Sums()
    for event in events:
        sums.note(event)
    headline = set(counted)
    steps = [
        _account(HEADLINE, (spent[job_id] for job_id in headline)),
        _term(
            OTHER_JOBS, {job_id: cost for job_id, cost in spent.items() if job_id not in headline}
        ),
        _account(SPENT, spent.values()),
    ]
    advanced: Counter[str] = Counter()
    for (job_id, _), cost in sums.advanced.items():
        advanced[job_id] += cost
    steps.append(
        _term(
            CLOSED_OTHERWISE,
            {job_id: advanced[job_id] - spent.get(job_id, 0) for job_id in {*advanced, *spent}},
        )
    )
    steps.append(_account(ADVANCED, advanced.values()))
    steps += _to_accrued(sums, set(spent))
    steps.append(_account(ACCRUED, sums.accrued.values()))
    if ledger is not None:
        steps += _to_bills(sums, ledger)
    return AccountChain(steps=tuple(steps))


def _to_accrued(sums: _Sums, jobs: set[str]) -> list[AccountStep]:
    """What lies between the slots as decided and the slots as billed."""
    names = (NO_JOBS, NOT_BILLED, AFTER_THE_END, HELD_LONGER, HELD_SHORTER)
    terms: dict[str, Counter[str]] = {name: Counter() for name in names}
    for key in sorted({*sums.advanced, *sums.accrued}):
        job_id, slot = key
        difference = sums.accrued[key] - sums.advanced[key]
        closed = sums.closed.get(job_id)
        if job_id not in jobs:
            name = NO_JOBS
        elif slot > sums.last_billed:
            name = NOT_BILLED
        elif closed is not None and slot > closed.slot:
            name = AFTER_THE_END
        else:
            name = HELD_LONGER if difference > 0 else HELD_SHORTER
        terms[name][job_id] += difference
    return [_term(name, found) for name, found in terms.items()]


def _to_bills(sums: _Sums, ledger: LedgerSums) -> list[AccountStep]:
    """From what the log accrues to the ledger's charges, and to the bills of its instances."""
    accrued: Counter[str] = Counter()
    for (job_id, _), cost in sums.accrued.items():
        accrued[job_id] += cost
    missing = {
        job_id: ledger.charged.get(job_id, 0) - accrued[job_id]
        for job_id in {*ledger.charged, *accrued}
    }
    settled: Counter[str] = Counter()
    for bill in ledger.bills:
        settled[bill.job_id] += bill.micro_usd - bill.estimate_micro_usd
    return [
        _term(NOT_IN_THE_LOG, missing),
        _account(CHARGED, ledger.charged.values()),
        _term(COPIES, {job_id: -cost for job_id, cost in sums.copies.items()}),
        _term(SETTLED, settled),
        _account(BILLED, (bill.micro_usd for bill in ledger.bills)),
    ]


def _account(name: str, amounts: Iterable[int]) -> AccountStep:
    return AccountStep(name=name, micro_usd=sum(amounts), is_account=True)


def _term(name: str, by_job: Mapping[str, int]) -> AccountStep:
    jobs = tuple(sorted(job_id for job_id, amount in by_job.items() if amount))
    return AccountStep(name=name, micro_usd=sum(by_job.values()), jobs=jobs)
