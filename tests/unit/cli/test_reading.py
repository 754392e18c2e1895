"""How output and happenings are printed: who wrote it, and nothing that a terminal obeys."""

from __future__ import annotations

import pytest

from spotline.application.allocator.happenings import JobHappening
from spotline.application.allocator.output import OutputChunk
from spotline.cli.reading import Writers, happening_line, printable


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;title\x07after\n", "after\n"),
        ("\x1b]8;;http://x\x1b\\link\n", "link\n"),
        ("\x1bPdevice\x1b\\after\n", "after\n"),
        ("\x1b[2J\x1b[H\x1bcgone\n", "gone\n"),
        ("\x9b31mred\n", "red\n"),
        ("bell\x07 back\x08 null\x00\n", "bell back null\n"),
        ("windows\r\n", "windows\n"),
        ("10 %\r20 %\r30 %\n", "30 %\n"),
        ("half an escape \x1b", "half an escape "),
        ("Straße 東京 🙂\n", "Straße 東京 🙂\n"),
    ],
)
def test_what_a_terminal_would_obey_is_left_out(written, shown):
    assert printable(written) == shown


def piece(text, *, generation=1, rank=0, instance_id="i-1"):
    return OutputChunk(
        job_id="j",
        tenant="t",
        instance_id=instance_id,
        generation=generation,
        rank=rank,
        text=text,
    )


def test_lines_say_who_wrote_them_once_there_are_several():
    writers = Writers()

    assert writers.shown(piece("a\nb\n")) == "a\nb\n"
    assert writers.shown(piece("c\n", rank=1)) == "1/1 | c\n"
    assert writers.shown(piece("d\n\ne\n")) == "1/0 | d\n1/0 | \n1/0 | e\n"
    assert writers.shown(piece("no end", generation=2)) == "2/0 | no end\n"
    assert writers.shown(piece("pip", generation=0)) == "setup i-1 | pip\n"
    assert writers.shown(piece("")) == ""


def test_a_happening_is_a_row():
    happening = JobHappening(
        seq=7, kind="job.generation", ts_event_ns=1_772_323_200 * 10**9, text="gen\x1b[31m 1"
    )

    assert happening_line(happening) == (
        "2026-03-01T00:00:00Z  job.generation            gen\\x1b[31m 1"
    )
