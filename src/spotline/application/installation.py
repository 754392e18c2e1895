"""Which installation a store, a ledger, a log and instances of a cloud belong to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from spotline.application.incarnations import FIRST, LogRemembered
from spotline.application.market_ingest.continuing import MarketIdentity, identity_differences

# As the store's folder makes it: 16 random bytes.
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One installation of Spotline: what it makes and buys carries `installation_id`.

    Raises
    ------
    ValueError
        The id is not 32 hexadecimal digits.
    """

    installation_id: str

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.installation_id):
            raise ValueError(
                f"installation_id must be 32 hexadecimal digits, was {self.installation_id!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """What a store says of itself.

    `made_by` and `last_used_by` are releases of Spotline. `market` is None until one was opened.
    `incarnation` counts the log's, from 1; `last_seq` and `last_slot` are the last entry and the
    last slot that the store was seen to have (0 and -1: none yet), which may be fewer than there
    were; `last_digest` is that of the entry. `log_created` is when the stream was made, in the broker's words, empty where unknown.
    `restored` says from which copy the store was put back, until it is used again.
    """

    installation: Installation
    made_by: str
    last_used_by: str
    partitions: tuple[int, ...] = ()
    market: MarketIdentity | None = None
    incarnation: int = 1
    log_created: str = ""
    last_seq: int = 0
    last_slot: int = -1
    restored: str = ""
    last_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerNotes:
    """What a ledger says of itself and of the log that it was written by; -1: no slot yet."""

    installation_id: str = ""
    incarnation: int = FIRST
    latest_slot: int = -1


def log_remembered(
    store: StoreIdentity, ledger: LedgerNotes, recorded: tuple[int, int]
) -> LogRemembered:
    """The log as a store and its ledger remember it.

    Parameters
    ----------
    recorded
        The incarnation and the last entry of what was recorded: that was there.
    """
    incarnation = max(store.incarnation, ledger.incarnation)
    recorded_as, recorded_seq = recorded
    seqs = [store.last_seq if store.incarnation == incarnation else 0]
    seqs += [recorded_seq] if recorded_as == incarnation else []
    return LogRemembered(
        installation_id=store.installation.installation_id,
        restored=store.restored,
        incarnation=incarnation,
        created=store.log_created,
        last_seq=max(seqs),
        last_digest=store.last_digest if seqs[0] == max(seqs) else "",
        last_slot=max(store.last_slot, ledger.latest_slot),
        used=ledger.latest_slot >= 0,
    )


def with_log_noted(
    store: StoreIdentity, *, incarnation: int, created: str, known_seq: int, digest: str = ""
) -> StoreIdentity:
    """What a store says of itself once it was seen to have this log, up to this entry."""
    return replace(
        store,
        restored="",
        incarnation=incarnation,
        log_created=created,
        last_seq=known_seq,
        last_digest=digest,
    )


def store_differences(
    store: StoreIdentity, market: MarketIdentity, *, partition: int, from_now: bool = False
) -> Iterator[str]:
    """Say in what a store was made otherwise than it is to be used, nothing where it goes on."""
    if store.partitions and partition not in store.partitions:
        known = ", ".join(map(str, store.partitions))
        yield f"partition: expected {known}, found {partition}"
    if store.market is not None:
        yield from identity_differences(store.market, market, from_now=from_now)
