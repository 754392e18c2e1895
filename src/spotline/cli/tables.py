"""Tables and facts as commands print them: never a cut number or a broken id, nothing unescaped.

How to use it::

    COLUMNS = (
        Column("job", Kind.ID),                       # rank 0: is always shown
        Column("done", Kind.NUMBER, rank=1),
        Column("tenant", rank=5),                     # dropped first where it is narrow
        Column("why", Kind.SENTENCE, rank=2),         # may be shortened, between words
    )
    print_table(COLUMNS, rows)                        # rows: tuples of str, one for each column
    print_facts([("job", job_id), ("why", sentence)]) # one name and value a line
    print_line(text)                                  # a line of text that others wrote

Cells are plain text and are escaped here: pass what came from outside as it came. A table that is too
wide drops columns, highest rank first (of equals the rightmost), and says which; where even those of
rank 0 do not fit, each row goes vertical, with all its columns. A pipe or a file has no width unless
COLUMNS states one: everything is shown. `table_lines` and `fact_lines` do the same without printing.

rich's own tables are not used because they cut or fold what does not fit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

import typer

_GAP = 2
# Below this a shortened sentence says nothing.
_LEAST_SENTENCE = 24
_ELLIPSIS = "…"
# As wide as a terminal that does not say.
_UNSTATED_WIDTH = 80


class Kind(Enum):
    """What a column holds: only sentences may be shortened, only numbers go to the right."""

    WORD = "word"
    ID = "id"
    NUMBER = "number"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; the higher its rank the sooner it is dropped, never with rank 0."""

    name: str
    kind: Kind = Kind.WORD
    rank: int = 0


def number_columns(*names: str, rank: int = 1) -> tuple[Column, ...]:
    """Columns of numbers, the first with this rank and each with one more than that before it."""
    return tuple(Column(name, Kind.NUMBER, rank + index) for index, name in enumerate(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLines:
    """A table as lines: the heading (empty where rows are vertical), lines per row, what is left out."""

    heading: str
    rows: tuple[tuple[str, ...], ...]
    dropped: tuple[str, ...]


def escaped(text: str, *, several_lines: bool = False) -> str:
    r"""A text without anything that a terminal obeys: what cannot be printed is written as `\x1b`.

    Control characters, escape sequences, controls of writing direction, bytes that were no UTF-8.
    Line ends and tabs become spaces, unless it may have `several_lines`.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if several_lines else ""
    return "".join(
        character
        if character.isprintable() or character in kept
        else " "
        if character in "\t\n\u00a0\u3000"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def terminal_width() -> int | None:
    """Columns of the terminal, None where output is no terminal's and COLUMNS states none."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _UNSTATED_WIDTH
    except (OSError, ValueError):
        return _UNSTATED_WIDTH


def print_line(text: str = "", *, err: bool = False, style: str = "") -> None:
    """Print a text of any origin, escaped; line ends stay.

    `style` is a colour and `bold`, such as `bold red`; it is left out where output is no terminal's
    or NO_COLOR is set.
    """
    typer.echo(_styled(escaped(text, several_lines=True), style), err=err)


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    styles: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print a table; `styles` has one for each row, empty for none.

    With `whole` sentences go on in further lines of their row instead of being shortened.
    """
    lines = table_lines(columns, rows, terminal_width(), whole=whole)
    if lines.heading:
        typer.echo(_styled(lines.heading, "bold"))
    for index, row in enumerate(lines.rows):
        if not lines.heading and index:
            typer.echo()
        for line in row:
            typer.echo(_styled(line, styles[index] if styles else ""))
    if lines.dropped:
        left_out = f"no room for: {', '.join(lines.dropped)}"
        typer.echo(_styled(left_out, "dim"), err=True)


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print one name and value a line; what is too wide goes on in lines below."""
    for line in fact_lines(facts, terminal_width()):
        typer.echo(line)


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    whole: bool = False,
) -> TableLines:
    """A table in `width` columns, None for as many as it needs; `whole`: no sentence is shortened.

    Raises
    ------
    ValueError
        A row has not one cell for each column.
    """
    cells = [[escaped(cell).rstrip() for cell in row] for row in rows]
    for row in cells:
        if len(row) != len(columns):
            raise ValueError(f"a row must have {len(columns)} cells, had {len(row)}")
    kept = fitting_columns(columns, cells, width)
    if kept is None:
        facts = (_vertical(columns, row, width) for row in cells)
        return TableLines(heading="", rows=tuple(facts), dropped=())
    widths = column_widths(columns, cells, kept, width)
    names = [column.name for column in columns]
    return TableLines(
        heading=_line(columns, names, kept, widths),
        rows=tuple(tuple(_row_lines(columns, row, kept, widths, whole=whole)) for row in cells),
        dropped=tuple(names[index] for index in range(len(columns)) if index not in kept),
    )


def fact_lines(facts: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Names and values in lines of `width` columns; they break between words only."""
    names = [escaped(name) for name, _ in facts]
    indent = max(map(_cells, names), default=0) + _GAP
    lines: list[str] = []
    for name, (_, value) in zip(names, facts, strict=True):
        wrapped = _wrapped(escaped(value), None if width is None else max(1, width - indent))
        lines += [
            (_padded(name if not index else "", indent) + part).rstrip()
            for index, part in enumerate(wrapped)
        ]
    return lines


def fitting_columns(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> list[int] | None:
    """The places of the columns that fit; None where those of rank 0 alone are too wide."""
    kept = list(range(len(columns)))
    if width is None:
        return kept
    least = [_least(columns, cells, index) for index in kept]
    while kept and sum(least[index] for index in kept) + _GAP * (len(kept) - 1) > width:
        last = max(kept, key=lambda index: (columns[index].rank, index))
        if not columns[last].rank:
            return None
        kept.remove(last)
    return kept


def column_widths(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    kept: Sequence[int],
    width: int | None,
) -> dict[int, int]:
    """How wide each column is, by its place: what is left over goes to the sentences, in order."""
    if width is None:
        return {index: _natural(columns, cells, index) for index in kept}
    widths = {index: _least(columns, cells, index) for index in kept}
    spare = width - sum(widths.values()) - _GAP * (len(kept) - 1)
    for index in kept:
        more = min(spare, _natural(columns, cells, index) - widths[index])
        widths[index] += more
        spare -= more
    return widths


def shortened(text: str, width: int) -> str:
    """As many whole words of a text as fit, with an ellipsis where some do not."""
    if _cells(text) <= width:
        return text
    first, *_ = _wrapped(text, width - _cells(_ELLIPSIS) - 1)
    # A first word that does not fit is left out: half of it may be another number.
    return _ELLIPSIS if _cells(first) > width - 2 else f"{first} {_ELLIPSIS}"


# --- the layout -------------------------------------------------------------------------------


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _natural(columns: Sequence[Column], cells: Sequence[Sequence[str]], index: int) -> int:
    return max(_cells(columns[index].name), *(_cells(row[index]) for row in cells), 0)


def _least(columns: Sequence[Column], cells: Sequence[Sequence[str]], index: int) -> int:
    natural = _natural(columns, cells, index)
    if columns[index].kind is Kind.SENTENCE:
        return max(_cells(columns[index].name), min(natural, _LEAST_SENTENCE))
    return natural


def _row_lines(
    columns: Sequence[Column],
    row: Sequence[str],
    kept: Sequence[int],
    widths: dict[int, int],
    *,
    whole: bool,
) -> Iterator[str]:
    if not whole:
        yield _line(columns, row, kept, widths)
        return
    wrapped = [
        _wrapped(cell, widths.get(index)) if column.kind is Kind.SENTENCE else [cell]
        for index, (column, cell) in enumerate(zip(columns, row, strict=True))
    ]
    for parts in zip_longest(*wrapped, fillvalue=""):
        yield _line(columns, parts, kept, widths)


def _line(
    columns: Sequence[Column], row: Sequence[str], kept: Sequence[int], widths: dict[int, int]
) -> str:
    parts = []
    for index in kept:
        text = row[index]
        if columns[index].kind is Kind.SENTENCE:
            text = shortened(text, widths[index])
        parts.append(_padded(text, widths[index], right=columns[index].kind is Kind.NUMBER))
    return (" " * _GAP).join(parts).rstrip()


def _vertical(columns: Sequence[Column], row: Sequence[str], width: int | None) -> tuple[str, ...]:
    named = ((column.name, cell) for column, cell in zip(columns, row, strict=True))
    return tuple(fact_lines([(name, cell) for name, cell in named if cell], width))


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - _cells(text))
    return space + text if right else text + space


def _wrapped(text: str, width: int | None) -> list[str]:
    """Lines of whole words; one word may be wider than all else."""
    if width is None or _cells(text) <= width:
        return [text]
    return list(_broken(text.split(), width)) or [""]


def _broken(words: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        longer = f"{line} {word}" if line else word
        if line and _cells(longer) > width:
            yield line
            longer = word
        line = longer
    if line:
        yield line


def _styled(text: str, style: str) -> str:
    if not style or os.environ.get("NO_COLOR"):
        return text
    words = style.split()
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    return typer.style(text, fg=colour, bold="bold" in words or None, dim="dim" in words or None)
