"""Read the cells of one row as text, numbers and counts, or say which one is wrong and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spotline.domain.configuration.configuration import MethodOption

# What tables write where they have nothing.
_NOTHING = frozenset({"", "nan", "none", "null", "na", "n/a", "-"})
_TRUE = frozenset({"1", "1.0", "true", "yes"})
_FALSE = frozenset({"0", "0.0", "false", "no"})
_PRECISIONS = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "fp32": "float32",
    "float32": "float32",
    "fp8": "fp8",
}
_LARGEST_COUNT = 10**9


class RowRefused(Exception):
    """A row cannot be used: the field at fault, what was expected there and what was found."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"field {field}: expected {expected}, found {found}")
        self.field = field
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cells of a row by column; a column that the table does not have reads as an empty cell."""

    cells: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether there is something in the cell; `NaN` and `None` are nothing."""
        return self.cells.get(name, "").strip().lower() not in _NOTHING

    def text(self, name: str, otherwise: str | None = None) -> str:
        """Text of a cell; `otherwise` where it is empty, refused where that is None."""
        if self.has(name):
            return self.cells[name].strip()
        if otherwise is None:
            raise RowRefused(name, "a value", self._found(name))
        return otherwise

    def number(self, name: str, otherwise: float | None = None) -> float:
        """A finite number >= 0."""
        expected = "a finite number >= 0"
        if not self.has(name) and otherwise is not None:
            return otherwise
        value = self._float(name, expected)
        if not math.isfinite(value) or value < 0:
            raise RowRefused(name, expected, self.cells[name].strip())
        return value

    def positive(self, name: str) -> float:
        """A finite number > 0."""
        value = self.number(name)
        if value == 0:
            raise RowRefused(name, "a finite number > 0", self.cells[name].strip())
        return value

    def count(self, name: str, otherwise: int | None = None) -> int:
        """A whole number >= 1; `8.0` is one."""
        expected = "a whole number >= 1"
        if not self.has(name) and otherwise is not None:
            return otherwise
        value = self._float(name, expected)
        if not 1 <= value <= _LARGEST_COUNT or value != int(value):
            raise RowRefused(name, expected, self.cells[name].strip())
        return int(value)

    def _float(self, name: str, expected: str) -> float:
        if not self.has(name):
            raise RowRefused(name, expected, self._found(name))
        text = self.cells[name].strip()
        try:
            return float(text)
        except ValueError as error:
            raise RowRefused(name, expected, repr(text)) from error

    def flag(self, name: str, otherwise: bool | None = None) -> bool:
        """True or false, written as 1 or 0, true or false, yes or no."""
        text = self.cells.get(name, "").strip().lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        if text in _NOTHING and otherwise is not None:
            return otherwise
        raise RowRefused(name, "1 or 0", self._found(name))

    def precision(self, name: str, otherwise: str) -> str:
        """Number format, as configurations write it."""
        text = self.text(name, otherwise).lower().removeprefix("torch.")
        if text not in _PRECISIONS:
            raise RowRefused(name, f"one of {', '.join(sorted(_PRECISIONS))}", repr(text))
        return _PRECISIONS[text]

    def choice(self, name: str, known: Mapping[str, str]) -> str:
        """What `known` has for the cell's lower-cased text."""
        text = self.text(name).lower()
        if text not in known:
            raise RowRefused(name, f"one of {', '.join(sorted(known))}", repr(text))
        return known[text]

    def _found(self, name: str) -> str:
        if name not in self.cells:
            return "no such column"
        return repr(self.cells[name].strip()) if self.cells[name].strip() else "nothing"


def options(**values: str | int | bool) -> tuple[MethodOption, ...]:
    """Method options in order; booleans become `true` and `false`, empty text is left out."""
    written = {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    return tuple(
        MethodOption(name=name, value=value) for name, value in sorted(written.items()) if value
    )
