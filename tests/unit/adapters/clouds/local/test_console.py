"""What an instance writes stays small, and nothing holds it up."""

import os
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.clouds.local.console import Console
from tests.depth import examples

LEFT_OUT = re.compile(rb"\[spotline: (\d+) bytes were left out here\]\n")


def test_what_is_little_is_kept_as_it_is(tmp_path):
    path = tmp_path / "console.log"
    console = Console(str(path), beginning_bytes=10, newest_bytes=100)

    for _ in range(3):
        console.write(b"123456789\n")

    assert path.read_bytes() == b"123456789\n" * 3


def test_the_beginning_and_the_newest_lines_are_kept_and_what_lies_between_is_counted(tmp_path):
    path = tmp_path / "console.log"
    console = Console(str(path), beginning_bytes=10, newest_bytes=100)
    lines = [b"line %02d\n" % number for number in range(100)]

    for line in lines:
        console.write(line)

    first, said, *last = path.read_bytes().splitlines(keepends=True)
    assert first == lines[0]
    assert said == b"[spotline: 688 bytes were left out here]\n"
    assert last == lines[87:]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.binary(max_size=150).map(lambda said: said.replace(b"[", b"")), max_size=40))
def test_every_byte_is_kept_or_counted(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("console") / "console.log"
    console = Console(str(path), beginning_bytes=16, newest_bytes=100)

    for piece in pieces:
        console.write(piece)

    kept, whole = path.read_bytes(), b"".join(pieces)
    left_out = LEFT_OUT.search(kept)
    if left_out is None:
        assert kept == whole
        return
    first, last = kept[: left_out.start()], kept[left_out.end() :]
    if len(first) == 17:
        # There was no line to cut it at: that of what was left out begins anew.
        first = first[:-1]
    assert whole.startswith(first)
    assert whole.endswith(last)
    assert len(last) >= 1
    assert len(first) <= 16
    assert len(first) + int(left_out[1]) + len(last) == len(whole)
    assert len(kept) <= 17 + 200 + len(left_out[0])


def test_a_disk_that_takes_nothing_holds_up_nobody():
    console = Console("/dev/full")
    reading, writing = os.pipe()
    os.write(writing, b"words\n")
    os.close(writing)

    console.follow(reading)
