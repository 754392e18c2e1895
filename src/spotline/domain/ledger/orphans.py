"""Which instances that belong to no job may be ended, and by whom.

Nothing is ended that might be somebody else's: only what carries this installation's id, in an
account that is allowed, without the tag that says hands off. The rules end it after a grace, a few
at a time, and only where they were promoted to; a person may name it before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from spotline.domain.units import NS_PER_S

HOLD_TAG = "spotline-hold"
"""An instance with this tag, whatever its value, is never ended as an orphan."""

ANY_ACCOUNT = "*"


def accounts_of(listed: str) -> tuple[str, ...]:
    """Accounts as a setting lists them, separated by commas."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


class ReapMode(Enum):
    """What the rules do about orphans: tell, or end them."""

    REPORT = "report"
    REAP = "reap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRules:
    """When orphans are ended.

    Parameters
    ----------
    installation_id
        Whose instances may be ended; empty: nobody's.
    accounts
        Where, as "provider/account"; `ANY_ACCOUNT` for everywhere.
    grace_s
        Seconds of market time that an orphan is left alone after it was first seen.
    at_most
        So many are ended by the rules in one comparison.
    """

    mode: ReapMode = ReapMode.REPORT
    installation_id: str = ""
    accounts: tuple[str, ...] = ()
    grace_s: int = 1800
    at_most: int = 2

    def __post_init__(self) -> None:
        if self.grace_s < 0:
            raise ValueError(f"grace_s must be >= 0, was {self.grace_s}")
        if self.at_most < 1:
            raise ValueError(f"at_most must be >= 1, was {self.at_most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An instance that belongs to no job: what its tags say, and since when it is known.

    `account` is "provider/account", empty where the market does not know its offering.
    """

    instance_id: str
    offering_id: str
    account: str
    installation_id: str
    hold: bool
    since_ns: int
    job_id: str = ""
    tenant: str = ""

    def forbidden(self, rules: ReapRules) -> str:
        """Why nobody may end it through us, in one line; empty where a person may."""
        if self.hold:
            return f"it carries the tag {HOLD_TAG}"
        if not rules.installation_id:
            return "this installation has no id"
        if self.installation_id != rules.installation_id:
            whose = self.installation_id or "none"
            return f"its installation id is {whose}, ours is {rules.installation_id}"
        if self.account not in rules.accounts and ANY_ACCOUNT not in rules.accounts:
            return f"its account {self.account or '(unknown)'} is not among those allowed"
        return ""

    def reap_after_ns(self, rules: ReapRules) -> int:
        """When the rules may end it, ns of market time; 0: not before a person says so."""
        if rules.mode is ReapMode.REPORT or self.forbidden(rules):
            return 0
        return self.since_ns + rules.grace_s * NS_PER_S


def to_reap(orphans: Iterable[Orphan], rules: ReapRules, now_ns: int) -> tuple[Orphan, ...]:
    """Those that the rules end now, the oldest first."""
    due = [orphan for orphan in orphans if 0 < orphan.reap_after_ns(rules) <= now_ns]
    due.sort(key=lambda orphan: (orphan.since_ns, orphan.instance_id))
    return tuple(due[: rules.at_most])
