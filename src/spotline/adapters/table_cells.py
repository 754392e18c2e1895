"""Cells of tables from elsewhere as values, with what is wrong said by file, row and column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from spotline.adapters.market.parse import shown
from spotline.contracts.errors import ContractError
from spotline.domain.assessment.lines import Tags

_MICRO = Decimal(1_000_000)
_MOST_UNITS = Decimal(10) ** 12
_YEARS = range(1971, 2200)
_KEYS_MOST = 200


class Wrong(ValueError):
    """A cell that cannot be read: its column, and what was expected and found."""

    def __init__(self, column: str, expected: str, found: object) -> None:
        super().__init__(column)
        self.column = column
        self.expected = expected
        self.found = found

    def at(self, path: object, row: int) -> ContractError:
        """The error that a user sees."""
        return ContractError(
            f"{path}: row {row:,}, column {self.column}",
            f"expected {self.expected}, found {shown(self.found)}",
        )


def amount(value: Any, column: str, most: Decimal = _MOST_UNITS) -> Decimal:
    """A decimal of at most `most`, either side of 0; 0 where the cell is empty."""
    if value is None or value == "":
        return Decimal(0)
    try:
        # A float of Parquet is taken as it is written, not as the binary fraction that it is.
        found = Decimal(value if isinstance(value, str | int | Decimal) else str(value))
    except InvalidOperation as error:
        raise Wrong(column, "a decimal number such as 12.345", value) from error
    if not found.is_finite() or abs(found) > most:
        raise Wrong(column, f"a finite number of at most {most:,}", value)
    return found


class Carry:
    """Rounds amounts to micro-units so that their sum is the rounded sum: what is cut off is carried."""

    def __init__(self) -> None:
        self._exact: dict[str, Decimal] = {}
        self._given: dict[str, int] = {}

    def micro(self, money: Decimal, currency: str) -> int:
        """An amount of a currency as micro-units, with what amounts before it left over."""
        exact = self._exact.get(currency, Decimal(0)) + money * _MICRO
        self._exact[currency] = exact
        total = int(exact.to_integral_value(rounding=ROUND_HALF_EVEN))
        before = self._given.get(currency, 0)
        self._given[currency] = total
        return total - before


def whole_micro(money: Decimal) -> int:
    """Micro-units, half to even; for what is not added up with a bill."""
    return int((money * _MICRO).to_integral_value(rounding=ROUND_HALF_EVEN))


def time_s(value: Any, column: str) -> tuple[int, bool]:
    """Seconds since the epoch, and whether the text named no zone (it is then taken as UTC)."""
    if isinstance(value, int):
        return value, False
    try:
        return _parsed_time(str(value or ""))
    except ValueError as error:
        raise Wrong(column, "a time such as 2026-11-01T00:00:00Z", value) from error


@lru_cache(maxsize=100_000)
def _parsed_time(text: str) -> tuple[int, bool]:
    at = datetime.fromisoformat(text.strip().replace(" UTC", "+00:00"))
    naive = at.tzinfo is None
    if at.year not in _YEARS:
        raise ValueError(text)
    return int((at.replace(tzinfo=UTC) if naive else at).timestamp()), naive


def tags(value: Any, column: str) -> Tags:
    """Tags in order of their keys: a JSON object, a list of keys and values, or a map of Parquet."""
    if not value:
        return ()
    if isinstance(value, str):
        return _parsed_tags(value, column)
    return _in_order(_pairs(value, column))


@lru_cache(maxsize=100_000)
def _parsed_tags(text: str, column: str) -> Tags:
    if text in ("{}", "[]"):
        return ()
    return _in_order(_pairs(json_cell(text, column), column))


def json_cell(text: str, column: str) -> Any:
    """The JSON of a cell."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Wrong(column, "JSON", text) from error


def _pairs(value: Any, column: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list):
        if all(isinstance(each, Mapping) and "key" in each for each in value):
            return [(each["key"], each.get("value")) for each in value]
        if all(isinstance(each, list | tuple) and len(each) == 2 for each in value):
            return [(each[0], each[1]) for each in value]
    raise Wrong(column, "an object, or a list of keys and values", value)


def _in_order(pairs: Iterable[tuple[Any, Any]]) -> Tags:
    found = {str(key)[:_KEYS_MOST]: str(value)[:_KEYS_MOST] for key, value in pairs if value}
    return tuple(sorted(found.items()))
