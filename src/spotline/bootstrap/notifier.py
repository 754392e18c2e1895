"""The notifier: telling others what the log shows, as a service that runs apart."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import NoReturn

import structlog

from spotline.adapters.nats.connection import CONNECT_TIMEOUT_S, NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.notify.delivering import AlertDelivery
from spotline.bootstrap.facts import free_space, limits_of
from spotline.bootstrap.notifying import (
    NOTIFIER,
    POLL_S,
    FollowPlace,
    Notifying,
    delivering,
    fold_of,
    followed,
)
from spotline.bootstrap.parts import PartHooks, open_stream
from spotline.contracts.errors import LogCut, ProviderUnavailable
from spotline.domain.units import NS_PER_S
from spotline.runtime.health import Health
from spotline.runtime.telemetry import telemetry_for
from spotline.runtime.watched import HostCounters

_log = structlog.get_logger(__name__)

_AGAIN_S = 5.0


@dataclass(slots=True)
class NotifierHost:
    """The notifier as its health and its metrics are read off it; without receivers it is well."""

    receivers: int
    place: FollowPlace = field(default_factory=FollowPlace)
    counters: HostCounters = field(default_factory=HostCounters)
    started_s: float = field(default_factory=time.time)

    @property
    def applied_seq(self) -> int:
        """The last entry of the log that it has folded."""
        return self.place.applied_seq

    @property
    def backlog(self) -> int:
        """Entries that are stored and not folded yet, as far as it has asked."""
        return max(0, self.place.last_seq - self.place.applied_seq)

    @property
    def lag_s(self) -> float:
        """How long the last entry that was folded has been stored, 0 when none waits."""
        if not self.backlog or not self.place.stored_ns:
            return 0.0
        return max(0.0, time.time() - self.place.stored_ns / NS_PER_S)

    @property
    def healthy(self) -> bool:
        """Whether it follows the log without a backlog, or has nobody to tell of it."""
        return not self.receivers or (self.place.last_seq >= 0 and not self.backlog)

    def health(self) -> Health:
        """Whether it is well, and what it says of itself."""
        return Health(
            healthy=self.healthy,
            detail={
                "receivers": self.receivers,
                "backlog": self.backlog,
                "applied_seq": self.applied_seq,
            },
        )


async def serve_notifier(told: Notifying, hooks: PartHooks) -> None:
    """Tell receivers until cancelled; without any, say so, and do nothing.

    What waits to be sent is sent while the log cannot be read, too. A log that was cut is folded
    again, from its beginning.

    Raises
    ------
    ConfigError
        Another process has the outbox, it is of another release or cannot be used, or the stream is
        another one.
    """
    host = NotifierHost(receivers=len(told.targets))
    telemetry_for(NOTIFIER, host)
    if not told.targets:
        _log.warning("nobody_is_told", detail="SPOTLINE_CONFIG names no file with notify in it")
    with delivering(told) as delivery:
        hidden = hooks.probe(NOTIFIER, free_space({"the outbox": told.store}, limits_of(hooks)))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(delivery.run(), name="deliver")
                while True:
                    await _follow(told, delivery, host, hooks)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            hidden()


async def _follow(
    told: Notifying, delivery: AlertDelivery, host: NotifierHost, hooks: PartHooks
) -> None:
    """Follow the log from its beginning on; returns where it was cut or cannot be read."""
    host.place = FollowPlace()
    try:
        async with open_stream(told.bus, name=NOTIFIER) as (connection, stream):
            hooks.note(NOTIFIER, host, connection)
            if not told.targets:
                await _stay_connected(connection)
            await followed(
                stream,
                fold_of(told, await _installation_of(stream)),
                delivery,
                poll_s=POLL_S,
                place=host.place,
                check=lambda: _check(stream),
            )
    except (LogCut, ProviderUnavailable) as error:
        _log.error("log_not_followed", reason=str(error), again_s=_AGAIN_S)


async def _stay_connected(connection: NatsConnection) -> NoReturn:
    """Do nothing but be there: a link that was lost is made again only where somebody asks for it.

    Raises
    ------
    ProviderUnavailable
        The broker went, and did not come back in time.
    """
    while True:
        await connection.link(timeout_s=CONNECT_TIMEOUT_S)
        await asyncio.sleep(POLL_S)


async def _installation_of(stream: NatsEventStream) -> str:
    """Whose log it is; waits until the owner of the ledger has said so.

    Ids follow from it: with another one everything would be told once more.
    """
    if not stream.continuity.installation_id:
        _log.warning("log_unclaimed", detail="nothing is told before cloud_actuator has started")
    while not stream.continuity.installation_id:
        await asyncio.sleep(POLL_S)
        await stream.look()
    return stream.continuity.installation_id


async def _check(stream: NatsEventStream) -> None:
    await stream.ask(lambda link: stream.continuity.check(link.jetstream()))
