"""Tables and pages of docs that are made from code: written, or held against what is written."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def with_table(text: str, head: str, table: str, document: Path) -> str:
    """The document with the table that begins with `head` as it should be.

    Raises
    ------
    ValueError
        There is no such table in it.
    """
    before, found, after = text.partition(head)
    if not found:
        raise ValueError(f"{document} must hold a table that begins with {head!r}")
    rest = after.splitlines(keepends=True)
    while rest and rest[0].startswith("|"):
        rest.pop(0)
    return before + table + "".join(rest)


def write_or_check(document: Path, expected: Callable[[str], str], about: str) -> int:
    """Write a document as it should be; with `--check` change nothing, and return 1 where it is not.

    Parameters
    ----------
    expected
        What it should be, by what it is; empty where there is none.
    about
        What the command does, for its help.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    wanted = expected(text)
    if arguments.check:
        return int(text != wanted)
    document.write_text(wanted, encoding="utf-8")
    return 0
