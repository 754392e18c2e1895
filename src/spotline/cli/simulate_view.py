"""A simulation that is not a log's own: run, written and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from spotline.cli.accounts_view import (
    print_job_rows,
    print_learned,
    print_policies,
    rows_as_csv,
    write_text,
)
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.domain.jobs.job import Job
    from spotline.domain.market.market import Market
    from spotline.replay.account import JobRow
    from spotline.replay.simulate import SimulationOptions, SimulationReport

RECORDED = "recorded"
"""The policy that is what happened in a log."""

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Where a result goes beside the terminal: files, `-` for standard output, empty for nowhere.

    `stdout` is the standard output of that moment: what is for people may be sent elsewhere later.
    """

    json_out: str = ""
    csv_out: str = ""
    per_job: bool = False
    stdout: TextIO = field(default_factory=lambda: sys.stdout)

    @property
    def to_stdout(self) -> str:
        """`-` where standard output is for machines, else empty."""
        return "-" if "-" in (self.json_out, self.csv_out) else ""

    def write(self, result: dict[str, object], rows: Sequence[JobRow]) -> None:
        """Write what was asked for; `result` has the rows too where they are shown.

        Raises
        ------
        ContractError
            A file cannot be written, or both are to go to standard output.
        """
        if self.json_out == self.csv_out == "-":
            raise ContractError(
                "--json, --csv", "expected one of them on standard output, found both"
            )
        if self.per_job:
            result = {**result, "per_job": [row.as_json() for row in rows]}
        for target, text in (
            (self.json_out, json.dumps(result, indent=2) + "\n"),
            (self.csv_out, rows_as_csv(rows)),
        ):
            if target:
                write_text(target, text, self.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What is to be simulated; `left_out` and `changed` are said of it."""

    market: Market
    jobs: Sequence[Job]
    left_out: Sequence[str]
    policies: Sequence[str]
    forecaster: str
    changed: Sequence[str]
    options: SimulationOptions


def run_simulation(asked: Simulation, outputs: Outputs, save_weights: Path | None) -> None:
    """Run it, write what is asked for, and show the table."""
    from spotline.adapters.files.weights_file import write_weights
    from spotline.replay.simulate import simulate as run
    from spotline.replay.summary import SPOTLINE

    report = run(
        asked.market,
        asked.jobs,
        asked.policies,
        forecaster=asked.forecaster,
        options=asked.options,
    )
    if save_weights is not None:
        told = f"spotline simulate, {len(asked.jobs)} jobs on {asked.market.source}"
        write_weights(save_weights, report.learner, told)
    rows = _rows(asked, report)
    outputs.write(report.as_json(), rows)
    for line in asked.left_out:
        print_line(line, style="yellow")
    for change in asked.changed:
        print_line(f"what if: {change}")
    print_line(
        f"{report.jobs} jobs {_together(asked.options)}, {asked.market.slots} slots of "
        f"{asked.market.slot_s} s, mean per job:"
    )
    print_policies(report.policies, report.clairvoyant, most=_SHOWN)
    regret = report.learner.regret() if report.learner else None
    print_learned((), 0, regret, report.lives.get(SPOTLINE, ()))
    if _told_less(asked.options):
        print_line("The clairvoyant is that of each job alone, told everything.")
    elif asked.options.contention and len(report.policies) > 1:
        first = SPOTLINE if SPOTLINE in report.policies else next(iter(report.policies))
        print_line(
            "Each policy is compared with the clairvoyant on what its own jobs were left; "
            f"shown is that of {first}."
        )
    if outputs.per_job:
        print_line()
        print_job_rows(rows)


def _told_less(options: SimulationOptions) -> bool:
    return options.information.value != "full"


def _together(options: SimulationOptions) -> str:
    together = "together" if options.contention else "each alone"
    said = {"full": "", "censored": ", censored", "decide_first": ", deciding first"}
    return together + said[options.information.value]


def _rows(asked: Simulation, report: SimulationReport) -> list[JobRow]:
    from spotline.replay.account import row_of

    basis = "by_itself" if asked.options.contention else "each_alone"
    return [
        row_of(job, basis, life, policy_id=name)
        for name, lives in report.lives.items()
        for job, life in zip(asked.jobs, lives, strict=True)
    ]
