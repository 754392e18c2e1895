"""Numbers as tables for a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table


def plain_table(title: str, first: str) -> Table:
    """A table with its first column, in the style all share."""
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column(first, overflow="fold")
    return table
