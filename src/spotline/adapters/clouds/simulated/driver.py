"""Plays the simulated cloud's time: the calls of the actuator say where the market is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, OpenSlotRequest
from spotline.application.spec import Call
from spotline.domain.events.event import Event


class SimulatedCloudDriver:
    """Wraps what performs the actuator's calls; before each, it tells the cloud what time it is.

    When a slot opens, the cloud gets its quotes and its time stands still: what is decided for the
    slot comes before what happens in it. Each revision lets time go on to the next loss; in between,
    other calls hear of nothing that has not happened yet.
    """

    def __init__(
        self, cloud: SimulatedCloud, perform: Callable[[Call], Awaitable[Sequence[Event]]]
    ) -> None:
        self._cloud = cloud
        self._perform = perform

    async def __call__(self, call: Call) -> Sequence[Event]:
        """Tell the cloud, then perform `call`; raises what performing it raises."""
        request = call.request
        if isinstance(request, OpenSlotRequest):
            self._cloud.open_slot(request.at, request.quotes)
        elif isinstance(request, ApplyRevisionRequest):
            self._cloud.play_on(request.at)
        else:
            self._cloud.hold()
        return await self._perform(call)
