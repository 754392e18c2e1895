"""What a page is asked for: who asks, from when, and with what in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.contracts.access import Caller

_MOST_SLOT = 10_000_000
_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAsked:
    """A request for a page.

    `at` is the past slot that is asked for, None for now. `caller` is None where nobody is asked who
    he is: then all is shown. `token` is what he proved it by, to ask others in his name. `params`
    are parts of the path, `query` what follows it.
    """

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    caller: Caller | None = None
    at: int | None = None
    token: str = field(default="", repr=False)

    @property
    def tenant(self) -> str:
        """Whose things alone are shown; empty: everybody's."""
        return "" if self.caller is None else self.caller.tenant

    def text(self, name: str) -> str:
        """What the query says of `name`, empty where it says nothing."""
        return self.query.get(name, "")[:_LONGEST]

    def number(self, name: str, *, least: int = 0, most: int = _MOST_SLOT) -> int | None:
        """A whole number of the query, None where it says nothing.

        Raises
        ------
        ViewRefused
            It is none, or out of bounds.
        """
        return whole_number(name, self.query.get(name), least=least, most=most)


def whole_number(
    name: str, value: str | None, *, least: int = 0, most: int = _MOST_SLOT
) -> int | None:
    """A whole number of an address; None and empty are none; `ViewRefused` as above."""
    if not value:
        return None
    is_whole = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if is_whole and least <= int(value) <= most:
        return int(value)
    raise refused_input(
        InputProblem(
            field=name, expected=f"a whole number {least}..{most}", found=repr(value[:_LONGEST])
        )
    )
