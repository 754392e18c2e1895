"""Bugs that a log or a ledger which lost something brings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from spotline.application.cloud_actuator import agreeing, mending
from spotline.application.cloud_actuator.retelling import Retold
from spotline.application.incarnations import LogConclusion, LogRemembered, LogSeen, conclude
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.domain.ledger.billing import Charge
from spotline.runtime import log_settling, retelling
from spotline.runtime.service import ServiceHost


def _what_was_acknowledged_counts_behind_a_loss() -> Sequence[Replacement]:
    recover = ServiceHost._recover

    async def trusting(self: Any, floor_seq: int) -> None:
        rebased = self._subscription is not None and self._subscription.rebased
        await recover(self, await self._stream.last_seq() if rebased else floor_seq)

    return (Replacement(where=ServiceHost, name="_recover", value=trusting),)


def _the_market_begins_again_where_the_log_ends() -> Sequence[Replacement]:
    begin = log_settling._begin

    async def forgetful(stream: Any, seen: Any, conclusion: Any, remembered: Any) -> None:
        if remembered is not None:
            remembered = replace(remembered, last_slot=-1)
        await begin(stream, seen, conclusion, remembered)

    return (Replacement(where=log_settling, name="_begin", value=forgetful),)


def _jobs_of_a_lost_log_are_not_told_again() -> Sequence[Replacement]:
    def retold(*anything: Any) -> Iterator[Retold]:
        yield from ()

    return (Replacement(where=retelling, name="retold", value=retold),)


def _what_is_proved_is_not_taken_over() -> Sequence[Replacement]:
    def adoptable(*anything: Any) -> Iterator[Any]:
        yield from ()

    return (Replacement(where=mending, name="adoptable", value=adoptable),)


def _spend_begins_at_nothing() -> Sequence[Replacement]:
    def carried_charges(*anything: Any) -> tuple[Charge, ...]:
        return ()

    return (Replacement(where=agreeing, name="carried_charges", value=carried_charges),)


def _what_was_charged_since_a_copy_is_forgotten() -> Sequence[Replacement]:
    carried = mending.carried_charges

    def carried_charges(log: Any, charged: Any, epoch: int) -> tuple[Charge, ...]:
        return () if any(charged.values()) else carried(log, charged, epoch)

    return (Replacement(where=agreeing, name="carried_charges", value=carried_charges),)


def _an_older_copy_is_taken_for_the_log() -> Sequence[Replacement]:
    def credulous(
        log: LogSeen, remembered: LogRemembered | None = None, digest: str = ""
    ) -> LogConclusion:
        # What the copy's own floors say goes by; what store and ledger remember does not.
        if remembered is not None:
            remembered = replace(remembered, last_seq=0, last_slot=-1)
        return conclude(log, remembered)

    return (Replacement(where=log_settling, name="conclude", value=credulous),)


PLANTS = (
    Plant(
        name="what_was_acknowledged_counts_behind_a_loss",
        what="a cut: what followed from acknowledged entries, and is lost, is not made again",
        replacements=_what_was_acknowledged_counts_behind_a_loss,
        seed=25,
    ),
    Plant(
        name="the_market_begins_again_where_the_log_ends",
        what="a wipe: slots that the ledger has billed open again",
        replacements=_the_market_begins_again_where_the_log_ends,
        seed=28,
    ),
    Plant(
        name="jobs_of_a_lost_log_are_not_told_again",
        what="a wipe: accepted jobs are forgotten",
        replacements=_jobs_of_a_lost_log_are_not_told_again,
        seed=28,
    ),
    Plant(
        name="an_older_copy_is_taken_for_the_log",
        what="an older log: what it had after the copy is forgotten without a word",
        replacements=_an_older_copy_is_taken_for_the_log,
        seed=58,
    ),
    Plant(
        name="what_is_proved_is_not_taken_over",
        what="a ledger lost: what runs is unknown, and bought again",
        replacements=_what_is_proved_is_not_taken_over,
        seed=5,
    ),
    Plant(
        name="spend_begins_at_nothing",
        what="a ledger lost: what was spent is forgotten",
        replacements=_spend_begins_at_nothing,
        seed=5,
    ),
    Plant(
        name="what_was_charged_since_a_copy_is_forgotten",
        what="an older ledger: what was charged since is not charged again",
        replacements=_what_was_charged_since_a_copy_is_forgotten,
        seed=11,
    ),
)
