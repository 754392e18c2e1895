"""The kinds of fields that our files have, each with what is said where a value is none of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from spotline.adapters.files.mistake import (
    MOST_SHOWN,
    WHOLE_FILE,
    BadFile,
    Mistake,
    known_field,
    shown,
    shown_key,
)
from spotline.adapters.files.units import (
    A_DURATION,
    A_SIZE,
    AN_AMOUNT,
    amount_of,
    gigabytes_of,
    seconds_of,
)
from spotline.contracts.limits import LONGEST_NAME
from spotline.domain.units import ns_from_datetime

A_TIME = "a time with its UTC offset, such as 2026-03-01T18:00:00Z or 2026-03-01T18:00:00+02:00"
_YEARS = range(1971, 2200)  # int64 nanoseconds end in 2262
# Also what reorders text: a name that others read must not look like another one.
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_MOST_USD = 1e12  # in micro-USD it fits a message's 64 bits
_LONGEST_S = 10**9
LONGEST_TEXT = 1_000
"""Characters of a name, an id or a place; each job's go with every request to allocate."""


def expected(what: str, *, at: str = "", found: str = "") -> PydanticCustomError:
    """Make the error of a field, or of one that only shows to be wrong beside others.

    Parameters
    ----------
    at
        Path below the value that is read; empty: the value itself.
    found
        What was found there; empty: the value itself.
    """
    # Braces of the text would be taken for placeholders.
    return PydanticCustomError("expected", "{what}", {"what": what, "at": at, "found": found})


@dataclass(frozen=True, slots=True)
class FieldRow:
    """What a field becomes, and what the documentation says of it.

    Attributes
    ----------
    wire
        Path of the message's field that carries it; `[]` stands for an index.
    cells
        The rest of its row in the documentation: `UNIT | DEFAULT | MEANING`.
    to
        Turns a value into the domain's; as it is without one.
    empty
        What the domain has where nothing is stated.
    """

    wire: str = ""
    cells: str = ""
    to: Callable[[Any], Any] | None = None
    empty: Any = None

    @property
    def unit(self) -> str:
        """The unit, as the documentation has it; empty without one."""
        return self.cells.partition("|")[0].strip()


class Part(BaseModel):
    """A mapping of a file; unknown fields are refused."""

    # What a file holds may be a secret in the wrong place: no traceback quotes it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


PartT = TypeVar("PartT", bound=Part)


# --- kinds of fields --------------------------------------------------------------------------


def no_bool(value: Any) -> Any:
    """Refuse true and false where a number belongs."""
    # YAML's yes and on are true, which Python counts as 1.
    if isinstance(value, bool):
        raise expected("a number")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise expected("a finite number")
    return value


def _one_line(value: str) -> str:
    if _NOT_SHOWN.search(value):
        raise expected("text of one line without control characters")
    return value


def time_ns(value: Any, what: str = A_TIME) -> int:
    """Read a time as ns since the epoch; raises the error of a field that expects `what`."""
    if not isinstance(value, str):
        raise expected(what)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise expected(what) from None
    if moment.utcoffset() is None:
        raise expected(what)
    if moment.year not in _YEARS:
        raise expected(f"a year in {_YEARS.start}..{_YEARS.stop - 1}")
    return ns_from_datetime(moment)


def _amount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = amount_of(value)
    if found is None or found[1]:
        raise expected(AN_AMOUNT)
    return found[0]


def _tokens(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = amount_of(value)
    if found is None or found[1] not in ("", "tokens"):
        raise expected(f"{AN_AMOUNT}, of tokens")
    return found[0]


def _size_gb(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    size = gigabytes_of(value)
    if size is not None:
        return size
    found = amount_of(value)
    if found is None or found[1] or not value.strip()[-1:].isdigit():
        raise expected(A_SIZE)
    return found[0]


def duration(value: Any) -> Any:
    """Read text such as `1h30m` as seconds; other values are as they are."""
    if not isinstance(value, str):
        return value
    seconds = seconds_of(f"{value}s" if value.strip().isdecimal() else value)
    if seconds is None:
        raise expected(A_DURATION)
    return seconds


def no_nul(value: str) -> str:
    """Text that an operating system can pass on."""
    if "\0" in value:
        raise expected("text without NUL characters")
    return value


Number = Annotated[float, BeforeValidator(no_bool), AfterValidator(_finite)]
Positive = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Usd = Annotated[NotNegative, Field(le=_MOST_USD)]
Count = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=1 << 40)]
Whole = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=1 << 40)]
Seconds = Annotated[
    int, BeforeValidator(no_bool), BeforeValidator(duration), Field(ge=0, le=_LONGEST_S)
]
AnyAmount = Annotated[Number, BeforeValidator(_amount)]
Amount = Annotated[AnyAmount, Field(gt=0)]
Tokens = Annotated[Number, BeforeValidator(_tokens), Field(gt=0)]
SizeGb = Annotated[Number, BeforeValidator(_size_gb), Field(ge=0)]
TimeNs = Annotated[int, BeforeValidator(time_ns)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_one_line)]
Stated = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT), AfterValidator(_one_line)]
# Names and ids come back in subjects, rows and other people's terminals.
Label = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_one_line)]


# --- reading ----------------------------------------------------------------------------------


def read_part(part: type[PartT], content: Any, *, where: str) -> PartT:
    """Read what a file holds.

    Raises
    ------
    BadFile
        Fields are not as expected: names each of them, where it stands and what was found.
    """
    try:
        return part.model_validate(content)
    except ValidationError as error:
        raise BadFile(where, mistakes_of(error, part)) from error


def mistakes_of(error: ValidationError, part: type[Part]) -> list[Mistake]:
    """Turn what pydantic found in a part into ours."""
    told = [found for found in error.errors(include_url=False) if not _counted_twice(found)]
    # Only the first ones are shown; for each of 200,000 unknown fields the nearest known one would
    # be looked for.
    return [
        _mistake(found, part) if number < MOST_SHOWN else _unnamed(found)
        for number, found in enumerate(told)
    ]


def _unnamed(error: Any) -> Mistake:
    """A mistake that is only counted."""
    return Mistake(
        field=path_of(error["loc"]) or WHOLE_FILE, expected="another value", found="what it is"
    )


def _counted_twice(error: Any) -> bool:
    """Whether a list is only too short as pydantic leaves out its wrong entries, said already."""
    return bool(error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"])


# Steps of pydantic's that say which form of a value it is; they are no keys of the file.
_FORM = re.compile(r"\[key\]|<\w+>")
_NUMBERS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
_EXPECTED: Mapping[str, str] = {
    "missing": "this field",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of 64 bits",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "too_short": "at least one entry",
}


# Fields into which a secret is easily written instead of its name, or beside an address.
_SECRET_PLACES = frozenset({"jwks_url", "secrets"})
_UNSAID = "another value (not shown: it may be a secret)"


def _mistake(error: Any, part: type[Part]) -> Mistake:
    kind, context = error["type"], error.get("ctx", {})
    steps = [step for step in error["loc"] if not _FORM.fullmatch(str(step))]
    field = path_of(steps) or WHOLE_FILE
    found = _UNSAID if _SECRET_PLACES.intersection(steps) else shown(error["input"])
    match kind:
        case "expected":
            if context["at"]:
                field = f"{path_of(steps)}.{context['at']}".lstrip(".").replace(".[", "[")
            return Mistake(field=field, expected=context["what"], found=context["found"] or found)
        case "extra_forbidden":
            _, known = _known_at(part, steps[:-1])
            unknown = str(steps[-1])
            return Mistake(
                field=field, expected=known_field(unknown, known), found=shown_key(unknown)
            )
        case "missing":
            wanted, found = _EXPECTED[kind], "nothing"
        case "literal_error":
            wanted = f"one of {context['expected']}".replace("'", "")
        case "string_too_long":
            wanted = f"at most {context['max_length']:,} characters"
        case "too_long":
            wanted = f"at most {context['max_length']:,} entries"
        case "too_short" if context["min_length"] > 1:
            wanted = f"at least {context['min_length']} entries"
        case _ if kind in _NUMBERS:
            name, sign = _NUMBERS[kind]
            wanted = f"a number {sign} {context[name]:,.12g}{_unit_at(part, steps)}"
        case _:
            wanted = _EXPECTED.get(kind, error["msg"])
    return Mistake(field=field, expected=wanted, found=found)


def path_of(steps: Iterable[int | str]) -> str:
    """Write keys and indices as a path: `regions[0].gpus`."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f"{'.' if path else ''}{shown_key(step)}"
    return path


def _unit_at(part: type[Part], steps: list[int | str]) -> str:
    found, _ = _known_at(part, steps)
    row = row_of(found) if found is not None else None
    return f" ({row.unit})" if row is not None and row.unit and "`" not in row.unit else ""


def row_of(field: FieldInfo) -> FieldRow | None:
    """What is said of a field of a part, None where nothing is."""
    return next((mark for mark in field.metadata if isinstance(mark, FieldRow)), None)


def fields_by_key(part: type[Part]) -> dict[str, FieldInfo]:
    """The fields of a part by the keys they have in a file."""
    return {field.alias or name: field for name, field in part.model_fields.items()}


def parts_in(annotation: Any) -> list[type[Part]]:
    """The parts that a field may hold, in lists and mappings too."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation]
    return [part for inner in get_args(annotation) for part in parts_in(inner)]


def _known_at(part: type[Part], steps: list[int | str]) -> tuple[FieldInfo | None, list[str]]:
    """The field that a path leads to, and the names of those below it."""
    parts, found = [part], None
    for step in steps:
        fields = [known[step] for known in map(fields_by_key, parts) if step in known]
        if fields:  # else it is an index, or a key that the user chose
            found = fields[0]
            parts = [inner for field in fields for inner in parts_in(field.annotation)]
    return found, list({name: None for part in parts for name in fields_by_key(part)})
