"""The breaker: where too many instances are unwell, nothing more is bought until they are not.

Unwell is an instance that its cloud says has failed, one that is gone without the notice that its
cloud promises, and one whose agent is silent. An instance that is reclaimed is none: that is what
spot is for; nor is a launch that is refused. It trips where more than 3 instances of an account and
over 45 % of them are unwell, or so many of all where no account alone explains it.

It stays open at least `OPEN_S`, and as long as so many are unwell. Then it is half open: buying goes
on, and what was unwell and is gone is forgotten. Tripping again within `TRIAL_S` opens it for twice
as long, up to `LONGEST_OPEN_S`; after `TRIAL_S` without that it is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.units import NS_PER_S

MOST_UNWELL = 3
MOST_UNWELL_PERCENT = 45
OPEN_S = 900
LONGEST_OPEN_S = 4 * 3600
TRIAL_S = 3600
MEMORY_S = 3600
"""What is unwell, and what was reclaimed, is remembered for so long."""

_BREAKER = "breaker"


def trips(unwell: int, instances: int) -> bool:
    """Whether so many of so many instances are too many: more than 3, and over 45 %."""
    return unwell > MOST_UNWELL and unwell * 100 > MOST_UNWELL_PERCENT * instances


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unwell:
    account: str
    since_ns: int
    gone: bool


@dataclass(slots=True)
class _Opened:
    """When an account's breaker (empty: that of all) tripped, for how long, and when that was over."""

    at_ns: int
    open_s: int
    half_open_ns: int = 0

    @property
    def until_ns(self) -> int:
        return self.at_ns + self.open_s * NS_PER_S


@dataclass(slots=True)
class Breaker:
    """What is unwell, and which breakers are open: a fold. `judge` changes nothing."""

    noticed: dict[str, int] = field(default_factory=dict)
    unwell: dict[str, _Unwell] = field(default_factory=dict)
    opened: dict[str, _Opened] = field(default_factory=dict)

    # --- what happens to instances ------------------------------------------------------------

    def note_reclaim(self, instance_id: str, now_ns: int) -> None:
        """Its cloud wants it back: its end is no sign of anything."""
        self.noticed[instance_id] = now_ns
        self.unwell.pop(instance_id, None)

    def note_failed(self, instance_id: str, account: str, now_ns: int, *, gone: bool) -> None:
        """It has failed, its agent is silent, or it is gone without a word."""
        if instance_id in self.noticed:
            return
        known = self.unwell.get(instance_id)
        since_ns = now_ns if known is None else known.since_ns
        self.unwell[instance_id] = _Unwell(account=account, since_ns=since_ns, gone=gone)

    def note_well(self, instance_id: str) -> None:
        """It is heard again."""
        self.unwell.pop(instance_id, None)

    def note_slot(self, now_ns: int) -> None:
        """Forget what was long ago."""
        since_ns = now_ns - MEMORY_S * NS_PER_S
        self.unwell = {
            name: found for name, found in self.unwell.items() if found.since_ns > since_ns
        }
        self.noticed = {name: at_ns for name, at_ns in self.noticed.items() if at_ns > since_ns}

    # --- what follows -------------------------------------------------------------------------

    def note_frozen(self, freeze: Freeze) -> None:
        """A breaker has tripped."""
        if freeze.freeze_id != breaker_id(freeze.key):
            return
        before = self.opened.get(freeze.key)
        open_s = OPEN_S
        if before is not None and before.half_open_ns:
            tried_s = (freeze.ts_event_ns - before.half_open_ns) // NS_PER_S
            if tried_s < TRIAL_S:
                open_s = min(2 * before.open_s, LONGEST_OPEN_S)
        self.opened[freeze.key] = _Opened(at_ns=freeze.ts_event_ns, open_s=open_s)

    def note_unfrozen(self, freeze_id: str, ts_event_ns: int) -> None:
        """Buying goes on: what is gone is forgotten, so that only news trips it again."""
        for key, opened in self.opened.items():
            if breaker_id(key) == freeze_id:
                opened.half_open_ns = ts_event_ns
                self.unwell = {
                    name: found
                    for name, found in self.unwell.items()
                    if not (found.gone and key in ("", found.account))
                }

    def judge(
        self, held: Mapping[str, int], now_ns: int, slot: int
    ) -> tuple[tuple[Freeze, ...], tuple[str, ...]]:
        """The breakers that trip now, and the ids of those that let buying go on.

        Parameters
        ----------
        held
            Instances that are held, by account.
        """
        over = self._over(held)
        begun = tuple(
            _freeze(key, *over[key], slot=slot, now_ns=now_ns)
            for key in sorted(over)
            if not self._is_open(key)
        )
        ended = tuple(
            breaker_id(key)
            for key in sorted(self.opened)
            if self._is_open(key) and key not in over and now_ns >= self.opened[key].until_ns
        )
        return begun, ended

    def _is_open(self, key: str) -> bool:
        opened = self.opened.get(key)
        return opened is not None and not opened.half_open_ns

    def _over(self, held: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Where too many are unwell: how many, of how many; the empty key is all together."""
        counts = dict(held)
        unwell: dict[str, int] = {}
        for found in self.unwell.values():
            unwell[found.account] = unwell.get(found.account, 0) + 1
            counts[found.account] = counts.get(found.account, 0) + found.gone
        over = {
            account: (sick, counts[account])
            for account, sick in unwell.items()
            if trips(sick, counts[account])
        }
        sick, all_of_them = sum(unwell.values()), sum(counts.values())
        if not over and trips(sick, all_of_them):
            over[""] = (sick, all_of_them)
        return over


def breaker_id(key: str) -> str:
    """The id of the breaker of an account; of all, where that is empty."""
    return f"{_BREAKER}:{key}" if key else _BREAKER


def _freeze(key: str, unwell: int, instances: int, *, slot: int, now_ns: int) -> Freeze:
    return Freeze(
        freeze_id=breaker_id(key),
        scope=FreezeScope.ACCOUNT if key else FreezeScope.SYSTEM,
        key=key,
        reason=FreezeReason.BREAKER,
        detail=f"{unwell} of {instances} instances are unwell: failed, gone without notice, or "
        "silent",
        continue_with=f"spotline resume --freeze {breaker_id(key)}",
        slot=slot,
        ts_event_ns=now_ns,
    )
