"""A bill of any kind, read in a stream: which export it is, its rows as lines, rows given twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from spotline.adapters.bills.cur import REQUIRED as CUR_REQUIRED
from spotline.adapters.bills.cur import REQUIRED_2 as CUR_2_REQUIRED
from spotline.adapters.bills.cur import CurReader
from spotline.adapters.bills.focus import REQUIRED as FOCUS_REQUIRED
from spotline.adapters.bills.focus import FocusReader
from spotline.adapters.bills.gcp import REQUIRED as GCP_REQUIRED
from spotline.adapters.bills.gcp import GcpReader
from spotline.adapters.bills.table import BillTable
from spotline.adapters.market.parse import names as listed
from spotline.adapters.table_cells import Wrong
from spotline.contracts.errors import ContractError
from spotline.domain.assessment.clock import may_go_back
from spotline.domain.assessment.lines import BillReading, ExportLine, LineKind

_MARK_BYTES = 12
_ENDINGS = (".csv", ".csv.gz", ".parquet")


class LineReader(Protocol):
    """Turns the rows of one kind of export into lines."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns it reads; a row's cells come in their order."""

    @property
    def naive(self) -> bool:
        """Whether the times of the last row named no zone."""

    def may_repeat(self, cells: tuple[Any, ...]) -> bool:
        """Whether a row like this that comes again is the same charge, not another one alike."""

    def lines(self, number: int, cells: tuple[Any, ...]) -> Iterator[ExportLine]:
        """The lines of a row, at least one; raises `Wrong`."""

    def finish(self) -> Iterator[ExportLine]:
        """What only the whole bill tells, after all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How an export is known: by columns that it must have."""

    name: str
    required: Sequence[str]
    reader: Callable[[Sequence[str]], LineReader]

    @property
    def telling(self) -> str:
        """What to look for in a header."""
        return f"{self.name}: {listed(self.required)}"


KINDS = (
    _Kind(name="FOCUS", required=FOCUS_REQUIRED, reader=FocusReader),
    _Kind(name="AWS Cost and Usage Report", required=CUR_REQUIRED, reader=CurReader),
    _Kind(name="AWS CUR 2.0", required=CUR_2_REQUIRED, reader=CurReader),
    _Kind(name="Google Cloud billing export", required=GCP_REQUIRED, reader=GcpReader),
    _Kind(
        name="Google Cloud billing export, flattened with underscores",
        required=[name.replace(".", "_") for name in GCP_REQUIRED],
        reader=GcpReader,
    ),
)


@dataclass(slots=True)
class _Repeats:
    """Rows that stood in the file before: how many, and what they would have added."""

    marks: set[bytes] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)
    micro: dict[str, int] = field(default_factory=dict)
    of_night: list[ExportLine] = field(default_factory=list)

    def seen(self, cells: tuple[Any, ...]) -> bool:
        """Whether a row is the same as one before; notes it."""
        mark = blake2b(repr(cells).encode(), digest_size=_MARK_BYTES).digest()
        if mark in self.marks:
            return True
        self.marks.add(mark)
        return False

    def note(self, reader: LineReader, lines: Sequence[ExportLine]) -> None:
        """Count a row that stood there before, or keep it where a clock set back explains it."""
        first = lines[0]
        if reader.naive and first.kind is LineKind.INSTANCE and may_go_back(first.begin_s):
            self.of_night += lines
            return
        self._count(lines)

    def of_clock(self) -> Sequence[ExportLine]:
        """Rows of an hour that came twice: both are charges, unless the whole file stands twice."""
        if not self.rows:
            return self.of_night
        for line in self.of_night:
            self._count((line,))
        return ()

    def _count(self, lines: Sequence[ExportLine]) -> None:
        currency = lines[0].currency
        self.rows[currency] = self.rows.get(currency, 0) + 1
        self.micro[currency] = self.micro.get(currency, 0) + sum(line.micro for line in lines)


class BillFile:
    """A bill's lines, once; `reading` says afterwards how it was read.

    Parameters
    ----------
    path
        A file, or a folder with the files of one export.

    Raises
    ------
    ContractError
        It cannot be read, or has the columns of no kind of export that is known.
    """

    def __init__(self, path: Path) -> None:
        self._tables = [BillTable(each) for each in files_of(path)]
        self._kind = _kind_of(self._tables[0])
        for table in self._tables[1:]:
            if _kind_of(table) is not self._kind:
                raise ContractError(
                    str(table.path), f"expected {self.kind} as before, found {_kind_of(table).name}"
                )
        self._rows = 0
        self._naive = 0
        self._repeats = _Repeats()

    @property
    def kind(self) -> str:
        """The export's name."""
        return self._kind.name

    @property
    def reading(self) -> BillReading:
        """Of the lines yielded so far."""
        return BillReading(
            kind=self.kind,
            rows=self._rows,
            naive_rows=self._naive,
            duplicate_rows=_items(self._repeats.rows),
            duplicate_micro=_items(self._repeats.micro),
        )

    def lines(self) -> Iterator[ExportLine]:
        """The lines; rows that stood there before are left out.

        Raises
        ------
        ContractError
            A cell cannot be read, or there is no row; names file, row and column.
        """
        # What is not charged must not touch what the other rounds and carries, hence two of each.
        readers: dict[tuple[str, ...], tuple[LineReader, LineReader]] = {}
        for table in self._tables:
            if table.names not in readers:
                readers[table.names] = (
                    self._kind.reader(table.names),
                    self._kind.reader(table.names),
                )
            yield from self._of_table(table, *readers[table.names])
        yield from self._repeats.of_clock()
        for reader, _ in readers.values():
            yield from reader.finish()
        if not self._rows:
            raise ContractError(
                str(self._tables[0].path), "expected rows, found none but the header"
            )

    def _of_table(
        self, table: BillTable, reader: LineReader, aside: LineReader
    ) -> Iterator[ExportLine]:
        for number, cells in table.rows(reader.columns):
            self._rows += 1
            try:
                if reader.may_repeat(cells) and self._repeats.seen(cells):
                    self._repeats.note(aside, list(aside.lines(number, cells)))
                    self._naive += aside.naive
                    continue
                yield from reader.lines(number, cells)
            except Wrong as error:
                raise error.at(table.path, number) from error
            self._naive += reader.naive


def files_of(path: Path) -> Sequence[Path]:
    """The file, or of a folder the files of an export, wherever in it; in order of their names.

    Raises
    ------
    ContractError
        It is a folder without any.
    """
    if not path.is_dir():
        return (path,)
    found = sorted(each for each in path.rglob("*") if each.name.endswith(_ENDINGS))
    if not found:
        raise ContractError(
            str(path),
            f"expected a file, or a folder with {', '.join(_ENDINGS)} in it, found neither",
        )
    return found


def _items(of: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(of.items()))


def _kind_of(table: BillTable) -> _Kind:
    there = set(table.names)
    for kind in KINDS:
        if there.issuperset(kind.required):
            return kind
    nearest = max(KINDS, key=lambda kind: len(there.intersection(kind.required)))
    missing = [name for name in nearest.required if name not in there]
    if len(missing) < len(nearest.required):
        raise ContractError(
            f"{table.path}: line 1",
            f"expected the columns of {nearest.telling}, found it without {listed(missing)}",
        )
    kinds = "; ".join(kind.telling for kind in KINDS)
    raise ContractError(
        f"{table.path}: line 1",
        f"expected the columns of a bill ({kinds}), found {listed(table.names)}",
    )
