"""Turn text, bytes and files of any source into valid values, or say what is wrong and where.

Every error is a `ContractError` whose `where` names the file, the row and the field, and whose
message says what was expected and what was found.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from spotline.adapters.whole_file import opened, readable
from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD
from spotline.domain.units import MICRO_USD_PER_USD, micro_usd_from_usd, ns_from_datetime

MOST_BYTES = 1 << 28
"""A text may have so many bytes, unpacked: a year of a thousand offerings in slots of an hour."""

_LONGEST_SHOWN = 80
_MOST_SHOWN = 12
_LONGEST_ID = 200
_GZIP_MAGIC = b"\x1f\x8b"
_TIME_EXPECTED = "expected a time with UTC offset such as 2026-01-01T00:00:00Z"

DEAREST_USD_PER_HOUR = MOST_PRICE_MICRO_USD // MICRO_USD_PER_USD
MOST_INSTANCES = 1_000_000
_MUST = re.compile(
    r"(?P<field>[\w.]+)(?: of an offering)? must (?:be )?(?P<expected>.+?)(?:, was (?P<found>.+))?",
    re.DOTALL,
)
_YEARS = range(1971, 2200)  # int64 nanoseconds end in 2262


def shown(value: object) -> str:
    """Show a value of a file on a short line."""
    text = repr(value[: 2 * _LONGEST_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def names(known: Iterable[str]) -> str:
    """Names in a row, of many the first; long ones are cut."""
    listed = list(known)
    row = ", ".join(
        name if len(name) <= _LONGEST_SHOWN else f"{name[: _LONGEST_SHOWN - 3]}..."
        for name in listed[:_MOST_SHOWN]
    )
    more = len(listed) - _MOST_SHOWN
    return f"{row} and {more:,} more" if more > 0 else row


def check_offering_id(offering_id: str, where: str) -> None:
    """Refuse an id that could not be shown or be part of a name; raises ContractError."""
    if not offering_id.isprintable() or not 0 < len(offering_id) <= _LONGEST_ID:
        raise ContractError(
            where,
            f"expected 1 to {_LONGEST_ID} printable characters, found {shown(offering_id)}"
            + (f" ({len(offering_id):,} characters)" if len(offering_id) > _LONGEST_ID else ""),
        )


def refusal_of(error: ValueError, where: str) -> ContractError:
    """What one of our values says of what it refuses (`X must be Y, was Z`), in a file's words."""
    match = _MUST.fullmatch(str(error))
    if match is None:
        return ContractError(where, str(error))
    field_name = match["field"].rpartition(".")[2]
    found = match["found"] or "something else"
    return ContractError(
        f"{where}, field {field_name}", f"expected {match['expected']}, found {found}"
    )


def read_text(path: Path) -> str:
    """Read a UTF-8 text file, gunzipped where it is compressed.

    Raises
    ------
    ContractError
        The file is absent, truncated, too large, or not UTF-8.
    """
    with readable(path):
        with opened(path) as stream:
            content = stream.read(MOST_BYTES + 1)
        if content.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked:
                content = unpacked.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ContractError(str(path), f"expected at most {MOST_BYTES:,} bytes, found more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ContractError(
            str(path), f"expected UTF-8 text, found byte {error.start} undecodable"
        ) from error


def read_json(path: Path) -> Any:
    """Read one JSON document, gunzipped where it is compressed; raises ContractError."""
    return json_value(read_text(path), str(path))


def json_value(text: str, where: str) -> Any:
    """Parse one JSON value; raises ContractError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(
            where,
            f"expected complete JSON, found line {error.lineno} column {error.colno}: {error.msg}",
        ) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or as many brackets.
        raise ContractError(where, f"expected JSON that can be read, found {error}") from error


def read_csv(path: Path, required: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (where, row) for every row of a CSV file with a header; `where` names file and line.

    Raises
    ------
    ContractError
        A required column is missing, or a row has too few or too many fields.
    """
    text = read_text(path)
    if not text:
        raise ContractError(f"{path}: line 1", "expected the names of columns, found an empty file")
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise ContractError(f"{path}: line 1", f"expected CSV, found: {error}") from error
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise ContractError(
            f"{path}: line 1", f"expected each column once, found {', '.join(twice)} again"
        )
    for name in required:
        if name not in header:
            raise ContractError(
                f"{path}: line 1",
                f"expected the column {name}, found {names(header) or 'nothing'}",
            )
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise ContractError(
                f"{path}: line 1", f"expected each column once, found {shown(name)} again"
            )
        seen.add(name)
    if not text.endswith("\n"):
        # A file cut in the middle of a number would still parse.
        raise ContractError(
            f"{path}: last line", "expected a line ending, found the end: is the file truncated?"
        )
    try:
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            if len(row) != len(header):
                raise ContractError(where, f"expected {len(header)} fields, found {len(row)}")
            yield where, dict(zip(header, row, strict=True))
    except csv.Error as error:
        where = f"{path}: line {reader.line_num}"
        raise ContractError(where, f"expected CSV, found: {error}") from error


def field(mapping: Any, name: str, where: str) -> Any:
    """Take a field of a JSON object; raises ContractError."""
    if not isinstance(mapping, dict):
        raise ContractError(where, f"expected an object, found {type(mapping).__name__}")
    if name not in mapping:
        found = names(sorted(mapping)) or "nothing"
        raise ContractError(where, f"expected the field {name}, found {found}")
    return mapping[name]


def _cut(value: object) -> str:
    """A number as it was written, not quoted; a long one is cut."""
    return shown(value).strip("'\"")


def price_micro_usd(value: object, where: str) -> int:
    """Convert a price in USD, as text or number, to micro-USD (> 0); raises ContractError."""
    try:
        usd = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ContractError(where, f"expected a price in USD > 0, found {shown(value)}") from error
    if not usd.is_finite() or not 0 < usd <= DEAREST_USD_PER_HOUR:
        raise ContractError(
            where, f"expected a price in USD > 0 and <= {DEAREST_USD_PER_HOUR}, found {_cut(value)}"
        )
    micro_usd = micro_usd_from_usd(usd)
    if micro_usd == 0:
        raise ContractError(
            where,
            f"expected a price of at least {1 / MICRO_USD_PER_USD:f} USD, found {_cut(value)}",
        )
    return micro_usd


def count(value: object, where: str) -> int:
    """Convert a whole number such as a count of instances, as text or number; raises ContractError."""
    expected = f"expected a whole number in 0..{MOST_INSTANCES}"
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation as error:
        raise ContractError(where, f"{expected}, found {shown(value)}") from error
    if isinstance(value, bool) or not number.is_finite() or not 0 <= number <= MOST_INSTANCES:
        raise ContractError(where, f"{expected}, found {_cut(value)}")
    if number != int(number):
        raise ContractError(where, f"{expected}, found {_cut(value)}")
    return int(number)


def time_ns(value: object, where: str) -> int:
    """Convert an ISO 8601 time with UTC offset to nanoseconds since the epoch.

    Raises
    ------
    ContractError
        Not a time, or one without UTC offset.
    """
    if not isinstance(value, str):
        raise ContractError(where, f"{_TIME_EXPECTED}, found {shown(value)}")
    try:
        moment = datetime.fromisoformat(value.strip())
        if moment.year in _YEARS:
            return ns_from_datetime(moment)
    except ValueError as error:
        raise ContractError(where, f"{_TIME_EXPECTED}, found {shown(value)}") from error
    raise ContractError(
        where, f"expected a year in {_YEARS.start}..{_YEARS.stop - 1}, found {value!r}"
    )
