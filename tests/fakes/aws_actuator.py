"""A whole actuator before the rehearsal of AWS, over HTTP, with a place to die at every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from spotline.adapters.clouds.aws.cloud import AwsCloud
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.handler import SPEC, ActuateHandler
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import CapacityReported, CapacitySignalled, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.weather import Weather
from tests.fakes.actuator import (
    CTX,
    OWNER,
    SLOT_S,
    Killed,
    KillSwitch,
    Mortal,
    command,
    lot,
    opened,
    quote,
    submitted,
)
from tests.fakes.aws_rehearsal import START_NS, RehearsedAws, SharedApi, market
from tests.fakes.memory_ledger import LedgerMemory, MemoryLedger
from tests.fakes.nasty_rig import REAPS_AT_ONCE, holdings_of

OFFERING_ID = "aws:default:use1-az1:p4d.24xlarge"


class MortalApi(SharedApi):
    """Passes every call on, and may die before it is sent and after it was answered."""

    def __init__(self, api: Any, switch: KillSwitch) -> None:
        super().__init__(api)
        self._switch = switch

    async def call(self, *asked: Any, **params: Any) -> Any:
        self._switch.point()
        answer = await self._api.call(*asked, **params)
        self._switch.point()
        return answer

    async def read(self, *asked: Any, **params: Any) -> Any:
        self._switch.point()
        answer = await self._api.read(*asked, **params)
        self._switch.point()
        return answer

    def call_now(self, *asked: Any, **params: Any) -> Any:
        self._switch.point()
        answer = self._api.call_now(*asked, **params)
        self._switch.point()
        return answer

    def start(self, work: Any) -> Future[None]:
        return self._api.start(work)


class AwsActuator:
    """Feeds what a log would, and performs what follows until it is done, through every death."""

    def __init__(
        self,
        folder: Path,
        *,
        weather: Weather | None = None,
        fail_share: float = 0,
        seed: int = 0,
        ahead_s: int = 0,
    ) -> None:
        """`ahead_s` is what the actuator's clock is ahead of AWS's."""
        self.folder, self.ahead_s = folder, ahead_s
        self.performed: list[tuple[Any, tuple[Event, ...]]] = []
        self.aws = RehearsedAws(folder / "rehearsal", weather, fail_share=fail_share, seed=seed)
        self.kill = KillSwitch()
        self.memory = LedgerMemory()
        self.handler = ActuateHandler()
        self.state = self.handler.initial()
        self.published: list[Event] = []
        self.deaths = 0
        self.slot = self.revision = -1
        self._clouds: list[AwsCloud] = []
        self.open()

    def open(self) -> None:
        """Start the actuator as another process."""
        api = MortalApi(self.aws.api, self.kill)
        cloud = AwsCloud(self.folder / "aws.sqlite", self.aws.settings, api, self)
        self._clouds.append(cloud)
        self.ledger = MemoryLedger(self.memory, OWNER)
        self.actuation = CloudActuation(
            cloud,
            Mortal(self.ledger, self.kill, ("write_intents", "record")),
            ActuationOptions(clock=self, agreement=REAPS_AT_ONCE),
        )

    def now_ns(self) -> int:
        """The actuator's own clock."""
        return self.aws.now_ns() + self.ahead_s * NS_PER_S

    def close(self) -> None:
        for cloud in self._clouds:
            cloud.close()
        self.aws.close()

    async def start(self) -> None:
        while True:
            try:
                await self.actuation.start()
                return
            except ProviderUnavailable:
                self.aws.pass_s(1)
            except Killed:
                self._die()

    async def begin(self) -> None:
        """Open the market, with one job in it that runs on any count."""
        await self.start()
        offerings = market().offerings
        await self.feed(
            MarketOpened(
                offerings=offerings, slot_s=SLOT_S, first_slot_start_ns=START_NS, source="t"
            )
        )
        await self.feed(submitted())

    async def open_slot(self, slot: int) -> None:
        self.slot, self.revision = slot, -1
        behind_ns = START_NS + slot * SLOT_S * NS_PER_S - self.aws.now_ns()
        self.aws.pass_s(max(0, behind_ns) / NS_PER_S)
        event = opened(slot, quote(OFFERING_ID, spot=8))
        await self.feed(replace(event, ts_event_ns=START_NS + event.ts_event_ns))

    async def decide(self, targets: Iterable[tuple[str, int, int]] = ()) -> CapacityReported:
        """Decide a revision now; targets are (job, spot, on-demand)."""
        self.revision += 1
        commands = [
            command(job_id, lot(spot, on_demand, OFFERING_ID), self.slot, self.revision, self.now_s)
            for job_id, spot, on_demand in targets
        ]
        for commanded in commands:
            await self.feed(commanded)
        decided = SlotDecided(
            slot=self.slot,
            revision=self.revision,
            offset_s=self.now_s,
            commands=len(commands),
        )
        return next(
            event for event in await self.feed(decided) if isinstance(event, CapacityReported)
        )

    async def signal(self) -> tuple[Event, ...]:
        return await self.feed(CapacitySignalled(slot=self.slot, offset_s=self.now_s))

    async def feed(self, event: Event) -> tuple[Event, ...]:
        self.handler.evolve(self.state, event)
        answers: tuple[Event, ...] = ()
        for call in self.handler.decide(self.state, event, CTX).calls:
            answers += await self._perform(call)
        return answers

    async def _perform(self, call: Any) -> tuple[Event, ...]:
        while True:
            try:
                answers = tuple(await self.actuation.perform(call))
                break
            except ProviderUnavailable:
                self.aws.pass_s(1)
            except Killed:
                self._die()
                await self.start()
        self.performed.append((call, answers))
        self.published += answers
        for answer in answers:
            if isinstance(answer, SPEC.consumes):
                self.handler.evolve(self.state, answer)
        return answers

    def _die(self) -> None:
        self.deaths += 1
        self.open()

    @property
    def now_s(self) -> int:
        return (self.aws.now_ns() - START_NS) // NS_PER_S - self.slot * SLOT_S

    # --- what is true ---------------------------------------------------------------------------

    def alive(self) -> set[str]:
        """What truly costs money: pending or running."""
        here = self.aws.world.state.here.values()
        return {one.instance_id for one in here if one.state in ("pending", "running")}

    def held(self) -> set[str]:
        rows = self.memory.instances
        return {row["held"].instance_id for row in rows if row["end"] is None}

    def launched_by_token(self) -> Counter[str]:
        """How many instances each of our tokens ever launched."""
        everything = self.aws.world.state.instances.values()
        return Counter(one.tags["spotline-token"] for one in everything)

    def booked(self) -> set[str]:
        """Every instance that the ledger ever held."""
        return {row["held"].instance_id for row in self.memory.instances}

    def asked_for(self) -> dict[str, int]:
        """What each token may launch."""
        return {
            launch.token: launch.permitted
            for intent in self.memory.intents
            for launch in intent.launches
        }


__all__ = ["OFFERING_ID", "AwsActuator", "MortalApi", "holdings_of"]
