"""A cloud in front of another that does what clouds of the world do on their bad days.

Listings lag, answers are lost, notices come late, twice or never, launches are refused in every
class, calls are throttled: each as its schedule says, so that a test repeats itself. It knows
nothing of how the actuator copes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

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
    Refusal,
)
from spotline.contracts.errors import ProviderUnavailable, Throttled, UnknownOutcome
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

# A launch refused so was never worked on: its token is as good as new.
UNUSED = {RefusalClass.THROTTLED, RefusalClass.SERVER}


class Answer(Enum):
    """What becomes of a launch whose answer does not come: done before, or never arrived."""

    LOST_AFTER = "lost_after"
    LOST_BEFORE = "lost_before"


class Fate(Enum):
    """What becomes of an event: told on time, two takings late, twice, or never."""

    ON_TIME = "on_time"
    LATE = "late"
    DOUBLE = "double"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRule:
    """Refuse what fits: None fits all. `launches` is how many are refused, None for all.

    Moments are market time, in nanoseconds; `until_ns` is not in it any more.
    """

    refusal_class: RefusalClass
    offering_id: str | None = None
    capacity_type: CapacityType | None = None
    from_ns: int = 0
    until_ns: int | None = None
    launches: int | None = None
    retry_after_s: int = 0

    def fits(self, request: LaunchRequest, now_ns: int) -> bool:
        return (
            self.offering_id in (None, request.offering_id)
            and self.capacity_type in (None, request.capacity_type)
            and self.from_ns <= now_ns
            and (self.until_ns is None or now_ns < self.until_ns)
        )

    def refusal(self) -> Refusal:
        return Refusal(
            refusal_class=self.refusal_class,
            detail=f"{self.refusal_class.value}, says the cloud",
            retry_after_s=self.retry_after_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How long a listing stays behind: counted in listings and in seconds of market time."""

    listings: int = 0
    seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """What goes wrong, and when. Calls and launches are counted from 0.

    Parameters
    ----------
    launch_lag, end_lag
        How long a listing does not show a launch, and still shows what has ended.
    answers
        Launches, by number, whose answer is lost.
    notices, ends
        Fates of notices and of state changes, over and over; empty is all on time.
    strangers
        Every taking also tells of an instance that nobody ever launched.
    newest_first
        Takings tell the newest first.
    refusals
        The first rule that fits a fresh token refuses it.
    throttled, unavailable
        Calls, by number, that fail before they do anything.
    """

    launch_lag: Lag = Lag()
    end_lag: Lag = Lag()
    answers: dict[int, Answer] = field(default_factory=dict)
    notices: tuple[Fate, ...] = ()
    ends: tuple[Fate, ...] = ()
    strangers: bool = False
    newest_first: bool = False
    refusals: tuple[RefusalRule, ...] = ()
    throttled: frozenset[int] = frozenset()
    unavailable: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class _Sighting:
    since_ns: int
    listings: int = 0

    def behind(self, lag: Lag, now_ns: int) -> bool:
        self.listings += 1
        return self.listings <= lag.listings or now_ns - self.since_ns < lag.seconds * NS_PER_S


@dataclass(slots=True, kw_only=True)
class TroubleMemory:
    """What the cloud itself remembers; hand it to the next `TroubledCloud`, as to another process.

    `troubles` may be replaced at any time. `used` are tokens that launched something or were
    granted nothing, `refused` those whose refusal stands. `vanished` are never shown again.
    """

    troubles: Troubles = field(default_factory=Troubles)
    calls: int = 0
    launches: int = 0
    takings: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    refusals_by_rule: Counter[int] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)
    refused: dict[str, Refusal] = field(default_factory=dict)
    fresh: dict[str, _Sighting] = field(default_factory=dict)
    ended: dict[str, _Sighting] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    waiting: list[tuple[int, CloudEvent]] = field(default_factory=list)
    told: dict[str, tuple[CloudEvent, ...]] = field(default_factory=dict)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, event: CloudEvent) -> None:
        """Let the next taking tell `event`, and wake who waits for something new."""
        self.waiting.append((self.takings, event))
        self.bell.set()


class TroubledCloud:
    """Implements `CloudProvider` on another one. `now_ns` tells market time."""

    def __init__(
        self, inner: CloudProvider, now_ns: Callable[[], int], memory: TroubleMemory
    ) -> None:
        self._inner = inner
        self._now_ns = now_ns
        self.memory = memory

    @property
    def notice_lead_s(self) -> int:
        return self._inner.notice_lead_s

    async def launch(self, request: LaunchRequest) -> Grant:
        self._called("launch")
        number, memory = self.memory.launches, self.memory
        memory.launches += 1
        refusal = memory.refused.get(request.token) or self._refusal(request)
        if refusal is not None:
            return Grant(instances=(), refusal=refusal)
        answer = memory.troubles.answers.get(number)
        if answer is Answer.LOST_BEFORE:
            raise UnknownOutcome("troubled", request.token, "time-out")
        grant = await self._inner.launch(request)
        memory.used.add(request.token)
        for instance in grant.instances:
            memory.fresh.setdefault(instance.instance_id, _Sighting(since_ns=self._now_ns()))
        if answer is Answer.LOST_AFTER:
            raise UnknownOutcome("troubled", request.token, "connection reset")
        return grant

    async def terminate(self, owner: Owner, instance_ids: Sequence[str]) -> None:
        self._called("terminate")
        await self._inner.terminate(owner, instance_ids)
        self.memory.stopping.update(instance_ids)

    async def list(self, owner_name: str) -> Sequence[Instance]:
        self._called("list")
        memory, now_ns = self.memory, self._now_ns()
        shown = []
        for instance in await self._inner.list(owner_name):
            instance_id = instance.instance_id
            fresh = memory.fresh.get(instance_id)
            if instance_id in memory.vanished or (
                fresh is not None and fresh.behind(memory.troubles.launch_lag, now_ns)
            ):
                continue
            if instance.state is InstanceState.ENDED:
                ended = memory.ended.setdefault(instance_id, _Sighting(since_ns=now_ns))
                if ended.behind(memory.troubles.end_lag, now_ns):
                    asked = instance_id in memory.stopping
                    state = InstanceState.STOPPING if asked else InstanceState.RUNNING
                    instance = replace(instance, state=state)
            shown.append(instance)
        return tuple(shown)

    async def events(self, token: str, at: Moment) -> Sequence[CloudEvent]:
        self._called("events")
        memory = self.memory
        if token in memory.told:
            return memory.told[token]
        told: list[CloudEvent] = []
        for event in await self._inner.events(token, at):
            told += self._by_fate(event)
        told += [event for due, event in memory.waiting if due <= memory.takings]
        memory.waiting = [(due, event) for due, event in memory.waiting if due > memory.takings]
        if memory.troubles.strangers:
            told.append(stranger(f"stranger-{memory.takings}", at.ts_ns))
        if memory.troubles.newest_first:
            told.reverse()
        memory.takings += 1
        memory.told[token] = tuple(
            event for event in told if event.instance.instance_id not in memory.vanished
        )
        memory.bell.clear()
        return memory.told[token]

    async def pushed(self) -> None:
        await self.memory.bell.wait()

    def _called(self, name: str) -> None:
        number, memory = self.memory.calls, self.memory
        memory.calls += 1
        memory.counts[name] += 1
        if number in memory.troubles.throttled:
            raise Throttled("troubled", 1.0)
        if number in memory.troubles.unavailable:
            raise ProviderUnavailable(f"troubled: call {number} ({name}) was not answered")

    def _refusal(self, request: LaunchRequest) -> Refusal | None:
        memory, now_ns = self.memory, self._now_ns()
        if request.token in memory.used:
            return None
        for number, rule in enumerate(memory.troubles.refusals):
            spent = rule.launches is not None and memory.refusals_by_rule[number] >= rule.launches
            if spent or not rule.fits(request, now_ns):
                continue
            memory.refusals_by_rule[number] += 1
            if rule.refusal_class not in UNUSED:
                memory.refused[request.token] = rule.refusal()
            return rule.refusal()
        return None

    def _by_fate(self, event: CloudEvent) -> list[CloudEvent]:
        memory = self.memory
        notice = event.kind is CloudEventKind.NOTICE
        fates = memory.troubles.notices if notice else memory.troubles.ends
        number = memory.counts[event.kind.value]
        memory.counts[event.kind.value] += 1
        fate = fates[number % len(fates)] if fates else Fate.ON_TIME
        match fate:
            case Fate.ON_TIME:
                return [event]
            case Fate.NEVER:
                return []
            case Fate.LATE:
                memory.waiting.append((memory.takings + 2, event))
                return []
            case Fate.DOUBLE:
                memory.waiting.append((memory.takings + 1, event))
                return [event, event]


def notice_of(instance: Instance, at_ns: int, lead_s: int) -> CloudEvent:
    return CloudEvent(
        event_id=f"notice-{instance.instance_id}-{at_ns}",
        instance=replace(instance, state=InstanceState.RUNNING),
        kind=CloudEventKind.NOTICE,
        state=InstanceState.RUNNING,
        at_ns=at_ns,
        lead_s=lead_s,
        interruption=InterruptionKind.CAPACITY_RECLAIMED,
    )


def withdrawal_of(instance: Instance, at_ns: int) -> CloudEvent:
    """Take the notice of an instance back."""
    return CloudEvent(
        event_id=f"withdrawn-{instance.instance_id}-{at_ns}",
        instance=replace(instance, state=InstanceState.RUNNING),
        kind=CloudEventKind.WITHDRAWN,
        state=InstanceState.RUNNING,
        at_ns=at_ns,
    )


def stranger(event_id: str, at_ns: int) -> CloudEvent:
    """Tell of the end of an instance that is nobody's."""
    return CloudEvent(
        event_id=event_id,
        instance=Instance(
            instance_id="never-was",
            token="",
            job_id="",
            tenant="",
            quota_pool="",
            offering_id="",
            capacity_type=CapacityType.SPOT,
            ready_ns=0,
            state=InstanceState.ENDED,
        ),
        kind=CloudEventKind.STATE,
        state=InstanceState.ENDED,
        at_ns=at_ns,
        interruption=InterruptionKind.INSTANCE_FAILED,
    )
