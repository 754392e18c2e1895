"""Keeps the gangs going: takes what agents say, records what follows, wakes those who wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from spotline.application.allocator.agent_messages import AllocationState, TrainingAllocation
from spotline.application.allocator.gang import Gang, ProgramReport
from spotline.application.allocator.gang_facts import AgentTimes, GangFacts
from spotline.application.allocator.gangs import GangView, follows, note_stop, told
from spotline.application.allocator.ports import JobsHost
from spotline.application.market_view import ClockReading
from spotline.application.spec import derive_id
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobExited, JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.training import (
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
)
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

AGENT_STATES = (
    *(state.value for state in AllocationState if state is not AllocationState.OVER),
    "silent",
)
"""The states that agents of a job that is not over are counted in."""

_LONGEST_TICK_S = 1.0
# What is recorded at most once: its type, and which generation or instance.
_Key = tuple[str, int | str]


class GangKeeper:
    """The gangs of a running allocator, with what their agents say.

    Give `on_applied` to the host; call `begin` once it has recovered, and run `run`.

    Parameters
    ----------
    clock
        Seconds that never go back.

    Attributes
    ----------
    slot_seq
        Where the log has the opening of the open slot, 0 before the first.
    ended
        Whether the server stops.
    """

    def __init__(
        self,
        host: JobsHost,
        times: AgentTimes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self.times = times
        self._clock = clock
        self._facts: dict[str, GangFacts] = {}
        self._asked: dict[str, set[_Key]] = {}
        self._watches: dict[str, set[asyncio.Event]] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._slot_seen_s = clock()
        self.slot_seq = 0
        self._begun = False
        self._states: Mapping[str, int] = dict.fromkeys(AGENT_STATES, 0)
        self._stalled = 0
        self.ended = False

    # --- the log --------------------------------------------------------------------------------

    def begin(self, *, slot_age_s: float = 0.0) -> None:
        """Take the gangs over as the log has them: every agent counts as heard of just now.

        The open slot was opened `slot_age_s` of wall time ago: market time goes on from there.
        """
        now_s = self._clock()
        self._slot_seen_s = now_s - slot_age_s
        for job_id, gang in self._host.state.gangs.by_job.items():
            if not gang.over:
                self._facts[job_id] = GangFacts(
                    since_s=now_s, restored=gang.generation, formed_s=now_s
                )
        self._begun = True
        self._change(*self._facts)

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host. Never waits."""
        if isinstance(event, SlotOpened):
            self._slot_seen_s, self.slot_seq = self._clock(), seq
        if not self._begun:
            return
        if isinstance(event, CapacityReported):
            self._change(*self._facts)
            return
        submitted = isinstance(event, JobSubmitted)
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
        gang = self._host.state.gangs.get(job_id)
        if gang is None:
            return
        now_s = self._clock()
        facts = self._facts.setdefault(job_id, GangFacts(since_s=now_s, formed_s=now_s))
        if isinstance(event, GenerationFormed) and event.generation == gang.generation:
            facts.form(now_s)
        if isinstance(event, ProgramReport) and event.generation in (0, gang.generation):
            facts.report(now_s)
        self._asked.get(job_id, set()).discard(_key_of(event))
        if not submitted:
            self._change(job_id)

    def now_ns(self) -> int:
        """Market time at this moment: within the open slot it goes on with the wall's."""
        market = self._host.state.recent
        if market.opened is None:
            return market.now_ns
        passed_s = (self._clock() - self._slot_seen_s) * self.times.market_s_per_s
        within_ns = min(round(passed_s * NS_PER_S), market.slot_s * NS_PER_S - 1)
        return market.now_ns + max(within_ns, 0)

    def age_s(self, ts_ns: int) -> float:
        """Seconds of wall time since a moment of market time; below 0: it is to come."""
        return (self.now_ns() - ts_ns) / NS_PER_S / self.times.market_s_per_s

    def clock(self) -> ClockReading | None:
        """Market time as of now, None before a market is known."""
        reading = self._host.state.recent.clock()
        return None if reading is None else replace(reading, market_ns=self.now_ns())

    # --- agents ---------------------------------------------------------------------------------

    def joined(self, gang: Gang, instance_id: str) -> None:
        """An agent has just joined."""
        self._of(gang).join(instance_id, self._clock())
        self._change(gang.job_id)

    def heard(self, gang: Gang, instance_id: str) -> None:
        """An agent has called."""
        self._of(gang).hear(instance_id, self._clock())

    def in_lease(self, gang: Gang, instance_id: str) -> bool:
        """Whether an agent was heard of within its lease; all were when this process began."""
        away_s = self._clock() - self._of(gang).last_heard_s(instance_id)
        return away_s < self.times.lease_s

    def beat(self, gang: Gang, instance_id: str, generation: int) -> None:
        """An agent says which generation runs there."""
        facts = self._of(gang)
        before = facts.running(instance_id)
        facts.beat(instance_id, generation, self._clock())
        if before != generation or instance_id in gang.silent:
            self._change(gang.job_id)

    def started(self, gang: Gang, instance_id: str, generation: int) -> None:
        """The processes of a generation were started."""
        self._of(gang).start(instance_id, generation, self._clock())
        self._change(gang.job_id)

    def stopped(
        self, gang: Gang, instance_id: str, generation: int, exit_code: int, detail: str
    ) -> None:
        """The processes of a generation have ended."""
        self._of(gang).stop(instance_id, generation, exit_code, detail, self._clock())
        self._change(gang.job_id)

    def told(self, gang: Gang, instance_id: str) -> TrainingAllocation | None:
        """What an instance is to do now, None while that cannot be said."""
        view = self._view(gang)
        note_stop(view)
        return told(view, instance_id)

    def states(self) -> Mapping[str, int]:
        """How many agents of jobs that are not over are in which state, as of the last tick.

        A silent agent is counted as `silent`. Any thread may ask.
        """
        return self._states

    def stalled(self) -> int:
        """How many jobs that are not over are stalled, as of the last tick. Any thread may ask."""
        return self._stalled

    def _count_stalled(self) -> int:
        gangs = (self._host.state.gangs.get(job_id) for job_id in self._facts)
        return sum(gang is not None and gang.stall is not None for gang in gangs)

    def _count(self) -> dict[str, int]:
        found = dict.fromkeys(AGENT_STATES, 0)
        for job_id in self._facts:
            gang = self._host.state.gangs.get(job_id)
            if gang is None or gang.over:
                continue
            view = self._view(gang)
            for name in gang.held:
                if name in gang.joined:
                    allocation = told(view, name)
                    state = AllocationState.WAIT if allocation is None else allocation.state
                    found["silent" if view.silent(name) else state.value] += 1
        return found

    # --- those who wait -------------------------------------------------------------------------

    def watch(self, job_id: str) -> asyncio.Event:
        """An event that is set when a gang may have changed, until `forget`."""
        changed = asyncio.Event()
        self._watches.setdefault(job_id, set()).add(changed)
        return changed

    def forget(self, job_id: str, changed: asyncio.Event) -> None:
        """Set an event no more. Safe to repeat."""
        watches = self._watches.get(job_id, set())
        watches.discard(changed)
        if not watches:
            self._watches.pop(job_id, None)

    def end(self) -> None:
        """Wake everybody: the server stops."""
        self.ended = True
        for job_id in tuple(self._watches):
            self._tell(job_id)

    # --- what follows ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Record what follows, when something changes and as time passes; until cancelled."""
        tick_s = min(self.times.heartbeat_s / 4, _LONGEST_TICK_S)
        while True:
            changed, self._changed = self._changed, set()
            self._wake.clear()
            for job_id in sorted(changed or self._facts):
                await self._advance(job_id)
            self._states, self._stalled = self._count(), self._count_stalled()
            try:
                async with asyncio.timeout(tick_s):
                    await self._wake.wait()
            except TimeoutError:
                self._changed.update(self._facts)

    async def _advance(self, job_id: str) -> None:
        gang = self._host.state.gangs.get(job_id)
        if gang is None:
            return
        view = self._view(gang)
        note_stop(view)
        self._tell(job_id)
        if gang.over:
            self._facts.pop(job_id, None)
            self._asked.pop(job_id, None)
            return
        asked = self._asked.setdefault(job_id, set())
        for event in follows(view):
            key = _key_of(event)
            if key in asked:
                continue
            asked.add(key)
            try:
                await self._host.publish_observation(
                    event, event_id=self._event_id(event), correlation_id=job_id
                )
            except ProviderUnavailable as error:
                # Asked for again with the next tick.
                asked.discard(key)
                _log.warning("gang_not_recorded", job_id=job_id, error=str(error))

    def _event_id(self, event: Event) -> str:
        match event:
            case GenerationFormed():
                return derive_id(event.job_id, f"generation:{event.generation}")
            case JobExited():
                return derive_id(event.job_id, f"exited-generation:{event.generation}")
            case JobStalled() | JobStallEnded():
                said = f"{type(event).__name__}:{event.generation}:{event.since_ns}"
                return derive_id(event.job_id, said)
            case JobSilent() | JobHeard():
                said = f"{type(event).__name__}:{event.instance_id}:{event.ts_event_ns}"
                return derive_id(event.job_id, f"{said}:{self._clock()!r}")
            case _:
                raise InvariantViolation(f"a gang leads to no {type(event).__name__}")

    def _view(self, gang: Gang) -> GangView:
        return GangView(
            gang=gang,
            facts=self._of(gang),
            times=self.times,
            now_s=self._clock(),
            now_ns=self.now_ns(),
            slot_s=self._host.state.recent.slot_s,
        )

    def _of(self, gang: Gang) -> GangFacts:
        facts = self._facts.get(gang.job_id)
        if facts is None:
            now_s = self._clock()
            facts = GangFacts(since_s=now_s, formed_s=now_s, restored=gang.generation)
            if not gang.over:
                self._facts[gang.job_id] = facts
        return facts

    def _change(self, *job_ids: str) -> None:
        self._changed.update(job_ids)
        self._wake.set()
        for job_id in job_ids:
            self._tell(job_id)

    def _tell(self, job_id: str) -> None:
        for changed in self._watches.get(job_id, ()):
            changed.set()


def _key_of(event: Event) -> _Key:
    which = getattr(event, "generation", None)
    if isinstance(event, JobSilent | JobHeard):
        which = event.instance_id
    return type(event).__name__, which if isinstance(which, int | str) else ""


def _job_id_of(event: Event) -> str:
    return str(getattr(event, "job_id", ""))
