"""An assessment in a terminal: the verdict, the lines, and what they rest on."""

from __future__ import annotations

from pathlib import Path

from spotline.application.assessment.answer import Assessment, MoneySpread
from spotline.application.assessment.words import (
    break_even_words,
    factor,
    money,
    rests_on,
    verdict,
)
from spotline.cli.tables import Column, Kind, number_columns, print_facts, print_line, print_table
from spotline.domain.units import NS_PER_S, utc_iso

_COLUMNS = (
    Column("may take", Kind.WORD),
    *number_columns("Spotline", rank=0)[:1],
    Column("p10 to p90", Kind.WORD, 2),
    Column("saved", Kind.NUMBER, 0),
    Column("saved, p10", Kind.NUMBER, 1),
    Column("as cheap as paid with spot", Kind.WORD, 3),
    Column("late on plain spot", Kind.NUMBER, 4),
    Column("late as they ran", Kind.NUMBER, 5),
)
_MOST_FINDINGS = 12


def print_assessment(told: Assessment, page: Path | None) -> None:
    """Print the answer; its first line is the verdict."""
    print_line(verdict(told), style="bold")
    bill = told.bill
    print_line()
    begin, end = (utc_iso(at * NS_PER_S)[:10] for at in (bill.begin_s, bill.end_s))
    print_line(
        f"{bill.source}, {begin} to {end}: {len(told.jobs):,} jobs, amounts in {bill.currency}; "
        "of futures: the middle one, and p10 to p90"
    )
    if told.jobs:
        print_line()
        print_facts(_lines(told))
        print_line()
        print_table(_COLUMNS, _rows(told))
    print_line()
    print_facts([*_apart(told), *rests_on(told)])
    if page is not None:
        print_line(f"written to {page}")


def _lines(told: Assessment) -> list[tuple[str, str]]:
    plain = told.answers[0].spot_plain
    return [
        ("paid", money(told.paid_micro)),
        ("on demand", f"{money(told.on_demand_micro)}, all of it at list prices"),
        (
            "plain spot",
            f"{money(plain.p50_micro)} (p10 to p90: {_range(plain)}), relaunched as soon as spot is there, "
            "deadlines disregarded",
        ),
    ]


def _rows(told: Assessment) -> list[tuple[str, ...]]:
    return [
        (
            f"{factor(answer.slack_ppm)} x the time",
            money(answer.spotline.p50_micro),
            _range(answer.spotline),
            money(answer.saving.p50_micro),
            money(answer.saving.p10_micro),
            break_even_words(answer.as_paid),
            f"{answer.late_ppm / 1e4:.0f} %",
            f"{answer.ran_late_ppm / 1e4:.0f} %",
        )
        for answer in told.answers
    ]


def _apart(told: Assessment) -> list[tuple[str, str]]:
    bill = told.bill
    facts = []
    if bill.unused_micro:
        facts.append(("unused commitments", f"{money(bill.unused_micro)}, in no line"))
    if bill.apart_micro:
        facts.append(("no jobs", f"{money(bill.apart_micro)} of the bill, in no line"))
    facts += [
        ("left out", f"{left.jobs:,} jobs, {money(left.micro)}: {left.why}")
        for left in told.left_out
    ]
    facts += [
        (found.kind.replace("_", " "), f"{found.rows:,} rows, {money(found.micro)}: {found.what}")
        for found in bill.findings[:_MOST_FINDINGS]
    ]
    if len(bill.findings) > _MOST_FINDINGS:
        facts.append(
            ("more", f"{len(bill.findings) - _MOST_FINDINGS} findings: see --html or --json")
        )
    return facts


def _range(spread: MoneySpread) -> str:
    return f"{money(spread.p10_micro)} to {money(spread.p90_micro)}"
