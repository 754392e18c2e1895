"""Launches whose answer is lost, that come in part, are refused, or do not show for a while."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudProvider,
    Grant,
    Instance,
    LaunchRequest,
    Owner,
    Refusal,
)
from spotline.bench.faults.families.interface import FaultFamily, Hasty
from spotline.contracts.errors import ProviderUnavailable, Throttled, UnknownOutcome
from spotline.domain.events.capacity import RefusalClass

# Share of launches, and of other calls, that something happens to.
_LAUNCHES, _CALLS = 0.35, 0.04
_REFUSALS = (
    RefusalClass.NO_CAPACITY,
    RefusalClass.QUOTA,
    RefusalClass.UNSUPPORTED,
    RefusalClass.UNAUTHORISED,
    RefusalClass.THROTTLED,
    RefusalClass.SERVER,
    RefusalClass.NETWORK,
)
# A launch refused so was never worked on: its token may come again.
_UNUSED = (RefusalClass.THROTTLED, RefusalClass.SERVER)
_FATES = ("lost_after", "lost_before", "partial", "refused", "hidden", "throttled")


class RoughLaunches(Hasty):
    """Draws what becomes of each launch from its token, so that it is the same when sent again."""

    name: ClassVar[str] = "launch"
    same_ledger: bool = False

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud through a bad line."""
        return RoughCloud(cloud, self, self._memory)

    def __init__(
        self, scenario: object, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)  # type: ignore[arg-type]
        self._memory = RoughMemory(self.rng.getrandbits(32))


class RoughMemory:
    """What the cloud itself remembers, whoever asks."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.sent: Counter[str] = Counter()
        self.hidden: Counter[str] = Counter()
        self.refused: dict[str, Grant] = {}
        self.least: dict[str, int] = {}

    def fate(self, token: str) -> str:
        """What becomes of a launch; empty for nothing."""
        drawn = random.Random(f"{self.seed} {token}")  # noqa: S311
        return drawn.choice(_FATES) if drawn.random() < _LAUNCHES else ""


class RoughCloud:
    """Implements `CloudProvider` on the simulated cloud."""

    def __init__(self, inner: SimulatedCloud, family: FaultFamily, memory: RoughMemory) -> None:
        self._inner, self._family, self._memory = inner, family, memory

    @property
    def notice_lead_s(self) -> int:
        """As the cloud's."""
        return self._inner.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        """Launch, and maybe say nothing, or something else."""
        memory, token = self._memory, request.token
        memory.sent[token] += 1
        first = memory.sent[token] == 1
        match memory.fate(token):
            case "lost_after":
                grant = await self._inner.launch(request)
                if first:
                    self._family.hit()
                    for instance in grant.instances:
                        # The longer ones are adopted later, by another look.
                        memory.hidden[instance.instance_id] = self._family.rng.choice((0, 2))
                    raise UnknownOutcome("simulated", token, "connection reset")
                return grant
            case "lost_before" if first:
                self._family.hit()
                raise UnknownOutcome("simulated", token, "time-out")
            case "throttled" if memory.sent[token] <= 2:
                self._family.hit()
                raise Throttled("simulated", 1.0)
            case "refused":
                return self._refused(request)
            case "partial" if request.instances > 1 and first:
                self._family.hit()
                memory.least[token] = request.instances // 2
            case "hidden":
                grant = await self._inner.launch(request)
                if first and grant.instances:
                    self._family.hit()
                    for instance in grant.instances:
                        memory.hidden[instance.instance_id] = 3
                return grant
        return await self._partly(request)

    async def _partly(self, request: LaunchRequest) -> Grant:
        least = self._memory.least.get(request.token)
        if least is None:
            return await self._inner.launch(request)
        grant = await self._inner.launch(replace(request, instances=least))
        refusal = grant.refusal or Refusal(
            refusal_class=RefusalClass.NO_CAPACITY,
            detail=f"{len(grant.instances)} of {request.instances}, says the cloud",
        )
        return Grant(instances=grant.instances, refusal=refusal)

    def _refused(self, request: LaunchRequest) -> Grant:
        memory = self._memory
        known = memory.refused.get(request.token)
        if known is not None:
            return known
        drawn = random.Random(f"{memory.seed} refusal {request.token}")  # noqa: S311
        refusal_class = drawn.choice(_REFUSALS)
        grant = Grant(
            instances=(),
            refusal=Refusal(refusal_class=refusal_class, detail=f"{refusal_class.value}, once"),
        )
        if refusal_class not in _UNUSED or memory.sent[request.token] > 2:
            memory.refused[request.token] = grant
        self._family.hit()
        return grant

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """Ask for ends; the answer may be lost."""
        await self._inner.terminate(owner, instance_ids)
        if instance_ids:
            self._maybe_lost("terminate")

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """What it shows: fresh launches are missing at first."""
        self._maybe_lost("list")
        shown = []
        for instance in await self._inner.list(owner_name):
            if self._memory.hidden[instance.instance_id] > 0:
                self._memory.hidden[instance.instance_id] -= 1
                continue
            shown.append(instance)
        return tuple(shown)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """What it tells; the answer may be lost."""
        told = await self._inner.events(token, at)
        self._maybe_lost("events")
        return told

    async def pushed(self) -> None:
        """As the cloud does."""
        await self._inner.pushed()

    def _maybe_lost(self, call: str) -> None:
        if self._family.rng.random() < _CALLS:
            self._family.hit()
            raise ProviderUnavailable(f"simulated: {call} was not answered")
