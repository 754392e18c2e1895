"""Waits that the cloud asks for are of its own time: a rehearsal's runs faster than the wall's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from spotline.application.spec import Call
from spotline.contracts.errors import Throttled
from spotline.domain.events.event import Event


class CloudTimeDriver:
    """Wraps what performs the actuator's calls.

    Parameters
    ----------
    market_s_per_s
        Market seconds in a second of wall time; 1 on AWS itself.
    """

    def __init__(
        self, perform: Callable[[Call], Awaitable[Sequence[Event]]], market_s_per_s: float
    ) -> None:
        self._perform = perform
        self._market_s_per_s = market_s_per_s

    async def __call__(self, call: Call) -> Sequence[Event]:
        """Perform `call`; raises what performing it raises."""
        try:
            return await self._perform(call)
        except Throttled as error:
            wait_s = error.retry_after_s / self._market_s_per_s
            raise Throttled("the cloud", wait_s) from error
