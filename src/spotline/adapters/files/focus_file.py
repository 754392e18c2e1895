"""Files of FOCUS rows: CSV, packed or not, and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from spotline.adapters.whole_file import replacing
from spotline.application.focus.columns import COLUMNS, MONEY, QUANTITIES, VERSION
from spotline.application.focus.rows import FocusRow
from spotline.contracts.errors import ContractError

_ROWS_A_GROUP = 10_000
_MONEY = pa.decimal128(24, 6)
_QUANTITY = pa.decimal128(24, 9)


def check_focus_file(path: Path) -> None:
    """Refuse a name that does not say which kind of file is wanted.

    Raises
    ------
    ContractError
        It ends otherwise than in .csv, .csv.gz or .parquet.
    """
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ContractError(
            "--output",
            f"expected a name that ends in .csv, .csv.gz or .parquet, found {path.name!r}",
        )


def write_focus(path: Path, rows: Iterable[FocusRow]) -> None:
    """Write rows to a file of the kind that its name says; whole, or not at all.

    Raises
    ------
    ContractError
        See `check_focus_file`.
    OSError
        The folder is absent, not writable, or full.
    """
    check_focus_file(path)
    with replacing(path) as unfinished:
        if path.name.endswith(".parquet"):
            _write_parquet(unfinished, rows)
            return
        with unfinished.open("wb") as raw:
            if path.name.endswith(".gz"):
                # No time and no name in it: the same rows are the same bytes.
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    _write_csv(packed, rows)
            else:
                _write_csv(raw, rows)


def _write_csv(raw: IO[bytes] | gzip.GzipFile, rows: Iterable[FocusRow]) -> None:
    with io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True) as text:
        table = csv.DictWriter(text, COLUMNS, lineterminator="\r\n")
        table.writeheader()
        for row in rows:
            table.writerow({name: _cell(value) for name, value in row.items()})


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula; numbers of ours have no sign to be taken for."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _write_parquet(path: Path, rows: Iterable[FocusRow]) -> None:
    schema = pa.schema(
        [pa.field(name, _type_of(name)) for name in COLUMNS], metadata={"focus_version": VERSION}
    )
    remaining = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(remaining, _ROWS_A_GROUP)):
            columns = [pa.array(_values(name, group), _type_of(name)) for name in COLUMNS]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _type_of(column: str) -> pa.DataType:
    if column in MONEY:
        return _MONEY
    if column in QUANTITIES:
        return _QUANTITY
    return pa.string()


def _values(column: str, rows: Sequence[FocusRow]) -> list[str | Decimal | None]:
    return list(_typed(column, rows))


def _typed(column: str, rows: Sequence[FocusRow]) -> Iterator[str | Decimal | None]:
    number = column in MONEY or column in QUANTITIES
    for row in rows:
        text = row[column]
        if not text:
            yield None
        else:
            yield Decimal(text) if number else text
