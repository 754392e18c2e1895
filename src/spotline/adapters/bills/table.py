"""Rows of a table in a file, in batches: CSV, packed or not, and Parquet, told by their first bytes."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from spotline.adapters.market.parse import names as listed
from spotline.adapters.whole_file import opened, readable
from spotline.contracts.errors import ContractError

MOST_ROWS = 10_000_000
"""A bill may have so many: its rows are read in a stream, but repeated ones are found by a mark each."""

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_BLOCK_BYTES = 8 << 20
_BATCH_ROWS = 20_000
_HEADER_BYTES = 1 << 20

Row = tuple[int, tuple[Any, ...]]
"""Its number in the file, the header being 1, and the cells that were asked for; "" or None: empty."""


class BillTable:
    """A file of rows under named columns.

    Raises
    ------
    ContractError
        It is absent, cannot be read, is empty, or names a column twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path), opened(path) as stream:
            start = stream.read(4)
            stream.seek(0)
            self._parquet = start == _PARQUET
            self._packed = start.startswith(_GZIP)
            self.names = _schema_names(stream) if self._parquet else self._header(stream)
        if not self.names:
            raise ContractError(str(path), "expected a table with a header, found an empty file")

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """The cells of those columns, row by row; None where the file has no such column.

        Raises
        ------
        ContractError
            The file breaks off, a row has other columns than the header, or there are too many.
        """
        number = 1
        with _readable(self.path), opened(self.path) as stream:
            present = [name for name in columns if name in self.names]
            batches = self._parquet_batches if self._parquet else self._csv_batches
            for batch in batches(stream, present):
                found = {name: _cells(batch.column(name)) for name in present}
                nothing: list[None] = [None] * batch.num_rows
                for cells in zip(*(found.get(name, nothing) for name in columns), strict=True):
                    number += 1
                    yield number, cells
                if number > MOST_ROWS:
                    raise ContractError(
                        str(self.path),
                        f"expected at most {MOST_ROWS:,} rows, found more: leave out services "
                        "without machines, or give a shorter period",
                    )

    def _header(self, stream: BinaryIO) -> tuple[str, ...]:
        unpacked = gzip.GzipFile(fileobj=stream) if self._packed else stream
        text = unpacked.read(_HEADER_BYTES).decode("utf-8-sig", errors="replace")
        first = next(csv.reader(io.StringIO(text)), [])
        twice = sorted({name for name in first if first.count(name) > 1})
        if twice:
            raise ContractError(
                f"{self.path}: line 1", f"expected each column once, found {listed(twice)} again"
            )
        return tuple(first)

    def _csv_batches(self, stream: BinaryIO, present: Sequence[str]) -> Iterator[pa.RecordBatch]:
        unpacked = gzip.GzipFile(fileobj=stream) if self._packed else stream
        yield from pa_csv.open_csv(
            unpacked,
            # The names are given: a header that starts with a mark of byte order is then no matter.
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK_BYTES, column_names=list(self.names), skip_rows=1
            ),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(present),
                column_types={name: pa.string() for name in present},
                strings_can_be_null=False,
            ),
        )

    def _parquet_batches(
        self, stream: BinaryIO, present: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        # A column within another has the outer one's name before a dot; legacy names have dots too.
        file = pq.ParquetFile(stream)
        outer = set(file.schema_arrow.names)
        tops = [name if name in outer else name.partition(".")[0] for name in present]
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(tops))):
            yield from _flat(pa.Table.from_batches([batch])).to_batches()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of what cannot be read which file it is, and what was expected."""
    with readable(path):
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            found = " ".join(str(error).split())[:200]
            raise ContractError(
                str(path), f"expected complete CSV or Parquet, found: {found}"
            ) from error


def _schema_names(stream: BinaryIO) -> tuple[str, ...]:
    return tuple(_flat(pq.ParquetFile(stream).schema_arrow.empty_table()).column_names)


def _flat(table: pa.Table) -> pa.Table:
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _cells(column: pa.Array) -> list[Any]:
    """As Python values; times as whole seconds since the epoch, those without a zone being in UTC."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        seconds = column.cast(pa.timestamp("s", tz=kind.tz), safe=False)
        return list(seconds.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())
