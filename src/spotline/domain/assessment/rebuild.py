"""From the lines of a bill, and a history where there is one, to jobs and what else is on it.

The parts add up: what was paid is the jobs, what commitments cost unused, and what is apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.domain.assessment.clock import ClockChange, changes_in
from spotline.domain.assessment.facts import (
    HiredMachine,
    InstanceRun,
    RebuiltBill,
    RebuiltJob,
    SpotPriceSeries,
)
from spotline.domain.assessment.findings import FindingLedger
from spotline.domain.assessment.grouping import (
    FAILED_S,
    JOB_TAGS,
    JobRuns,
    by_overlap,
    by_tags,
    failed_launches,
    in_order,
    job_of,
)
from spotline.domain.assessment.lines import BillReading, ExportLine, HistoryJob, LineKind
from spotline.domain.assessment.matching import matched, note_nodes
from spotline.domain.assessment.runs import RunLedger, mark_of
from spotline.domain.units import S_PER_HOUR

_OWN_TAG = JOB_TAGS[:1]
_COARSE_S = 2 * S_PER_HOUR
_DAY_S = 24 * S_PER_HOUR
Prices = Mapping[tuple[str, str, str], int]
"""On-demand list prices per instance-hour, by provider, region and instance type."""


@dataclass(slots=True)
class _Sum:
    rows: int = 0
    micro: int = 0


@dataclass(slots=True)
class _Book:
    """What the lines of one currency add up to."""

    runs: RunLedger = field(default_factory=RunLedger)
    found: FindingLedger = field(default_factory=FindingLedger)
    rows: int = 0
    paid_micro: int = 0
    size_micro: int = 0
    unused_micro: int = 0
    apart_micro: int = 0
    begin_s: int | None = None
    end_s: int = 0
    beside: dict[tuple[LineKind, str, str], _Sum] = field(default_factory=dict)
    corrections: dict[tuple[str, int], _Sum] = field(default_factory=dict)


class BillFold:
    """Takes the lines of a bill, in any order, and rebuilds what they tell of.

    Parameters
    ----------
    has_gpus
        Whether an instance type has GPUs, for machines whose lines do not say how many.
    list_prices
        In US dollars, for machines whose on-demand price no line names.
    """

    def __init__(self, has_gpus: Callable[[str], bool], list_prices: Prices) -> None:
        self._has_gpus = has_gpus
        self._list_prices = list_prices
        self._books: dict[str, _Book] = {}

    def take(self, line: ExportLine) -> None:
        """Note a line."""
        book = self._books.get(line.currency)
        if book is None:
            book = self._books[line.currency] = _Book()
        book.rows += 1
        book.paid_micro += line.micro
        book.size_micro += abs(line.micro)
        book.begin_s = line.begin_s if book.begin_s is None else min(book.begin_s, line.begin_s)
        book.end_s = max(book.end_s, line.end_s)
        if line.trap:
            book.found.add(line.trap, 1, line.noted_micro)
        match line.kind:
            case LineKind.INSTANCE if line.resource:
                book.runs.take(line)
                if line.end_s - line.begin_s > _COARSE_S:
                    book.found.add("coarse_bill", 1, line.micro)
            case LineKind.INSTANCE:
                book.apart_micro += line.micro
                gpus = line.machine is not None and self._is_gpu(line.machine)
                book.found.add("no_resource" if gpus else "no_gpu", 1, line.micro)
            case LineKind.EGRESS | LineKind.DISK:
                key = line.kind, line.resource, mark_of(line.tags, JOB_TAGS)
                _count(book.beside.setdefault(key, _Sum()), line.micro)
            case LineKind.CORRECTION:
                of_day = line.resource, line.begin_s // _DAY_S
                _count(book.corrections.setdefault(of_day, _Sum()), line.micro)
            case LineKind.UNUSED:
                book.unused_micro += line.micro
            case LineKind.APART:
                book.apart_micro += line.micro

    def rebuilt(
        self,
        *,
        source: str,
        reading: BillReading,
        history: Sequence[HistoryJob] = (),
        prices: Sequence[SpotPriceSeries] = (),
    ) -> RebuiltBill:
        """The whole bill, in the currency in which most of its money is.

        Raises
        ------
        ValueError
            No line was taken.
        """
        if not self._books:
            raise ValueError("lines of a bill must be at least 1, were 0")
        currency = max(sorted(self._books), key=lambda name: self._books[name].size_micro)
        book = self._books[currency]
        self._note_others(currency)
        _note_reading(book.found, reading, currency)
        # The table's prices are dollars.
        listed = self._list_prices if currency == "USD" else {}
        rebuilder = _Rebuilder(book, self._is_gpu, listed, naive=reading.naive_rows > 0)
        jobs = rebuilder.jobs([job for job in history if _within(job, book)])
        return RebuiltBill(
            source=source,
            currency=currency,
            begin_s=book.begin_s or 0,
            end_s=book.end_s,
            paid_micro=book.paid_micro,
            unused_micro=book.unused_micro,
            apart_micro=book.apart_micro,
            jobs=jobs,
            findings=book.found.findings(),
            prices=prices,
        )

    def _note_others(self, currency: str) -> None:
        """Name the money in other currencies; of several no sum is made."""
        others = sorted(self._books.keys() - {currency})
        sums = ", ".join(f"{self._books[name].paid_micro / 1e6:,.2f} {name}" for name in others)
        for name in others:
            other = self._books[name]
            micro = other.paid_micro if len(others) == 1 else 0
            self._books[currency].found.add("other_currency", other.rows, micro, f"It is {sums}.")

    def _is_gpu(self, machine: HiredMachine) -> bool:
        return machine.gpus > 0 or self._has_gpus(machine.instance_type)


def _within(job: HistoryJob, book: _Book) -> bool:
    """Whether a job of the history ran while the bill counts."""
    ended = job.end_s is not None and job.end_s <= (book.begin_s or 0)
    return job.begin_s < book.end_s and not ended


def _count(into: _Sum, micro: int) -> None:
    into.rows += 1
    into.micro += micro


def _note_reading(found: FindingLedger, reading: BillReading, currency: str) -> None:
    if reading.naive_rows:
        found.add("naive_times", reading.naive_rows, 0)
    rows, micro = dict(reading.duplicate_rows), dict(reading.duplicate_micro)
    if sum(rows.values()):
        found.add("duplicate", sum(rows.values()), micro.get(currency, 0))


@dataclass(slots=True)
class _Rebuilder:
    """Makes jobs of a book's runs, and gives them what stands beside."""

    book: _Book
    is_gpu: Callable[[HiredMachine], bool]
    list_prices: Prices
    naive: bool

    def jobs(self, history: Sequence[HistoryJob]) -> list[RebuiltJob]:
        runs = self._gpu_runs(self._changes() if self.naive else ())
        runs = self._corrected(runs)
        self._note_open(runs)
        groups, alone = self._groups(runs, history)
        self._put_apart(alone)
        self._give_beside(groups)
        prices = self._prices(runs)
        jobs = [job_of(group, prices) for group in groups]
        self._note_jobs(groups, jobs)
        return sorted(jobs, key=lambda job: (job.begin_s, job.job_id))

    # --- runs -----------------------------------------------------------------------------------

    def _changes(self) -> list[ClockChange]:
        """Clock changes that the windows show: an hour that some use twice, or that nobody uses."""
        seen: set[ClockChange] = set()
        begins: set[int] = set()
        for _, _, windows in self.book.runs.windows():
            seen.update(changes_in(windows))
            begins.update(window.begin_s for window in windows)
        real = [change for change in seen if change.back or change.hour_s not in begins]
        if real:
            self.book.found.add("clock_change", len(real), 0)
        return sorted(real, key=lambda change: -change.hour_s)

    def _gpu_runs(self, changes: Sequence[ClockChange]) -> list[InstanceRun]:
        """Runs of machines with GPUs; those of others are put apart."""
        wanted: list[InstanceRun] = []
        counted: set[str] = set()
        for run in self.book.runs.runs(changes, JOB_TAGS):
            if self.is_gpu(run.machine) or mark_of(run.tags, _OWN_TAG):
                wanted.append(run)
                continue
            self.book.apart_micro += run.paid_micro
            known = run.instance_id in counted
            lines = 0 if known else self.book.runs.lines_of(run.instance_id)
            counted.add(run.instance_id)
            self.book.found.add("no_gpu", lines, run.paid_micro)
        return wanted

    def _corrected(self, runs: Sequence[InstanceRun]) -> list[InstanceRun]:
        """Give refunds, credits and discounts to the run that they are of."""
        of_resource: dict[str, list[int]] = {}
        for number, run in enumerate(runs):
            of_resource.setdefault(run.instance_id, []).append(number)
        extra = [0] * len(runs)
        for (resource, day), correction in self.book.corrections.items():
            numbers = of_resource.get(resource)
            if numbers is None:
                self.book.apart_micro += correction.micro
                self.book.found.add("correction_apart", correction.rows, correction.micro)
                continue
            begun = [each for each in numbers if runs[each].begin_s < (day + 1) * _DAY_S]
            extra[begun[-1] if begun else numbers[0]] += correction.micro
        return [_paying(run, more) if more else run for run, more in zip(runs, extra, strict=True)]

    def _note_open(self, runs: Sequence[InstanceRun]) -> None:
        for run in runs:
            cut = run.begin_s == self.book.begin_s or run.end_s == self.book.end_s
            if cut and run.seconds >= S_PER_HOUR and not mark_of(run.tags, _OWN_TAG):
                self.book.found.add("open_run", 1, run.paid_micro)

    # --- jobs -----------------------------------------------------------------------------------

    def _groups(
        self, runs: Sequence[InstanceRun], history: Sequence[HistoryJob]
    ) -> tuple[list[JobRuns], list[InstanceRun]]:
        told = matched(runs, history, self.book.found) if history else None
        rest = list(runs) if told is None else told.remaining
        tagged, untagged = by_tags(rest)
        gangs, alone = by_overlap(untagged)
        note_nodes([*alone, *(run for group in gangs for run in group.runs)], self.book.found)
        for run in untagged:
            self.book.found.add("untagged", 1, run.paid_micro)
        groups = [*([] if told is None else told.groups), *tagged, *gangs]
        return _named_once(groups), alone

    def _put_apart(self, alone: Sequence[InstanceRun]) -> None:
        self.book.apart_micro += sum(run.paid_micro for run in alone)

    def _give_beside(self, groups: Sequence[JobRuns]) -> None:
        """Give traffic and disks to the jobs that had the machine, or the tag."""
        most: dict[str, tuple[int, int]] = {}
        named: dict[str, tuple[int, int]] = {}
        for number, group in enumerate(groups):
            paid: dict[str, int] = {}
            for run in group.runs:
                paid[run.instance_id] = paid.get(run.instance_id, 0) + run.seconds
            for resource, seconds in paid.items():
                most[resource] = max(most.get(resource, (-1, 0)), (seconds, -number))
            for name in group.names:
                of_all = sum(paid.values()), -number
                named[name] = max(named.get(name, (-1, 0)), of_all)
        for (kind, resource, name), beside in self.book.beside.items():
            owner = most.get(resource) or named.get(name)
            if owner is not None:
                groups[-owner[1]].beside_micro += beside.micro
                continue
            self.book.apart_micro += beside.micro
            apart = "traffic_apart" if kind is LineKind.EGRESS else "disk_apart"
            self.book.found.add(apart, beside.rows, beside.micro)

    def _prices(self, runs: Sequence[InstanceRun]) -> Prices:
        """List prices that other runs of the same machines name, before those of a table."""
        named: dict[tuple[str, str, str], int] = {}
        for run in in_order(runs):
            if run.list_price_micro:
                on = run.machine
                named.setdefault((on.provider, on.region, on.instance_type), run.list_price_micro)
        return {**self.list_prices, **named}

    def _note_jobs(self, groups: Sequence[JobRuns], jobs: Sequence[RebuiltJob]) -> None:
        for group, job in zip(groups, jobs, strict=True):
            failed = failed_launches(group.runs)
            if failed:
                self.book.found.add("failed_launch", len(failed), job.failed_micro)
            if not job.list_price_micro:
                self.book.found.add("unpriced", 1, job.paid_micro)
            seconds = sum(run.seconds for run in group.runs if run.seconds >= FAILED_S)
            if seconds * 9 > (job.work_s + 1) * job.instances * 10:
                self.book.found.add("uneven_gang", 1, job.paid_micro)


def _paying(run: InstanceRun, more_micro: int) -> InstanceRun:
    return replace(run, paid_micro=run.paid_micro + more_micro)


def _named_once(groups: Sequence[JobRuns]) -> list[JobRuns]:
    """Jobs under different ids: a second of the same gets a number."""
    seen: dict[str, int] = {}
    for group in groups:
        times = seen.get(group.job_id, 0) + 1
        seen[group.job_id] = times
        if times > 1:
            group.job_id = f"{group.job_id}~{times}"
    return list(groups)
