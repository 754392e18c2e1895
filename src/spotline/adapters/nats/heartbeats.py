"""What services tell of their health: plain messages on the broker, which nothing stores.

Subject: `spotline.v1.health.<service>`; payload: a `ServiceStatus`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence

import structlog
from nats.aio.msg import Msg

from spotline.adapters.nats.connection import PASSING, NatsConnection
from spotline.application.health.conditions import HealthLimits
from spotline.application.health.system import Heard, as_heard
from spotline.application.operations.messages import ServiceStatus
from spotline.contracts.errors import ConfigError, ContractError, ProviderUnavailable
from spotline.contracts.mapping import decode_value, encode_value
from spotline.contracts.subjects import HEALTH_KIND, health_subject

_log = structlog.get_logger(__name__)

# More services than there will ever be; others may write on the subject.
MOST_SERVICES = 64
LARGEST_BYTES = 64 * 1024

_CONNECT_S = 5.0
_RETRY_S = 1.0
_SERVICE = re.compile(r"[a-z0-9_-]{1,64}")


async def tell_health(connection: NatsConnection, statuses: Sequence[ServiceStatus]) -> None:
    """Tell how services are, once; nobody says that it was heard.

    Raises
    ------
    ProviderUnavailable
        The broker does not answer.
    """
    link = await connection.link(timeout_s=_CONNECT_S)
    try:
        for status in statuses:
            await link.client.publish(health_subject(status.service), encode_value(status))
    except PASSING as error:
        raise ProviderUnavailable(f"health was not told: {error!r}") from error


class HeardServices:
    """Listens to what services tell; keeps the last of each.

    Parameters
    ----------
    own
        How the services of this process are: they need no broker to be heard here.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        connection: NatsConnection,
        limits: HealthLimits,
        *,
        own: Callable[[], Sequence[ServiceStatus]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._own = own
        self._clock = clock
        self._since_s = clock()
        self._heard: dict[str, Heard] = {}
        self._refused = 0

    def statuses(self) -> tuple[ServiceStatus, ...]:
        """Every service that was heard or must be, by name."""
        now_s = self._clock()
        known = dict(self._heard)
        known |= {status.service: Heard(status=status, at_s=now_s) for status in self._own()}
        return as_heard(known, now_s=now_s, since_s=self._since_s, limits=self._limits)

    async def run(self) -> None:
        """Listen until cancelled, on every connection anew."""
        while True:
            lost = asyncio.Event()
            try:
                link = await self._connection.link(timeout_s=_CONNECT_S)
                subscription = await link.client.subscribe(health_subject("*"), cb=self._take)
            except (ConfigError, ProviderUnavailable, *PASSING) as error:
                _log.warning("health_not_heard", error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            link.when_lost(lost.set)
            try:
                if not link.lost:
                    await lost.wait()
            finally:
                link.forget(lost.set)
                if not link.lost:
                    await subscription.unsubscribe()

    async def _take(self, message: Msg) -> None:
        try:
            status = self._read(message)
        except ContractError as error:
            self._refused += 1
            # Whoever writes garbage may write a lot of it.
            if self._refused.bit_count() == 1:
                _log.warning("health_refused", times=self._refused, error=str(error))
        else:
            self._heard[status.service] = Heard(status=status, at_s=self._clock())

    def _read(self, message: Msg) -> ServiceStatus:
        name = message.subject.rpartition(".")[2]
        if len(message.data) > LARGEST_BYTES:
            found = len(message.data)
            raise ContractError(HEALTH_KIND, f"must be <= {LARGEST_BYTES} bytes, was {found}")
        status = decode_value(ServiceStatus, HEALTH_KIND, message.data)
        if status.service != name or not _SERVICE.fullmatch(name):
            raise ContractError(HEALTH_KIND, f"service must be {name!r}, was {status.service!r}")
        if name not in self._heard and len(self._heard) >= MOST_SERVICES:
            raise ContractError(
                HEALTH_KIND, f"services must be <= {MOST_SERVICES}, {name!r} is more"
            )
        return status
