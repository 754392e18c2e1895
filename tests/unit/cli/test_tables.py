"""Tables at any width: no number or id is cut, and nothing of others' reaches the terminal raw."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.cli.tables import Column, Kind, escaped, fact_lines, print_line, table_lines

WIDTHS = (40, 80, 100, 120, 160)
_ATOMS = {
    Kind.ID: st.text("0123456789abcdef", min_size=32, max_size=32),
    Kind.NUMBER: st.floats(-1e12, 1e12).map(lambda number: f"{number:,.2f}"),
    Kind.WORD: st.sampled_from(
        ["waiting", "stopped_by_limit", "us-east-1a/p3.2xlarge", "学習", ""]
    ),
    Kind.SENTENCE: st.lists(st.integers(0, 10**12).map(str), max_size=30).map(" ".join),
}


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    kinds = draw(st.lists(st.sampled_from(list(Kind)), min_size=1, max_size=9))
    columns = [
        Column(f"col{index}", kind, draw(st.integers(0, 4))) for index, kind in enumerate(kinds)
    ]
    rows = draw(st.lists(st.tuples(*(_ATOMS[kind] for kind in kinds)), min_size=1, max_size=4))
    return columns, [list(row) for row in rows]


@pytest.mark.parametrize("width", WIDTHS)
@given(table=_tables())
def test_no_word_of_any_cell_is_cut_at_any_width(
    width: int, table: tuple[list[Column], list[list[str]]]
) -> None:
    columns, rows = table
    shown = table_lines(columns, rows, width)

    assert len(shown.rows) == len(rows)
    for lines, row in zip(shown.rows, rows, strict=True):
        words = re.split(r"\s+", " ".join(lines).strip())
        allowed = {word for cell in row for word in cell.split()}
        allowed |= {column.name for column in columns} | {"…", ""}
        assert set(words) <= allowed
        for column, cell in zip(columns, row, strict=True):
            if column.kind is not Kind.SENTENCE and column.name not in shown.dropped:
                assert set(cell.split()) <= set(words)


@pytest.mark.parametrize("width", WIDTHS)
@given(table=_tables())
def test_a_table_stays_within_its_width_or_is_vertical(
    width: int, table: tuple[list[Column], list[list[str]]]
) -> None:
    from rich.cells import cell_len

    columns, rows = table
    shown = table_lines(columns, rows, width)

    if shown.heading:
        lines = [shown.heading, *(line for row in shown.rows for line in row)]
        assert max(map(cell_len, lines)) <= width
    else:
        assert not shown.dropped
        assert any(column.rank == 0 for column in columns)


COLUMNS = (
    Column("job", Kind.ID),
    Column("done", Kind.NUMBER, rank=1),
    Column("tenant", rank=3),
    Column("why", Kind.SENTENCE, rank=2),
)
ROW = (
    "d" * 32,
    "1,234,567.89",
    "research",
    "it waits for a price below 0.52 USD per instance hour",
)


def test_a_narrow_table_drops_columns_in_their_stated_order() -> None:
    at = {width: table_lines(COLUMNS, [ROW], width).dropped for width in (110, 80, 50, 46, 40)}

    assert at == {
        110: (),
        80: ("tenant",),
        50: ("tenant", "why"),
        46: ("tenant", "why"),
        40: ("done", "tenant", "why"),
    }


def test_below_that_every_row_goes_vertical_with_all_it_has() -> None:
    shown = table_lines(COLUMNS, [ROW], 30)

    assert shown.heading == ""
    assert [line.split()[0] for line in shown.rows[0][:3]] == ["job", "done", "tenant"]
    assert " ".join(" ".join(shown.rows[0]).split()).endswith(ROW[3])


def test_a_sentence_is_shortened_between_words() -> None:
    shown = table_lines(COLUMNS, [ROW], 100)

    assert shown.rows[0][0].endswith("it waits for a price below 0.52 USD per …")


def test_without_a_width_everything_is_shown() -> None:
    assert ROW[3] in table_lines(COLUMNS, [ROW], None).rows[0][0]


def test_numbers_stand_at_the_right_of_their_column() -> None:
    shown = table_lines((Column("USD", Kind.NUMBER),), [("1.00",), ("100.00",)], 80)

    assert [row[0] for row in shown.rows] == ["  1.00", "100.00"]


def test_a_row_without_a_cell_for_each_column_is_refused() -> None:
    with pytest.raises(ValueError, match="a row must have 4 cells, had 1"):
        table_lines(COLUMNS, [("a",)], 80)


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert escaped(text).isprintable()
    assert escaped(text, several_lines=True).replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb", "a\\u202eb"),
        ("caf\udce9", "caf\\udce9"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("a\tb\nc", "a b c"),
        ("\x9b2J\r", "\\x9b2J\\r"),
        ("学習", "学習"),
    ],
)
def test_what_others_wrote_is_shown_as_text(written: str, shown: str) -> None:
    assert escaped(written) == shown
    assert fact_lines([("name", written)], None) == [f"name  {shown}"]


def test_a_line_that_is_said_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("\x1b]0;title\x07 done", style="bold red")

    assert capsys.readouterr().out == "\\x1b]0;title\\x07 done\n"
