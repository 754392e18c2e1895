"""A log on a real broker whose services are played by a test, all but the actuator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from spotline.adapters.nats.stream import NatsEventStream
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.subjects import subjects_with
from spotline.domain.events.allocation import AllocationDecided, DecisionReason
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import AdmissionRecorded, JobAdmitted, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.jobs.job import Deadline, DeadlineKind
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import quote
from tests.fakes.allocator import job
from tests.fakes.events import envelope

_SAID = (
    *(AdmissionRecorded, CapacityReported, CapacityLost, CostAccrued, InterruptionNoticed),
    *(LaunchRefused, EntryParked),
)
_POLICY = "test"
_TRY_AGAIN_S = 0.1

EventT = TypeVar("EventT", bound=Event)


class PlayedLog:
    """Market, job and decisions, as services would store them; what the actuator says is read.

    One job of one offering runs on any count. `now_ns` is the market's present, `holding` what was
    settled last: spot and on-demand instances.
    """

    def __init__(
        self, stream: NatsEventStream, market: Market, offering_id: str, now_ns: Callable[[], int]
    ) -> None:
        self.said: list[Event] = []
        self.slot = self.revision = -1
        self.skips = False
        self.holding = (0, 0)
        self._stream, self._market, self.now_ns = stream, market, now_ns
        self._offering_id = offering_id
        self.commanded: list[str] = []
        self._read_seq = 0
        end_ns = market.start_ns + market.slots * market.slot_s * NS_PER_S
        self._job = replace(
            job("played", counts=tuple(range(1, 9))),
            deadline=Deadline(kind=DeadlineKind.HARD, at_ns=end_ns, expires_ns=end_ns),
        )

    @property
    def job_id(self) -> str:
        return self._job.job_id

    async def begin(self) -> None:
        """Open the market and its first slot, with the job in it."""
        market, job = self._market, self._job
        await self._store(
            MarketOpened(
                offerings=market.offerings,
                slot_s=market.slot_s,
                first_slot_start_ns=market.start_ns,
                source=market.source,
            )
        )
        await self._store(JobSubmitted(job=job, ts_event_ns=market.start_ns))
        await self.open_due()
        await self.until(AdmissionRecorded, lambda event: event.job_id == job.job_id)
        await self._store(
            JobAdmitted(
                job_id=job.job_id,
                tenant=job.tenant,
                slot=self.slot,
                policy_id=_POLICY,
                offering_id=self._offering_id,
                deadline_slot=market.slots,
                weight_ppb=10**9,
            )
        )

    async def open_due(self) -> None:
        """Open the slots whose time has come."""
        slot_ns = self._market.slot_s * NS_PER_S
        due = (self.now_ns() - self._market.start_ns) // slot_ns
        while self.slot < due:
            # As a market does whose clock went on while nobody was there.
            self.slot, self.revision = due if self.skips else self.slot + 1, -1
            quotes = [quote(one.offering_id, spot=8) for one in self._market.offerings]
            await self._store(
                SlotOpened(
                    slot=self.slot,
                    ts_event_ns=self._market.start_ns + self.slot * slot_ns,
                    slot_s=self._market.slot_s,
                    quotes=tuple(_quoted(one, self._market.start_ns) for one in quotes),
                    last=self.slot == self._market.slots - 1,
                )
            )

    async def decide(self, spot: int, on_demand: int) -> None:
        """Decide the next revision: so many instances of each kind."""
        await self.open_due()
        self.revision += 1
        lot = Lot(offering_id=self._offering_id, spot=spot, on_demand=on_demand)
        at = {"slot": self.slot, "revision": self.revision, "offset_s": self._offset_s()}
        named = {"job_id": self._job.job_id, "tenant": self._job.tenant}
        self.commanded.append(f"{self._job.job_id}-{self.slot}-{self.revision}")
        await self._store(
            AllocationDecided(
                **named,
                **at,
                policy_id=_POLICY,
                lots=(lot,),
                reason=DecisionReason.POLICY,
                forecast_used=True,
                explanation="as the test says",
            ),
            ProvisioningCommanded(
                **named,
                **at,
                command_id=self.commanded[-1],
                quota_pool="p",
                target=lot,
            ),
            SlotDecided(**at, commands=1),
        )

    async def decided(self, spot: int, on_demand: int) -> None:
        """Decide, again and again until the slot has settled with just these instances held."""
        while True:
            await self.decide(spot, on_demand)
            slot, revision = self.slot, self.revision
            report = await self.until(
                CapacityReported,
                lambda event, at=(slot, revision): (event.slot, event.revision) == at,
            )
            if report.settled and _held(report.holdings) == (spot, on_demand):
                self.holding = (spot, on_demand)
                return
            await asyncio.sleep(_TRY_AGAIN_S)

    async def until(
        self,
        kind: type[EventT],
        matches: Callable[[EventT], bool],
        *,
        holding: tuple[int, int] | None = None,
    ) -> EventT:
        """The first event of a kind that is so, of all that were said; waits for it.

        `holding` (spot, on-demand) is decided in every slot that opens meanwhile; by default nothing.
        """
        place = 0
        while True:
            await self.read()
            for event in self.said[place:]:
                if isinstance(event, kind) and matches(event):
                    return event
            place = len(self.said)
            await self.open_due()
            if holding is not None and self.revision < 0:
                await self.decide(*holding)
            await asyncio.sleep(0.02)

    async def read(self) -> None:
        """Take in what the actuator has said."""
        last_seq = await self._stream.last_seq()
        if last_seq == self._read_seq:
            return
        entries = self._stream.read(
            subjects_with(_SAID), first_seq=self._read_seq + 1, last_seq=last_seq
        )
        async for entry in entries:
            self.said += [event_of(one) for one in unpacked(entry)]
        self._read_seq = last_seq

    async def entries(self) -> AsyncIterator[StoredEntry]:
        """All that is stored."""
        async for entry in self._stream.read([], last_seq=await self._stream.last_seq()):
            yield entry

    def of(self, kind: type[EventT]) -> list[EventT]:
        """What was said of a kind."""
        return [event for event in self.said if isinstance(event, kind)]

    def _offset_s(self) -> int:
        begun_ns = self._market.start_ns + self.slot * self._market.slot_s * NS_PER_S
        return min(self._market.slot_s - 1, max(0, self.now_ns() - begun_ns) // NS_PER_S)

    async def _store(self, *events: Event) -> None:
        # The cause of what is decided is the last thing that was: one of its own for each.
        cause = f"played-{self.slot}-{self.revision}-{type(events[0]).__name__}"
        sealed = [
            envelope(event, causation_id=cause, index=index) for index, event in enumerate(events)
        ]
        await self._stream.publish([entry.envelope for entry in packed(sealed)])


def _quoted(said: Quote, start_ns: int) -> SlotQuote:
    return SlotQuote(quote=replace(said, ts_event_ns=start_ns), age_s=0)


def _held(holdings: Sequence[JobHolding]) -> tuple[int, int]:
    lots = [lot for holding in holdings for lot in holding.lots]
    return sum(lot.spot for lot in lots), sum(lot.on_demand for lot in lots)
