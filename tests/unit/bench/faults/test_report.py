"""Runs that are kept, and the table of them in `docs/reliability.md`."""

import re
from pathlib import Path

import pytest

from spotline.bench.faults.kept import KeptRuns
from spotline.bench.faults.report import (
    BEGIN,
    END,
    FaultRun,
    FaultsReport,
    PlantRun,
    bugs_found,
    put_table,
    with_table,
)
from spotline.bench.faults.run import run_faults
from spotline.contracts.errors import ConfigError

ROOT = Path(__file__).parents[4]
RUNS = ROOT / "tests" / "data" / "faults" / "runs.jsonl"
DOCUMENT = ROOT / "docs" / "reliability.md"

HELD = FaultRun(family="kill", seed=3, faults=7, killed=("selector.EventStream.publish.before",))
VIOLATED = FaultRun(
    family="bus", seed=3, faults=2, violations=("same_ledger: a row",), last_events=("1 selector",)
)
CAUGHT = PlantRun(family="kill", plant="an_answer_is_forgotten", caught_at=2, oracle="same_ledger")
MISSED = PlantRun(family="kill", plant="another")


def test_what_is_kept_is_read_back_as_it_was(tmp_path):
    KeptRuns(tmp_path / "runs").keep(HELD, VIOLATED)
    KeptRuns(tmp_path / "runs").keep(CAUGHT, MISSED)

    report = KeptRuns(tmp_path / "runs").report()

    assert report.runs == [HELD, VIOLATED]
    assert report.plants == [CAUGHT, MISSED]
    assert report.violated == [VIOLATED]
    assert report.missed == [MISSED]


@pytest.mark.parametrize("line", ["", "{", "[1]", '{"family": "kill"}', '{"plant": "x", "y": 1}'])
def test_a_line_that_is_no_run_is_named(tmp_path, line):
    KeptRuns(tmp_path / "runs").keep(HELD)
    with (tmp_path / "runs").open("a") as file:
        file.write(line + "\n")

    with pytest.raises(ConfigError, match="runs:2: expected a run as --kept writes it"):
        KeptRuns(tmp_path / "runs")


def test_what_is_kept_is_not_run_again(tmp_path):
    kept = KeptRuns(tmp_path / "runs")
    kept.keep(HELD)

    report = run_faults(
        [(3, ("kill",))], [], workers=1, kept=KeptRuns(tmp_path / "runs"), tell=print, told=print
    )

    assert (report.runs, report.fresh) == ([HELD], 0)


def test_the_table_stands_between_the_markers_with_the_bugs_listed_below(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(
        f"before\n{BEGIN}\nold\n{END}\nafter\n## Bugs found\n\n| `kill`, seed 6 | x |\n"
        "| reading | y |\n| `kill`, seeds 7 and 9 | z |\n\n## More\n\n| `bus` | no bug |\n"
    )
    report = FaultsReport(seeds=2, runs=[HELD, VIOLATED], plants=[CAUGHT, MISSED])

    put_table(file, report, command="spotline bench faults")

    text = file.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| family |")
    assert "| `kill` | 1 | 7 | 0 | 1 of 2 | 2 | `spotline bench faults --family kill" in text
    assert "| `bus` | 1 | 2 | 1 | not planted | 0 | `spotline bench faults --family bus" in text
    assert "--first-seed 3 --seeds 1 --no-plants` |" in text
    assert f"a run.\n{END}\nafter\n## Bugs found" in text
    assert "old" not in text


def test_a_file_without_markers_gets_no_table():
    with pytest.raises(ConfigError, match="page: expected the lines"):
        with_table("text", FaultsReport(seeds=0), command="x", where="page")


def test_the_table_of_the_documents_comes_from_the_runs_that_are_kept():
    text = DOCUMENT.read_text(encoding="utf-8")
    command = re.search(r"\n`(spotline bench faults [^`]+)`: ", text.partition(BEGIN)[2])
    report = KeptRuns(RUNS).report()

    assert command is not None
    # Where a bug was added to the list below the table, `command` counts it.
    assert with_table(text, report, command=command[1], where="") == text, f"run {command[1]}"
    assert report.violated == []
    assert report.missed == []
    assert sum(bugs_found(text).values()) > 10
