"""Accounts of runs as the terminal shows them: rules by basis, jobs, left out ones, reconciliation."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spotline.cli.failures import writable
from spotline.cli.tables import Column, Kind, print_line, print_table

if TYPE_CHECKING:
    from spotline.domain.selection.regret import SelectionRegret
    from spotline.replay.account import Account, JobLeftOut, JobRow
    from spotline.replay.reconcile import AccountChain
    from spotline.replay.summary import JobLife, PolicySummary

_MOST_WEIGHTS = 8
_BASES = {
    "recorded": "recorded",
    "by_itself": "by itself",
    "on_what_was_left": "what was left",
}
_ORDER = {basis: place for place, basis in enumerate(_BASES)}


def beside_json(json_out: str) -> AbstractContextManager[object]:
    """Where people's text goes: to stderr where standard output is the JSON."""
    return redirect_stdout(sys.stderr) if json_out == "-" else nullcontext()


def write_text(target: str, text: str, stdout: TextIO | None = None) -> None:
    """Write to a file, or to `stdout` (None: the present one) where the target is `-`.

    Raises
    ------
    ContractError
        The file cannot be written.
    """
    if target == "-":
        (stdout or sys.stdout).write(text)
        return
    path = Path(target)
    with writable(path):
        path.write_text(text, encoding="utf-8")


# --- rules --------------------------------------------------------------------------------------


def print_rules(account: Account) -> None:
    """One row per rule and basis, and below what the bases are."""
    columns = (
        Column("rule", Kind.ID),
        Column("basis"),
        Column("cost USD", Kind.NUMBER),
        Column("on time", Kind.NUMBER),
        Column("utility USD", Kind.NUMBER, 1),
        Column("of clairvoyant", Kind.NUMBER, 2),
        Column("lost late USD", Kind.NUMBER, 3),
    )
    report = account.report
    if account.recorded_counted is None:
        print_line("no job is left to compare")
        return
    rows = [_rule_row("spotline", "recorded", account.recorded_counted)]
    rows += [_rule_row(name, "by_itself", summary) for name, summary in _best_first(account.rules)]
    if account.as_it_was:
        left = {name: numbers for name, numbers in report.policies.items() if name != "spotline"}
        rows += [
            _rule_row(name, "on_what_was_left", numbers) for name, numbers in _best_first(left)
        ]
        if report.clairvoyant is not None:
            rows.append(_rule_row("clairvoyant", "on_what_was_left", report.clairvoyant))
    print_line(f"Mean of {len(account.counted)} jobs:")
    print_table(columns, rows)
    print_line("recorded: what happened, by the log alone")
    if account.rules:
        print_line(f"by itself: the rule runs {len(account.jobs)} jobs together from the beginning")
    if account.as_it_was:
        print_line("what was left: the rule runs one job on what the others left it")
    for assumption in account.assumptions if account.rules else ():
        print_line(f"assumed: {assumption}")


def _best_first(policies: Mapping[str, PolicySummary]) -> list[tuple[str, PolicySummary]]:
    return sorted(policies.items(), key=lambda item: (-item[1].mean_utility_usd, item[0]))


def _rule_row(name: str, basis: str, summary: PolicySummary) -> tuple[str, ...]:
    share = summary.percent_of_clairvoyant
    return (
        name,
        _BASES[basis],
        f"{summary.mean_cost_usd:,.2f}",
        f"{summary.on_time_fraction:.1%}",
        f"{summary.mean_utility_usd:,.2f}",
        # Of a rule by itself there is none: its jobs were left other things.
        "-" if share is None else f"{share:.2f} %",
        f"{summary.late_value_loss_usd:,.2f}",
    )


def print_policies(
    policies: Mapping[str, PolicySummary], clairvoyant: PolicySummary | None, *, most: int = 0
) -> None:
    """One row per policy, the best first, and the clairvoyant; `most` > 0 keeps the best ones.

    `spotline` and the on-demand baseline are always shown.
    """
    columns = (
        Column("policy", Kind.ID),
        Column("cost USD", Kind.NUMBER),
        Column("on time", Kind.NUMBER),
        Column("utility USD", Kind.NUMBER),
        Column("of clairvoyant", Kind.NUMBER, 1),
        Column("lost late USD", Kind.NUMBER, 2),
        Column("decisions/s", Kind.NUMBER, 3),
    )
    ordered = _best_first(policies)
    kept = {name for name, _ in ordered[: most or len(ordered)]} | {"spotline", "on_demand_only"}
    rows = [_policy_row(name, numbers) for name, numbers in ordered if name in kept]
    if clairvoyant is not None:
        rows.append(_policy_row("clairvoyant", clairvoyant))
    print_table(columns, rows)
    if len(kept & policies.keys()) < len(policies):
        print_line(f"the best {most} of {len(policies)} policies; --json has all")


def _policy_row(name: str, summary: PolicySummary) -> tuple[str, ...]:
    _, _, *numbers = _rule_row(name, "recorded", summary)
    rate = summary.decisions_per_s
    return (name, *numbers, "-" if rate is None else f"{rate:,.0f}")


# --- jobs ---------------------------------------------------------------------------------------


def print_left_out(left_out: Sequence[JobLeftOut]) -> None:
    """Each job that the means do not speak of, and why."""
    for out in left_out:
        print_line(f"left out: {out.name}: {out.reason}", style="yellow")


def print_job_rows(rows: Sequence[JobRow]) -> None:
    """One row per job: what it cost on each basis, one column for each rule."""
    named: dict[tuple[str, str], str] = {}
    for row in sorted(rows, key=lambda row: _ORDER.get(row.basis, len(_ORDER))):
        policy = "" if row.basis == "recorded" else row.policy_id
        short = {"recorded": "recorded", "on_what_was_left": f"{policy} (left)"}
        named.setdefault((row.basis, policy), short.get(row.basis, policy))
    columns = [Column("job, USD", Kind.ID), Column("deadline", rank=len(named) + 1)]
    columns += [Column(name, Kind.NUMBER, rank) for rank, name in enumerate(named.values())]
    lines: dict[str, list[str]] = {}
    places = {key: 2 + index for index, key in enumerate(named)}
    late = starred = False
    for row in rows:
        cells = lines.setdefault(row.job_id, [row.name, _deadline(row), *["-"] * len(named)])
        cells[0] = row.name if row.counted else f"{row.name} *"
        starred = starred or not row.counted
        mark = "" if row.on_time else " late"
        late = late or not row.on_time
        policy = "" if row.basis == "recorded" else row.policy_id
        cells[places[row.basis, policy]] = f"{row.cost_micro_usd / 1e6:,.2f}{mark}"
    print_table(columns, list(lines.values()))
    if late:
        print_line("late: not done by the deadline")
    if starred:
        print_line("*: left out of all means")


def _deadline(row: JobRow) -> str:
    from spotline.domain.units import utc_iso

    return f"{row.deadline_kind} {utc_iso(row.deadline_ns)}"


def rows_as_csv(rows: Sequence[JobRow]) -> str:
    """The rows as CSV with a heading: one line per job, basis and rule."""
    text = io.StringIO()
    lines = [row.as_json() for row in rows]
    if lines:
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return text.getvalue()


# --- what was learned, and how the accounts agree -----------------------------------------------


def print_learned(
    weights: Sequence[tuple[str, int]],
    rounds: int,
    regret: SelectionRegret | None,
    lives: Iterable[JobLife],
) -> None:
    """The heaviest policies (weights in parts per billion), the regret, and how often jobs moved."""
    from spotline.replay.summary import moves_line, regret_line

    if weights:
        print_line(f"Learned weights after {rounds} rounds:")
        rows = [(name, f"{ppb / 1e7:.1f} %") for name, ppb in weights[:_MOST_WEIGHTS]]
        rest = weights[_MOST_WEIGHTS:]
        if rest:
            share = sum(ppb for _, ppb in rest) / 1e7
            rows.append((f"{len(rest)} others", f"{share:.1f} %"))
        print_table((Column("policy", Kind.ID), Column("weight", Kind.NUMBER)), rows)
    if regret is not None:
        print_line(regret_line(regret))
    moved = moves_line(lives)
    if moved:
        print_line(moved)


def print_reconciliation(reconciliation: AccountChain) -> None:
    """Each account, and between them the terms that are not 0, to the micro-USD."""
    rows = [
        (
            step.name if step.is_account else f"  {step.name}",
            f"{step.micro_usd / 1e6:{'' if step.is_account else '+'},.6f}",
        )
        for step in reconciliation.steps
        if step.is_account or step.micro_usd
    ]
    print_line("How the accounts agree, USD:")
    print_table((Column("account", Kind.ID), Column("USD", Kind.NUMBER)), rows)
    left = reconciliation.unexplained_micro_usd
    if left:
        print_line(f"not explained: {left / 1e6:,.6f} USD", style="bold red")


# --- the result in three lines ------------------------------------------------------------------


def result_lines(account: Account, log: Path) -> tuple[str, str, str]:
    """What a run cost against rules by themselves, its deadlines, and where its log is."""
    return (_cost_line(account), _deadline_line(account), f"log {log}")


def _cost_line(account: Account) -> str:
    from spotline.replay.report import ON_DEMAND

    if not account.counted:
        return "no job that can be compared was over when the run ended"
    paid = account.recorded_micro_usd
    said = f"{len(account.counted)} jobs cost {paid / 1e6:,.2f} USD"
    against = []
    if ON_DEMAND in account.rules:
        against.append(_against(account, ON_DEMAND, "on-demand only"))
    best = account.best_simple_rule
    if best:
        against.append(f"{_against(account, best, best)}, the best simple rule")
    return f"{said}: {'; '.join(against)}; each running all jobs by itself" if against else said


def _against(account: Account, rule: str, name: str) -> str:
    paid, other = account.recorded_micro_usd, account.cost_micro_usd(rule)
    if not other:
        return f"{name} 0.00 USD"
    share = 100 * (1 - paid / other)
    how = "less" if share >= 0 else "more"
    return f"{abs(share):.1f} % {how} than {name} ({other / 1e6:,.2f} USD)"


def _deadline_line(account: Account) -> str:
    report = account.report
    on_time = sum(job.life.on_time for job in report.jobs)
    said = (
        f"{on_time} of {len(report.jobs)} jobs on time, "
        f"{report.missed_deadlines} hard deadlines missed"
    )
    others = [job for job in report.jobs if job.job.job_id not in account.counted]
    if not others:
        return said
    cost = sum(job.life.cost_micro_usd for job in others) / 1e6
    names = "; ".join(f"{out.name}: {out.reason}" for out in account.left_out[:3])
    more = f"; and {len(account.left_out) - 3} more" if len(account.left_out) > 3 else ""
    return f"{said}; {len(others)} not compared ({cost:,.2f} USD): {names}{more}"
