"""What people can do on a page: what each act asks for, what follows from it, and what was done.

Nothing is done before its page has said what follows. Each act is done in the name of whoever asks
for it, by a request id that its page drew: the same form twice is the same effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spotline.application.page.acting_ports import Acts
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import micro_usd_from_usd, ns_from_rfc3339

_LONGEST = 500
# In micro-USD it must fit a message's 64 bits.
_MOST_USD = 1e12


class ActRefused(ViewRefused):
    """What was asked for is refused; `wrong` is all that is, where there are several things."""

    def __init__(self, reason: Reason, message: str, wrong: Sequence[str] = ()) -> None:
        super().__init__(reason, message)
        self.wrong = tuple(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActField:
    """A field of a form; `kind` is one of text, long, choice. `options` are those of a choice."""

    name: str
    label: str
    kind: str = "text"
    note: str = ""
    options: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Follows:
    """What follows from an act, before it is done.

    `outlook` is what is expected of a job then, `before` what is now. `can_be` is false where it would
    be refused. `keeps` are fields that the act is done with beside those of its form.
    """

    says: tuple[str, ...]
    outlook: JobOutlook | None = None
    before: JobOutlook | None = None
    deadline_ns: int = 0
    on_demand_micro_usd: int = 0
    can_be: bool = True
    keeps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActDone:
    """What was done, and where it can be seen."""

    says: str
    path: str = ""
    see: str = ""


class FormSaid:
    """The fields of a form, by their names; `tenant` is whose the caller is, empty for nobody's."""

    def __init__(self, fields: Mapping[str, str], tenant: str = "") -> None:
        self._fields = fields
        self.tenant = tenant

    def text(self, name: str, *, required: bool = False, longest: int = _LONGEST) -> str:
        """A text without blanks around it; `ViewRefused` where it is needed and empty, or too long."""
        said = self._fields.get(name, "").strip()
        if required and not said:
            raise _wrong(name, "something", "nothing")
        if len(said) > longest:
            raise _wrong(name, f"at most {longest} characters", str(len(said)))
        return said

    def choice(self, name: str, options: Sequence[str]) -> str:
        """One of some words; `ViewRefused` where it is none."""
        said = self.text(name)
        if said not in options:
            raise _wrong(name, f"one of {', '.join(options)}", repr(said[:40]))
        return said

    def micro_usd(self, name: str) -> int | None:
        """An amount in USD, as micro-USD; None where nothing is said."""
        said = self.text(name).removeprefix("$").replace(",", "")
        if not said:
            return None
        try:
            amount = float(said)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < _MOST_USD:
            raise _wrong(name, f"an amount in USD >= 0 and < {_MOST_USD:g}", repr(said[:40]))
        return micro_usd_from_usd(amount)

    def time_ns(self, name: str) -> int | None:
        """A time with its zone, ns since the epoch; None where nothing is said."""
        said = self.text(name)
        if not said:
            return None
        try:
            return ns_from_rfc3339(said)
        except ValueError as error:
            raise _wrong(name, "a time such as 2026-03-01T12:00:00Z", repr(said[:40])) from error

    def words(self, name: str) -> tuple[str, ...]:
        """Words with blanks or commas between them."""
        return tuple(self.text(name, longest=8_000).replace(",", " ").split())


class PageAct(Protocol):
    """Something that people can do."""

    @property
    def name(self) -> str:
        """Its name in addresses."""
        ...

    @property
    def title(self) -> str:
        """What it is called."""
        ...

    @property
    def says(self) -> str:
        """What it is for, in a sentence."""
        ...

    @property
    def fields(self) -> tuple[ActField, ...]:
        """What it asks for."""
        ...

    async def follows(self, acts: Acts, said: FormSaid) -> Follows:
        """What would follow; changes nothing. `ViewRefused` where the form is wrong."""
        ...

    async def do(self, acts: Acts, said: FormSaid, request_id: str) -> ActDone:
        """Do it. The same request id is the same effect."""
        ...


def _wrong(name: str, expected: str, found: str) -> ViewRefused:
    return refused_input(InputProblem(field=name, expected=expected, found=found))
