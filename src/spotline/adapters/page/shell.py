"""What is around every page: who looks, from when, in what mode, and what needs a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from spotline.application.market_view import ClockReading
from spotline.domain.modes import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A link of the main navigation."""

    name: str
    path: str
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The frame of a page.

    `at` is the past slot that is shown, None for now; slots from `first_slot` to `last_slot` can be.
    `subject` is empty where nobody is asked who he is.
    `source` says of what this is: a running system, or which recorded log. A `bare` page is made of
    no place in the log, such as a form. With `acts` there is something that people can do.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    destinations: Sequence[Destination] = ()
    subject: str = ""
    role: str = ""
    tenant: str = ""
    source: str = ""
    recorded: bool = False
    bare: bool = False
    acts: bool = False
    clock: ClockReading | None = None
    seq: int = 0
    at: int | None = None
    first_slot: int = -1
    last_slot: int = -1
    alerts: int = 0
    spent_today_micro_usd: int | None = None
    cap_today_micro_usd: int | None = None
    left_out: int = 0

    @property
    def live(self) -> bool:
        """Whether what is shown goes on."""
        return self.at is None and not self.recorded and not self.bare

    @property
    def mode(self) -> str:
        """The mode in which the slot that is shown was decided."""
        if self.clock is None or self.clock.mode is None:
            return Mode.LIVE.value
        return self.clock.mode.value

    def link(self, path: str, **changed: str | int | None) -> str:
        """The address of another page as it is shown from here: a past slot stays."""
        kept = {} if self.at is None else {"at": str(self.at)}
        asked = {
            name: str(value) for name, value in {**kept, **changed}.items() if value is not None
        }
        return f"{path}?{urlencode(asked)}" if asked else path

    def here(self, **changed: str | int | None) -> str:
        """The address of this page with parts of its query changed; None leaves one out."""
        asked = {**self.query, **{name: value for name, value in changed.items()}}
        kept = {name: str(value) for name, value in asked.items() if value not in (None, "")}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path
