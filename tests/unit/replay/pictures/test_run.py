"""The picture of all jobs: every row, what they cost together, and bounds."""

from dataclasses import replace

import pytest

from spotline.domain.events.lifecycle import JobOutcome
from spotline.replay.pictures.run import MOST_ROWS, costs, draw_run, outcomes
from tests.fakes.drawn import assert_readable, marked

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def test_the_sentences_say_how_jobs_ended_and_what_they_cost(run):
    paid = sum(job.spent_micro_usd for job in run.jobs) / 1e6
    alone = sum(job.otherwise["on_demand_only"][-1][1] for job in run.jobs) / 1e6

    assert outcomes(run) == "6 jobs: 4 on time, 2 missed"
    assert costs(run).startswith(f"{paid:,.2f} USD in all; 6 comparable jobs {paid:,.2f} USD")
    assert f"on-demand alone {alone:,.2f} USD" in costs(run)


def test_the_curves_end_at_the_sums(run, tmp_path, figures):
    draw_run(run, tmp_path / "a.png")

    cost = figures[0].axes[-1]
    ends = {line.get_label().partition(":")[0]: line.get_ydata()[-1] for line in cost.get_lines()}
    paid = sum(job.spent_micro_usd for job in run.jobs) / 1e6
    msu = sum(job.otherwise["msu"][-1][1] for job in run.jobs) / 1e6
    assert ends["all 6 jobs"] == pytest.approx(paid)
    assert ends["MSU"] == pytest.approx(msu)


def test_rows_have_names_outcomes_and_costs(run, tmp_path, figures):
    draw_run(run, tmp_path / "a.png")

    rows = figures[0].axes[1]
    said = [text.get_text() for text in rows.texts]
    assert [label.get_text() for label in rows.get_yticklabels()] == [j.job.name for j in run.jobs]
    assert [text.partition(",")[0] for text in said] == [
        "missed" if job.outcome is JobOutcome.MISSED_DEADLINE else "on time" for job in run.jobs
    ]
    assert_readable(figures[0])


def test_of_many_jobs_those_not_on_time_are_among_the_rows(run, tmp_path, figures):
    (fine,) = [job for job in run.jobs if job.job.name == "fine-tune 0000"]
    late = next(job for job in run.jobs if job.outcome is JobOutcome.MISSED_DEADLINE)
    many = replace(run, jobs=(*[marked(fine)] * 199, late))

    draw_run(many, tmp_path / "a.png")

    names = [label.get_text() for label in figures[0].axes[1].get_yticklabels()]
    assert len(names) == MOST_ROWS
    assert late.job.name in names
    assert "50 of 200" in figures[0].axes[1].get_title(loc="left")
    assert figures[0].get_size_inches()[1] < 20


def test_jobs_that_hold_nothing_are_rows_too(run, tmp_path):
    empty = replace(
        run.jobs[0], held=(), marks=(), progress=(), spent=(), otherwise={}, compared=False
    )

    draw_run(replace(run, jobs=(empty,)), tmp_path / "a.png")

    assert (tmp_path / "a.png").read_bytes().startswith(PNG_MAGIC)
    assert costs(replace(run, jobs=(empty,))) == "0.00 USD in all; none is over and comparable"


def test_equal_runs_make_equal_files(run, tmp_path):
    for name in ("a.png", "b.png"):
        draw_run(run, tmp_path / name)

    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
