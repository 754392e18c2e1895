"""Shows the local cloud the slots of the market that is laid over it, as the actuator opens them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from spotline.adapters.clouds.local.cloud import LocalCloud
from spotline.application.cloud_actuator.messages import OpenSlotRequest
from spotline.application.spec import Call
from spotline.domain.events.event import Event


class LocalCloudDriver:
    """Wraps what performs the actuator's calls: a slot's quotes are taken over before its call."""

    def __init__(
        self, cloud: LocalCloud, perform: Callable[[Call], Awaitable[Sequence[Event]]]
    ) -> None:
        self._cloud = cloud
        self._perform = perform

    async def __call__(self, call: Call) -> Sequence[Event]:
        """Show the cloud the slot, then perform `call`; raises what performing it raises."""
        request = call.request
        if isinstance(request, OpenSlotRequest):
            await asyncio.to_thread(self._cloud.open_slot, request.at, request.quotes)
        return await self._perform(call)
