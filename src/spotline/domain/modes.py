"""How far decisions reach: on paper, or into a cloud that is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

PAPER_PREFIX = "paper-"
"""How the id of every instance on paper begins; no cloud's own ids do."""

SPOTLINE = "spotline"
"""Who has set the mode that an account begins in."""


class Mode(Enum):
    """How far a run's decisions, or those about an account, reach.

    `OBSERVE` fills on paper alone. `SHADOW` fills on paper beside another policy that is live on the
    same market. `LIVE` acts on the cloud.
    """

    OBSERVE = "observe"
    SHADOW = "shadow"
    LIVE = "live"

    @property
    def on_paper(self) -> bool:
        """Whether nothing is launched, terminated or paid."""
        return self is not Mode.LIVE


def mode_named(name: str) -> Mode:
    """The mode of a name.

    Raises
    ------
    ValueError
        There is none of that name; says which there are.
    """
    try:
        return Mode(name)
    except ValueError as error:
        known = ", ".join(mode.value for mode in Mode)
        raise ValueError(f"mode must be one of {known}, was {name!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedModes:
    """The mode of a run, and the one that the accounts of a live run begin in.

    A run keeps its mode: what was filled on paper stands in no log that money is spent by. Accounts
    of which something else is stated ("provider/account") are `named`.
    """

    run: Mode = Mode.LIVE
    accounts: Mode = Mode.LIVE
    named: Mapping[str, Mode] = field(default_factory=dict)

    def of(self, account: str) -> Mode:
        """What an account begins in."""
        return self.named.get(account, self.accounts)

    @property
    def any_live(self) -> bool:
        """Whether accounts may begin live."""
        return Mode.LIVE in (self.accounts, *self.named.values())


LIVE_FROM_THE_START = StatedModes()
"""Of clouds that cost nothing, and of all logs from before modes were said."""
