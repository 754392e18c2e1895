"""The picture of a job: readable, with units, equal each time."""

from dataclasses import replace

from spotline.domain.events.lifecycle import JobOutcome
from spotline.replay.pictures.job import comparison, draw_job, happened, headline
from tests.fakes.drawn import assert_readable, marked

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def test_one_that_missed_says_so_and_what_it_cost(run, tmp_path):
    job = next(job for job in run.jobs if job.outcome is JobOutcome.MISSED_DEADLINE)

    draw_job(job, run, tmp_path / "a.png")

    assert (tmp_path / "a.png").read_bytes().startswith(PNG_MAGIC)
    assert (
        headline(job)
        == f"{job.job.name}: missed deadline, for {job.spent_micro_usd / 1e6:,.2f} USD"
    )
    assert comparison(job).startswith("on-demand alone ")
    assert happened(job) == "safety net: 1"


def test_of_a_job_nobody_can_compare_it_says_why(run):
    job = replace(run.jobs[0], otherwise={}, compared=False)

    assert comparison(job).startswith("no comparison: it ran at several rates")


def test_a_job_that_never_ran_is_drawn_too(run, tmp_path):
    job = replace(
        run.jobs[0],
        outcome=None,
        held=(),
        marks=(),
        progress=(),
        spent=(),
        otherwise={},
        policy_id="",
    )

    draw_job(job, run, tmp_path / "a.png")

    assert headline(job) == f"{job.job.name}: waiting, it never ran"
    assert comparison(job) == ""


def test_equal_jobs_make_equal_files_that_say_nothing_of_when(run, tmp_path):
    job = marked(run.jobs[0])

    for name in ("a.png", "b.png"):
        draw_job(job, run, tmp_path / name)

    drawn = (tmp_path / "a.png").read_bytes()
    assert drawn == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in drawn
    assert b"tIME" not in drawn


def test_letters_are_large_enough_and_labels_do_not_overlap(run, tmp_path, figures):
    draw_job(marked(run.jobs[0]), run, tmp_path / "a.png")

    (figure,) = figures
    assert_readable(figure)


def test_every_axis_says_its_unit(run, tmp_path, figures):
    draw_job(run.jobs[0], run, tmp_path / "a.png")

    labels = [axes.get_ylabel() for axes in figures[0].axes]
    assert [label for label in labels if label] == [
        "spot /\non-demand",
        "instances",
        "% of the work",
        "USD",
    ]
    assert figures[0].axes[-1].get_xlabel() == "UTC, market time"


def test_a_name_with_dollars_and_control_characters_is_drawn_as_it_is(run, tmp_path, figures):
    nasty = replace(run.jobs[0], job=replace(run.jobs[0].job, name="a$x_{1}$ \x1b[31m\u4e2d" * 9))

    draw_job(nasty, run, tmp_path / "a.png")

    head = figures[0].axes[0].texts[0].get_text()
    assert "$x_{1}$" in head
    assert "\x1b" not in head
