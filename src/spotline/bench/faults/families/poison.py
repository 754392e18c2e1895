"""Well-formed entries that make no sense, as any part could write one by a bug."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from spotline.bench.faults.families.interface import Hasty
from spotline.contracts.build import envelope_for
from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import (
    CapacityReported,
    CapacitySignalled,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobProgressReported
from spotline.domain.events.market import SlotOpened

if TYPE_CHECKING:
    from spotline.bench.faults.world import FaultWorld

_DEEDS = 25
_FAR_SLOTS = (1, 7, 1_000, 100_000)
# What is altered until it makes no sense: of nobody's job, of a slot that is over or far away. What
# buys, and what a caller may say, is forged where it makes sense: that is another family.
_ALTERED = (
    *(SlotDecided, CapacityReported, CapacitySignalled, LaunchRefused),
    *(AllocationAnswered, ForecastIssued, ForecastOverdue),
    *(JobAdvanced, JobClosed, JobProgressReported),
    SlotOpened,
)
_WRITER = "stranger"


class Poison(Hasty):
    """Publishes events that were altered until they can be no part of this run."""

    name: ClassVar[str] = "poison"

    async def disturb(self, world: FaultWorld) -> None:
        """Write one every now and then, and some bytes that are nothing at all."""
        self.notes["foreign"] = set()
        self.notes["must_park"] = set()
        for number in range(_DEEDS):
            await asyncio.sleep(self.rng.random() * 2)
            if self.rng.random() < 0.15:
                self._write_noise(world, number)
                continue
            seen = world.events(*_ALTERED)
            made = list(self._senseless(seen)) if seen else []
            if made:
                self._write(world, self.rng.choice(made), number)

    def _senseless(self, seen: Sequence[Event]) -> Iterator[tuple[str, Event]]:
        event: Any = self.rng.choice(seen)
        names = {field.name for field in fields(event)}
        if "job_id" in names:
            yield "nobody", replace(event, job_id=f"nobody-{self.rng.randint(0, 9)}")
        if "slot" not in names:
            return
        latest = max(each.slot for each in seen if isinstance(each, SlotOpened))
        far = latest + 1 + self.rng.choice(_FAR_SLOTS)
        if isinstance(event, SlotOpened):
            # One from the past is what it was, under another id.
            yield "past", event
            yield "far", replace(event, slot=far, quotes=())
            return
        yield "far", replace(event, slot=far)
        if event.slot < latest - 1:
            yield "past", event
        if isinstance(event, SlotDecided):
            yield "must_park", replace(event, slot=far)

    def _write(self, world: FaultWorld, made: tuple[str, Event], number: int) -> None:
        how, event = made
        event_id = f"{number:032x}"
        try:
            envelope = envelope_for(
                event,
                event_id=event_id,
                # As that service could by a bug: of a stranger it would not be looked at.
                source=min(PUBLISHERS[KINDS[type(event)]]),
                causation_id="",
                correlation_id=event_id,
            )
        except (ContractError, ValueError):
            return
        self.notes["foreign"].add(event_id)  # type: ignore[attr-defined]
        if how == "must_park":
            self.notes["must_park"].add(event_id)  # type: ignore[attr-defined]
        world.broker.store(envelope.subject, envelope.headers(), envelope.payload)
        self.hit()

    def _write_noise(self, world: FaultWorld, number: int) -> None:
        if not world.broker.entries:
            return
        like = self.rng.choice(world.broker.entries)
        length = self.rng.choice((0, 1, 40, 5_000))
        event_id = f"{number:032x}"
        headers = {
            **like.headers,
            "ce-id": event_id,
            "ce-source": f"spotline/{_WRITER}",
            "ce-causationid": "",
            "Nats-Msg-Id": event_id,
        }
        self.notes["foreign"].add(event_id)  # type: ignore[attr-defined]
        world.broker.store(like.subject, headers, self.rng.randbytes(length))
        self.hit()
