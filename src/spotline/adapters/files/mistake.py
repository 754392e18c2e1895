"""What is wrong with a file that a user wrote: `FILE: FIELD: expected WHAT, found WHAT`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.contracts.errors import ContractError

WHOLE_FILE = "(file)"
"""The field of a mistake that no single field has."""

MOST_SHOWN = 20
_LONGEST_FOUND = 80
# What our own values say of what they refuse: `work.amount must be > 0, was -1`, or in this
# module's words.
_MUST = re.compile(
    r"(?:(?P<field>\S+?):? )?(?:of \S+ )?must (?P<expected>.+?)(?:, w(?:as|ere) (?P<found>.+))?",
    re.DOTALL,
)
_EXPECTED = re.compile(
    r"(?:(?P<field>\S+): )?expected (?P<expected>.+?)(?:, found (?P<found>.+))?", re.DOTALL
)
_OF_FIELD = re.compile(r"(?P<field>[\w.\[\]]+): (?P<found>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake.

    Attributes
    ----------
    field
        A path of keys and indices such as `throughput.*.alpha_per_hour` or `regions[0].gpus`,
        `line 3` where the text itself is wrong, or `WHOLE_FILE`.
    line
        Where that stands, from 1 on; 0 where nobody noted it.
    """

    field: str
    expected: str
    found: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, found {self.found}"

    def as_json(self) -> dict[str, str | int]:
        """As machines read it; without a line that nobody noted."""
        said: dict[str, str | int] = {
            "field": self.field,
            "expected": self.expected,
            "found": self.found,
        }
        return {**said, "line": self.line} if self.line else said


class BadFile(ContractError):
    """A file that cannot be used; `mistakes` holds each one that was seen."""

    def __init__(self, path: str, mistakes: Iterable[Mistake]) -> None:
        self.path = path
        self.mistakes = tuple(mistakes)
        super().__init__(path, "; ".join(str(mistake) for mistake in self.mistakes[:MOST_SHOWN]))

    def __str__(self) -> str:
        lines = [
            f"{self.path}{f':{mistake.line}' if mistake.line else ''}: {mistake}"
            for mistake in self.mistakes[:MOST_SHOWN]
        ]
        more = len(self.mistakes) - MOST_SHOWN
        if more > 0:
            lines.append(f"{self.path}: {more:,} more mistakes like these")
        return "\n".join(lines)


class SecretText(str):
    """A secret as text: a message shows that there is one, and `where` it was found."""

    where: str

    def __new__(cls, text: str, where: str) -> SecretText:
        """Mark text as secret; `where` is as its owner said, such as `env NAME`."""
        made = super().__new__(cls, text)
        made.where = where
        return made

    def __repr__(self) -> str:
        """What may be shown of it."""
        return f"a secret ({self.where})"


def bad_file(path: str, field: str, expected: str, found: str) -> BadFile:
    """Make the error of a file with a single mistake."""
    return BadFile(path, [Mistake(field=field, expected=expected, found=found)])


def shown(value: Any) -> str:
    """Show a value of a file in one short line, without the power to move a terminal's cursor."""
    if value is None:
        return "nothing"
    if isinstance(value, SecretText):
        return repr(value)
    if isinstance(value, Mapping):
        return f"a mapping of {len(value):,} fields" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}" if value else "an empty list"
    text = repr(value[: 2 * _LONGEST_FOUND] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_FOUND else f"{text[: _LONGEST_FOUND - 3]}..."


def shown_key(key: str) -> str:
    """Show a key that anybody may have written, as part of a path."""
    return key if key.isprintable() and len(key) <= _LONGEST_FOUND else shown(key)


def known_field(unknown: str, known: Sequence[str]) -> str:
    """What was expected in the place of an unknown field, with the nearest known one."""
    near = difflib.get_close_matches(unknown[:_LONGEST_FOUND], known, n=1, cutoff=0.5)
    if not near and unknown:
        near = [name for name in known if name.startswith(unknown) or unknown.startswith(name)]
        near += [name for name in known if name.split("_")[0] == unknown.split("_")[0]]
    if near:
        return f"a known field (did you mean {near[0]}?)"
    return f"a known field, one of {', '.join(known)}"


def mistake_of(sentence: str, *, field: str = WHOLE_FILE) -> Mistake:
    """Read what a value of ours said when it was refused.

    Parameters
    ----------
    sentence
        `FIELD must be WHAT, was WHAT`, as constructors say it, or `FIELD: expected WHAT, found
        WHAT`; anything else is quoted whole.
    field
        Where it is, if the sentence does not begin with it.
    """
    match = _EXPECTED.fullmatch(sentence) or _MUST.fullmatch(sentence)
    if match is not None:
        expected, found = match["expected"], match["found"]
        if not found:
            expected, _, more = expected.partition("; ")
            found = more or "something else"
        if match.re is _MUST:
            expected = expected[3:] if expected.startswith("be ") else f"it to {expected}"
            if expected.startswith((">", "<")):
                expected = f"a number {expected}"
        return Mistake(field=match["field"] or field, expected=expected, found=found)
    match = _OF_FIELD.fullmatch(sentence)
    if match is not None:
        field, sentence = match["field"], match["found"]
    return Mistake(field=field, expected="values that fit together", found=sentence)
