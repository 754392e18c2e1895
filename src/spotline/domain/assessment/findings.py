"""What a bill has beside jobs, said to people: one finding of each kind, with rows and money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from spotline.domain.assessment.facts import BillFinding

SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "savings_plan": "Machine time that savings plans covered: taken at what the plan costs for it, not at what the line asks for.",
        "reserved": "Machine time that reservations or commitments to use covered: taken at what they cost for it.",
        "unused_commitment": "Paid for commitments that nothing used: in the total, in no job, and on no other schedule saved.",
        "savings_plan_negation": "Lines that take back what savings plans cover: left out, since covered lines are taken at the plan's cost.",
        "commitment_purchase": "Fees and purchases of commitments: left out, since they are spread over what used them and what nothing used.",
        "refund": "Refunds and corrections: taken off the resource they name, else counted apart from jobs.",
        "credit": "Credits: taken off the resource they name, else counted apart from jobs.",
        "discount": "Discounts as lines of their own: taken off the resource they name, else counted apart from jobs.",
        "tax": "Taxes: counted apart from jobs.",
        "support": "Support: counted apart from jobs.",
        "marketplace": "Sold by others through the provider: counted apart from jobs.",
        "other_service": "Other services: counted apart from jobs.",
        "no_gpu": "Machines without GPUs: counted apart from jobs.",
        "no_resource": "Machine time with GPUs whose lines name no resource or no type of machine: counted apart, since no run can be rebuilt from it.",
        "traffic_apart": "Traffic that no line ties to a job: counted apart from jobs.",
        "disk_apart": "Disks that no tag ties to a job: counted apart from jobs.",
        "correction_apart": "Refunds, credits and discounts that name no machine of a job: counted apart from jobs.",
        "untagged": "GPU machines without a tag that names a job: put together where they began together, else counted apart; an interruption there makes two jobs.",
        "shared_node": "Machines on which several jobs ran: split by GPUs and time where the history tells, else each machine's time is one job's.",
        "other_currency": "Lines in another currency: left out, since no rate of exchange is on the bill.",
        "clock_change": "Times without a zone over a change of clocks: the hour that comes twice, or is missing, was set right.",
        "naive_times": "Times that name no zone: taken as UTC; hours of the day may be off, durations are not.",
        "open_run": "Runs that the bill's first or last hour cuts: taken for as long as they are on it; their jobs were longer.",
        "zero_duration": "Lines of machine time of no duration: their money is counted with their machine, their time is none.",
        "duplicate": "Lines that stand in the file again, as of an export that was delivered twice: counted once.",
        "coarse_bill": "Lines of more than an hour: begin and end of runs are known to the day at best, and restarts within are not seen.",
        "failed_launch": "Launches that failed: runs of less than ten minutes which another of the job followed.",
        "unmatched_history": "Jobs of the history for which no machine is on the bill.",
        "unpriced": "Jobs on machines for which neither the bill nor a table names an on-demand price.",
        "uneven_gang": "Jobs that often held more or fewer machines than their usual count: their work is counted with the usual count only.",
    }
)
"""What each kind of finding says; the readers and `rebuild` name no others."""


@dataclass(slots=True)
class FindingLedger:
    """Adds up rows and money by kind."""

    _rows: dict[str, int] = field(default_factory=dict)
    _micro: dict[str, int] = field(default_factory=dict)
    _more: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, rows: int, micro: int, more: str = "") -> None:
        """Count rows of a kind and their money; `more` says details, the last one counts."""
        if kind not in SENTENCES:
            raise ValueError(f"kind of finding must be known, was {kind!r}")
        self._rows[kind] = self._rows.get(kind, 0) + rows
        self._micro[kind] = self._micro.get(kind, 0) + micro
        if more:
            self._more[kind] = more

    def findings(self) -> Sequence[BillFinding]:
        """Those that have rows, in the order of `SENTENCES`."""
        return tuple(
            BillFinding(
                kind=kind,
                rows=self._rows[kind],
                micro=self._micro[kind],
                what=sentence + (f" {self._more[kind]}" if kind in self._more else ""),
            )
            for kind, sentence in SENTENCES.items()
            if self._rows.get(kind)
        )
