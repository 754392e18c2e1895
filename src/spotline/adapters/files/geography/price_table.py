"""Tables of prices, CSV or Parquet: a column of times, one of prices, others to choose rows by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.parse import read_csv, time_ns
from spotline.adapters.whole_file import opened
from spotline.contracts.errors import ContractError
from spotline.domain.units import ns_from_datetime

# Twenty years of hours for 50 zones.
_MOST_ROWS = 10_000_000
# As times of text are read.
_FIRST_NS = ns_from_datetime(datetime(1971, 1, 1, tzinfo=UTC))
_LAST_NS = ns_from_datetime(datetime(2200, 1, 1, tzinfo=UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The cells of a file by column, and where each row is.

    Attributes
    ----------
    instants
        Columns that hold times already, as nanoseconds since the epoch, UTC.
    """

    path: Path
    rows: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    instants: frozenset[str] = frozenset()

    def prices(
        self, *, time: str, price: str, only: Mapping[str, str]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Times, ascending, and the prices from each until the next.

        Parameters
        ----------
        time, price
            Columns. A time is ISO 8601 with its offset from UTC, or a Parquet timestamp that has a
            time zone.
        only
            What other columns must hold for a row to count.

        Raises
        ------
        ContractError
            A column is missing, a cell is not what it should be, a time has two prices, or no row
            is left.
        """
        times, prices = self._column(time), self._column(price)
        wanted = [(self._column(name), value) for name, value in only.items()]
        found: dict[int, float] = {}
        for row, where in enumerate(self.rows):
            if any(str(cells[row]) != value for cells, value in wanted):
                continue
            ts_ns = self._time_ns(time, times[row], f"{where}, field {time}")
            if ts_ns in found:
                raise ContractError(
                    where,
                    f"expected one price per time, found {times[row]} again; "
                    "choose rows by a column with `only`",
                )
            found[ts_ns] = _number(prices[row], f"{where}, field {price}")
        if not found:
            chosen = ", ".join(f"{name}: {value}" for name, value in only.items())
            raise ContractError(str(self.path), f"expected rows with {chosen or 'prices'}")
        ordered = sorted(found)
        return np.array(ordered, dtype=np.int64), np.array([found[ts_ns] for ts_ns in ordered])

    def _column(self, name: str) -> Sequence[Any]:
        if name not in self.columns:
            known = ", ".join(self.columns) or "nothing"
            raise ContractError(str(self.path), f"expected the column {name}, found {known}")
        return self.columns[name]

    def _time_ns(self, column: str, cell: Any, where: str) -> int:
        if column in self.instants and cell is not None:
            if not _FIRST_NS <= cell < _LAST_NS:
                raise ContractError(where, "expected a year in 1971..2199, found another")
            return int(cell)
        if isinstance(cell, str) or cell is None:
            return time_ns(cell, where)
        raise ContractError(
            where,
            "expected a time with UTC offset such as 2026-01-01T00:00:00Z, or a timestamp with a "
            f"time zone, found {cell!r}",
        )


def read_price_csv(path: Path) -> PriceTable:
    """Read a CSV file with a header, gzip or not; `ContractError` where that is not what it is."""
    rows: list[str] = []
    columns: dict[str, list[str]] = {}
    for where, row in read_csv(path, ()):
        rows.append(where)
        for name, cell in row.items():
            columns.setdefault(name, []).append(cell)
    if not rows:
        raise ContractError(str(path), "expected rows of prices, found none")
    return PriceTable(path=path, rows=rows, columns=columns)


def read_price_parquet(path: Path) -> PriceTable:
    """Read a Parquet file; `ContractError` where that is not what it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with opened(path) as stream:
            file = pq.ParquetFile(stream)
            if file.metadata.num_rows > _MOST_ROWS:
                raise ContractError(
                    str(path),
                    f"expected at most {_MOST_ROWS:,} rows, found {file.metadata.num_rows:,}",
                )
            table = file.read()
        columns: dict[str, Sequence[Any]] = {}
        instants = set()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_timestamp(column.type):
                if column.type.tz is not None:
                    instants.add(name)
                # Python's own datetimes hold no nanoseconds.
                column = column.cast(pa.timestamp("ns", tz=column.type.tz)).cast(pa.int64())
            columns[name] = column.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ContractError(
            str(path), f"expected a whole Parquet file, found a truncated or other file ({error})"
        ) from error
    return PriceTable(
        path=path,
        rows=[f"{path}: row {number}" for number in range(1, table.num_rows + 1)],
        columns=columns,
        instants=frozenset(instants),
    )


def _number(cell: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError) as error:
        raise ContractError(where, f"expected a number, found {cell!r}") from error
    if not math.isfinite(number):
        raise ContractError(where, f"expected a number, found {cell!r}")
    return number
