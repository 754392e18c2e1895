"""Stops of buying: for what nothing is bought, why, and what may be bought all the same.

Whatever finds that money should not be spent says so with a freeze of the smallest scope that it
knows: market_ingest of quotes, the actuator of ledger and cloud, the selector of what it could not
apply, a person of anything. Selector and actuator fold the same freezes and ask the same question
before they buy. Releasing and keeping are never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from spotline.domain.market.offering import CapacityType


class FreezeScope(Enum):
    """For what nothing is bought; see `freeze.proto` for the key of each."""

    SYSTEM = "system"
    ACCOUNT = "account"
    OFFERING = "offering"
    TENANT = "tenant"
    JOB = "job"


class FreezeReason(Enum):
    """Why nothing is bought; see `freeze.proto`."""

    PAUSED = "paused"
    PARKED = "parked"
    UNDECIDED = "undecided"
    BREAKER = "breaker"
    STALE_QUOTES = "stale_quotes"
    PRICE = "price"
    CRASH_LOOP = "crash_loop"
    NOT_LIVE = "not_live"


_YIELDING = frozenset({FreezeReason.BREAKER, FreezeReason.STALE_QUOTES, FreezeReason.PRICE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A stop of buying. The same trouble has the same `freeze_id`, however often it is found.

    `capacity_type` None stops spot and on-demand. `continue_with` is the command that ends it,
    empty where it ends by itself. `slot` is -1 before the first.
    """

    freeze_id: str
    scope: FreezeScope
    key: str
    reason: FreezeReason
    detail: str
    capacity_type: CapacityType | None = None
    continue_with: str = ""
    slot: int = -1
    ts_event_ns: int = 0

    @property
    def yields_to_deadlines(self) -> bool:
        """Whether on-demand that an admitted hard deadline needs is bought all the same.

        What is only a doubt about the market yields; what a person wants, or what could buy twice,
        does not.
        """
        return self.reason in _YIELDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What somebody is about to buy: `account` is "provider/account"."""

    job_id: str
    tenant: str
    offering_id: str
    account: str
    capacity_type: CapacityType


@dataclass(slots=True)
class Freezes:
    """The freezes in force, by id: a fold."""

    by_id: dict[str, Freeze] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Freeze]:
        """Those in force, by id."""
        return iter([self.by_id[freeze_id] for freeze_id in sorted(self.by_id)])

    def begin(self, freeze: Freeze) -> None:
        """Buying stops; one that is in force already stays as it began."""
        self.by_id.setdefault(freeze.freeze_id, freeze)

    def end(self, freeze_id: str) -> None:
        """Buying goes on; nothing where there is no such freeze."""
        self.by_id.pop(freeze_id, None)

    def blocking(self, purchase: Purchase) -> Freeze | None:
        """What stands against a purchase: first what never yields, then by id; None for nothing."""
        against = [freeze for freeze in self if _covers(freeze, purchase)]
        return min(
            against,
            key=lambda freeze: (freeze.yields_to_deadlines, freeze.freeze_id),
            default=None,
        )


def _covers(freeze: Freeze, purchase: Purchase) -> bool:
    if freeze.capacity_type is not None and freeze.capacity_type is not purchase.capacity_type:
        return False
    match freeze.scope:
        case FreezeScope.SYSTEM:
            return True
        case FreezeScope.ACCOUNT:
            return freeze.key == purchase.account
        case FreezeScope.OFFERING:
            return freeze.key == purchase.offering_id
        case FreezeScope.TENANT:
            return freeze.key == purchase.tenant
        case FreezeScope.JOB:
            return freeze.key == purchase.job_id
