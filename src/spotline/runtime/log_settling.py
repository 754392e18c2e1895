"""Say in a log, and of its stream, whose it is and which incarnation begins."""

from __future__ import annotations

from typing import Protocol

import structlog

from spotline.application.incarnations import (
    LogConclusion,
    LogFinding,
    LogRemembered,
    LogSeen,
    conclude,
    digest_of,
)
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import derive_id
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.domain.events.agreement import IncarnationBegun
from spotline.runtime.stream import EventStream

_log = structlog.get_logger(__name__)

SOURCE = "store"
"""Who says that an incarnation begins: whoever finds it first, so no service."""
# Where nobody of those that know the installation is there to say it.
_NOBODY = "unclaimed"


class LastingLog(EventStream, Protocol):
    """A log that knows which incarnation it is of, and whose."""

    name: str

    @property
    def incarnation(self) -> int:
        """Which incarnation it was when it was looked at."""
        ...

    @property
    def lineage(self) -> str:
        """Names this incarnation of this stream, as one token: what was kept of another is not its."""
        ...

    @property
    def may_begin(self) -> bool:
        """Whether this identity may say that an incarnation begins."""
        ...

    async def look(self) -> None:
        """Take the log as it is now for what it is to be from here on."""
        ...

    async def seen(self) -> LogSeen:
        """The log as it is, with the furthest floor of those who follow it."""
        ...

    async def claim(self, installation_id: str) -> None:
        """Mark the log as an installation's. Idempotent."""
        ...


async def settled_log(stream: LastingLog, remembered: LogRemembered | None = None) -> LogConclusion:
    """Compare a log with what is remembered of it, and have it go on as what it is.

    Where entries are gone, the log goes on as another incarnation, which is said in it once,
    whoever finds it; where a store or a ledger remembers the log, its stream is marked with the
    installation's id.

    Raises
    ------
    ConfigError
        The log belongs to another installation; nothing was touched.
    ProviderUnavailable
        Entries are gone, and this identity may not say so.
    """
    await stream.look()
    seen = await stream.seen()
    conclusion = conclude(seen, remembered, await _digest_in(stream, seen, remembered))
    if conclusion.finding is LogFinding.FOREIGN:
        raise ConfigError(
            f"store: {conclusion.detail}: give the store that belongs to the log, or another NATS or "
            "partition (look with spotline store check)"
        )
    if conclusion.begins and not stream.may_begin:
        raise ProviderUnavailable(
            f"{stream.name}: {conclusion.detail}: it goes on when the actuator, or a start of the "
            "store, has begun another incarnation"
        )
    if conclusion.begins:
        _log.error(
            "log_cut",
            stream=stream.name,
            finding=conclusion.finding.value,
            incarnation=conclusion.incarnation,
            last_seq=seen.last_seq,
            last_seq_before=conclusion.last_seq_before,
            detail=conclusion.detail,
        )
        await _begin(stream, seen, conclusion, remembered)
    elif remembered is not None and seen.incarnation > remembered.incarnation:
        # Somebody without a ledger said it: the last slot is known here alone.
        await _say_slot(stream, seen, conclusion, remembered)
    if remembered is not None and seen.installation_id != remembered.installation_id:
        await stream.claim(remembered.installation_id)
        await stream.look()
    return conclusion


async def last_entry(stream: EventStream) -> tuple[int, str]:
    """The last entry of a log and its digest; 0 and empty where there is none."""
    last_seq = await stream.last_seq()
    return last_seq, await _digest_at(stream, last_seq)


async def _digest_in(stream: EventStream, seen: LogSeen, remembered: LogRemembered | None) -> str:
    if remembered is None or not remembered.last_digest:
        return ""
    if not 0 < remembered.last_seq <= seen.last_seq:
        return ""
    return await _digest_at(stream, remembered.last_seq)


async def _digest_at(stream: EventStream, seq: int) -> str:
    async for entry in stream.read((), first_seq=max(seq, 1), last_seq=seq):
        return digest_of(entry)
    return ""


async def _begin(
    stream: LastingLog,
    seen: LogSeen,
    conclusion: LogConclusion,
    remembered: LogRemembered | None,
) -> None:
    begun = IncarnationBegun(
        installation_id=_installation(seen, remembered),
        incarnation=conclusion.incarnation,
        last_seq_before=conclusion.last_seq_before,
        detail=conclusion.detail,
        last_slot_before=-1 if remembered is None else remembered.last_slot,
    )
    await _publish(stream, begun, f"{seen.created}:{seen.last_seq}:{conclusion.incarnation}")
    await stream.look()


async def _say_slot(
    stream: LastingLog,
    seen: LogSeen,
    conclusion: LogConclusion,
    remembered: LogRemembered,
) -> None:
    if remembered.last_slot < 0:
        return
    begun = IncarnationBegun(
        installation_id=remembered.installation_id,
        incarnation=seen.incarnation,
        last_seq_before=max(remembered.last_seq, conclusion.last_seq_before),
        detail=f"the ledger knows of slot {remembered.last_slot}",
        last_slot_before=remembered.last_slot,
    )
    await _publish(stream, begun, f"{seen.created}:{seen.incarnation}:slot")
    await stream.look()


def _installation(seen: LogSeen, remembered: LogRemembered | None) -> str:
    known = seen.installation_id if remembered is None else remembered.installation_id
    return known or _NOBODY


async def _publish(stream: LastingLog, begun: IncarnationBegun, cause: str) -> None:
    # Of all who find the same at once, the broker keeps one.
    event_id = derive_id(f"{stream.name}:{cause}", "log.incarnation")
    envelope = envelope_for(
        begun, event_id=event_id, source=SOURCE, causation_id="", correlation_id=event_id
    )
    await stream.publish([envelope])
