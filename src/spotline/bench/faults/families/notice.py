"""Notices and ends that come late, twice, never, of nobody's instances, or make no sense."""

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
    CloudEventKind,
    CloudProvider,
    Grant,
    Instance,
    InstanceState,
    LaunchRequest,
    Owner,
)
from spotline.bench.faults.families.interface import FaultFamily, Hasty
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.market.offering import CapacityType

_SHARE = 0.5
_FATES = ("late", "double", "never", "again_changed")
_STRANGE = 0.15


class Notice(Hasty):
    """A cloud that tells badly of what it does."""

    name: ClassVar[str] = "notice"
    same_ledger: bool = False

    def __init__(
        self, scenario: object, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)  # type: ignore[arg-type]
        self._memory = TellingMemory()

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud through its messenger."""
        return Messenger(cloud, self, self._memory)


class TellingMemory:
    """What the cloud remembers of what it told."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[CloudEvent, ...]] = {}
        self.waiting: list[tuple[int, CloudEvent]] = []
        self.takings = 0
        self.known: dict[str, Instance] = {}


class Messenger:
    """Implements `CloudProvider` on the simulated cloud."""

    def __init__(self, inner: SimulatedCloud, family: FaultFamily, memory: TellingMemory) -> None:
        self._inner, self._family, self._memory = inner, family, memory
        self.untold: set[str] = family.notes.setdefault("untold", set())  # type: ignore[assignment]

    @property
    def notice_lead_s(self) -> int:
        """As the cloud's."""
        return self._inner.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        """As the cloud does."""
        grant = await self._inner.launch(request)
        for instance in grant.instances:
            self._memory.known[instance.instance_id] = instance
        return grant

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        """As the cloud does."""
        await self._inner.terminate(owner, instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        """As the cloud does."""
        return await self._inner.list(owner_name)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        """What is told, by the fate of each; the same again for the same token."""
        memory = self._memory
        if token in memory.told:
            return memory.told[token]
        told: list[CloudEvent] = []
        for event in await self._inner.events(token, at):
            told += self._by_fate(event)
        told += [event for due, event in memory.waiting if due <= memory.takings]
        memory.waiting = [(due, event) for due, event in memory.waiting if due > memory.takings]
        if self._family.rng.random() < _STRANGE:
            told.append(self._strange(at))
            self._family.hit()
        if self._family.rng.random() < _STRANGE:
            told.reverse()
        memory.takings += 1
        memory.told[token] = tuple(told)
        return memory.told[token]

    async def pushed(self) -> None:
        """As the cloud does."""
        await self._inner.pushed()

    def _by_fate(self, event: CloudEvent) -> Sequence[CloudEvent]:
        rng, memory = self._family.rng, self._memory
        if rng.random() >= _SHARE:
            return [event]
        self._family.hit()
        fate = rng.choice(_FATES)
        if fate in ("late", "never") and event.kind is CloudEventKind.STATE:
            # Nobody can know to the second when it ended.
            self.untold.add(event.instance.instance_id)
        match fate:
            case "late":
                memory.waiting.append((memory.takings + rng.randint(1, 4), event))
                return []
            case "double":
                memory.waiting.append((memory.takings + 1, event))
                return [event, event]
            case "never":
                return []
            case _:
                again = replace(event, event_id=f"{event.event_id}-again")
                return [event, again]

    def _strange(self, at: Moment) -> CloudEvent:
        """A notice of nobody's instance, of one that has ended long ago, or without sense."""
        rng, memory = self._family.rng, self._memory
        nobody = Instance(
            instance_id=f"never-was-{memory.takings}",
            token="",
            job_id="",
            tenant="",
            quota_pool="",
            offering_id="",
            capacity_type=CapacityType.SPOT,
            ready_ns=0,
        )
        known = [memory.known[instance_id] for instance_id in sorted(memory.known)]
        instance = rng.choice([nobody, *known[:3]])
        return CloudEvent(
            event_id=f"strange-{memory.takings}",
            instance=instance,
            kind=CloudEventKind.NOTICE,
            state=InstanceState.RUNNING,
            at_ns=rng.choice((at.ts_ns, 0, at.ts_ns + 10**15)),
            lead_s=rng.choice((0, 120, 10**6)),
            interruption=InterruptionKind.CAPACITY_RECLAIMED,
        )
