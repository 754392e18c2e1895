"""A placer and an actuator on files, played together: commands one way, what a cloud did back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.spec import Context
from spotline.domain.events.capacity import ProvisioningCommanded, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.market.slot_quote import SlotQuote
from tests.fakes.actuator import Rig, quote, reported, running_in
from tests.fakes.placer import START_NS, Played, at

SLOT_S = 600


def offering(offering_id: str, gpus_per_instance: int = 1) -> Offering:
    return Offering(
        offering_id=offering_id,
        provider="aws",
        account="",
        region=f"region-{offering_id}",
        zone=f"zone-{offering_id}",
        instance_type="p4d",
        gpu_model="a100",
        gpus_per_instance=gpus_per_instance,
        quota_pool=f"pool-{offering_id}",
    )


def market(*offerings: Offering) -> MarketOpened:
    return MarketOpened(
        offerings=offerings, slot_s=SLOT_S, first_slot_start_ns=START_NS, source="test"
    )


def slot(number: int, *quotes: Quote, last: bool = False) -> SlotOpened:
    return SlotOpened(
        slot=number,
        ts_event_ns=at(number * SLOT_S),
        slot_s=SLOT_S,
        quotes=tuple(SlotQuote(quote=one, age_s=0) for one in quotes or (quote(),)),
        last=last,
    )


class Rented:
    """Plays slots through placer, actuator, ledger and cloud.

    `jobs` are commands of others that go with the next slot's first revision.
    """

    def __init__(
        self,
        directory: Path,
        *events: Event,
        caps: Caps | None = None,
        settings: SimulatedCloudSettings | None = None,
    ) -> None:
        self.placer = Played()
        self.rig = Rig(directory, caps=caps, settings=settings)
        self.log: list[Event] = []
        self.jobs: list[ProvisioningCommanded] = []
        self._count = 0
        for event in events:
            self._place(event)

    async def play(self, *events: Event) -> list[Event]:
        """Everything that follows from observations; those of an open slot are settled with it."""
        before = len(self.log)
        for event in events:
            waiting = deque([event])
            opened = isinstance(event, SlotOpened)
            while waiting:
                one = waiting.popleft()
                self.log.append(one)
                decided = self._place(one)
                waiting.extend(await self.rig.feed(one))
                # It has applied its own decisions already.
                for output in decided:
                    self.log.append(output)
                    waiting.extend(await self.rig.feed(output))
            if opened:
                await self._settle(event.slot)
        return self.log[before:]

    def _place(self, event: Event) -> Sequence[Event]:
        self._count += 1
        ctx = Context(seq=self._count, now_ns=0, event_id=f"{self._count:032}", correlation_id="c")
        return self.placer.play(event, ctx)

    async def _settle(self, number: int) -> None:
        """What the selector does: decide every revision; after the first without commands."""
        revision = offset_s = 0
        while True:
            commands, self.jobs = self.jobs, []
            decided = SlotDecided(
                slot=number, revision=revision, offset_s=offset_s, commands=len(commands)
            )
            answers = await self.play(*commands, decided)
            report = reported(answers)
            if report.settled:
                return
            revision, offset_s = revision + 1, report.offset_s

    async def held(self) -> dict[str, dict[str, int]]:
        """Instances in the cloud: by job, by offering."""
        counts: dict[str, dict[str, int]] = {}
        for one in await running_in(self.rig.cloud):
            lots = counts.setdefault(one.job_id, {})
            lots[one.offering_id] = lots.get(one.offering_id, 0) + 1
        return counts

    def close(self) -> None:
        self.rig.close()
