"""Read tables of measured runs: CSV (gzip too) or Parquet, of any format in the registry.

Every row becomes a run or is refused with the reason; nothing is dropped without being counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotline.adapters.knowledge.cells import Row, RowRefused
from spotline.adapters.knowledge.mapping import Mapping
from spotline.adapters.knowledge.mappings.registry import mapping_for, mapping_named
from spotline.adapters.knowledge.store import is_knowledge_file, read_knowledge
from spotline.adapters.market.parse import read_text
from spotline.adapters.whole_file import opened
from spotline.contracts.errors import ContractError
from spotline.domain.configuration.configuration import MeasuredRun

KNOWLEDGE_FORMAT = "knowledge"

_PARQUET_MAGIC = b"PAR1"
# A CSV row that cannot be split into its fields.
_WHOLE_ROW = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that was not used.

    `row` is the line of a CSV file (its header is line 1), the row of a Parquet file (from 1).
    """

    file: str
    row: int
    field: str
    expected: str
    found: str

    @property
    def reason(self) -> str:
        """One sentence."""
        return f"expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """What a file held: runs that differ, and what was not used of it.

    `duplicates` are rows that repeat another one of the file in every respect;
    `unknown_columns` are those the format does not know, which were not read.
    """

    file: str
    format_name: str
    rows: int
    runs: tuple[MeasuredRun, ...]
    refused: tuple[RefusedRow, ...]
    duplicates: int
    unknown_columns: tuple[str, ...]

    @property
    def stacks(self) -> tuple[str, ...]:
        """Software the runs were measured with, sorted."""
        return tuple(sorted({run.stack for run in self.runs}))


def read_file(path: Path, *, format_name: str = "", stack: str = "") -> ImportedFile:
    """Read all runs of a file.

    Parameters
    ----------
    format_name
        A name in the registry; empty: whichever format the columns are of.
    stack
        What to call the software; empty: as the format says.

    Raises
    ------
    ContractError
        No such file, not a table, or none of the formats has these columns.
    """
    if is_knowledge_file(path) and format_name in ("", KNOWLEDGE_FORMAT):
        runs = read_knowledge(path)
        return ImportedFile(
            file=str(path),
            format_name=KNOWLEDGE_FORMAT,
            rows=len(runs),
            runs=runs,
            refused=(),
            duplicates=0,
            unknown_columns=(),
        )
    header, rows = _parquet(path) if _is_parquet(path) else _csv(path)
    columns = frozenset(header)
    if format_name:
        mapping = mapping_named(format_name)
        missing = sorted(mapping.required - columns)
        if missing:
            raise ContractError(
                str(path),
                f"expected the columns of {mapping.name}, found none called {', '.join(missing)}",
            )
    else:
        mapping = mapping_for(columns, str(path))
    return _read(path, mapping, stack or mapping.stack, header, rows)


def _read(
    path: Path,
    mapping: Mapping,
    stack: str,
    header: Sequence[str],
    rows: Iterator[tuple[int, Sequence[str]]],
) -> ImportedFile:
    runs: dict[MeasuredRun, None] = {}
    refused: list[RefusedRow] = []
    seen = 0
    for number, cells in rows:
        seen += 1
        try:
            runs[mapping.read(_row(header, cells), stack)] = None
        except RowRefused as problem:
            refused.append(
                RefusedRow(
                    file=str(path),
                    row=number,
                    field=problem.field,
                    expected=problem.expected,
                    found=problem.found,
                )
            )
    return ImportedFile(
        file=str(path),
        format_name=mapping.name,
        rows=seen,
        runs=tuple(runs),
        refused=tuple(refused),
        duplicates=seen - len(refused) - len(runs),
        unknown_columns=tuple(sorted(set(header) - mapping.used)),
    )


def _row(header: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) != len(header):
        raise RowRefused(_WHOLE_ROW, f"{len(header)} fields", str(len(cells)))
    return Row(cells=dict(zip(header, cells, strict=True)))


def _is_parquet(path: Path) -> bool:
    try:
        with opened(path) as stream:
            return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    except FileNotFoundError as error:
        raise ContractError(str(path), "expected a file, found none") from error
    except IsADirectoryError as error:
        raise ContractError(str(path), "expected a file, found a directory") from error
    except OSError as error:
        found = error.strerror or str(error)
        raise ContractError(str(path), f"expected a readable file, found: {found}") from error


def _csv(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[str]]]]:
    reader = csv.reader(io.StringIO(read_text(path)), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise ContractError(f"{path}: line 1", str(error)) from error
    _check_header(header, f"{path}: line 1")

    def rows() -> Iterator[tuple[int, Sequence[str]]]:
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise ContractError(f"{path}: line {reader.line_num}", str(error)) from error

    return header, rows()


def _parquet(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[str]]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream:
            table = pq.ParquetFile(stream).read()
    except (pa.ArrowException, OSError) as error:
        raise ContractError(
            str(path), f"expected a whole Parquet file, found a truncated or other file ({error})"
        ) from error
    header = list(table.column_names)
    _check_header(header, str(path))
    columns = [[_as_text(value) for value in column.to_pylist()] for column in table.columns]
    return header, iter(enumerate(zip(*columns, strict=True), start=1))


def _check_header(header: Sequence[str], where: str) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1 and name})
    if repeated:
        raise ContractError(where, f"expected unique columns, found {', '.join(repeated)} twice")


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)
