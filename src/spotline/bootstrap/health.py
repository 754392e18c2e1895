"""The health of the services of one process: collected, judged, told to the system, and served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.heartbeats import tell_health
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.health.conditions import (
    OF_THE_SYSTEM,
    ConditionKind,
    HealthLimits,
    Judged,
)
from spotline.application.health.flow import (
    BusJudge,
    FollowJudge,
    LogFacts,
    publishing,
    storage,
)
from spotline.application.health.surroundings import LoopJudge
from spotline.application.operations.messages import ServiceStatus
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.runtime.health import Health
from spotline.runtime.health_metrics import CONDITION, CONDITION_FIGURES, HEALTHY
from spotline.runtime.metrics import SERVICE, Readings
from spotline.runtime.telemetry import telemetry_for

_log = structlog.get_logger(__name__)

LOOK_S = 2.0
# For all that the broker is asked in one look.
_ANSWER_S = 5.0

Probe = Callable[[float], Sequence[Judged]]
"""Judges something at a time, in seconds of a clock that never goes back; quick, on the loop."""


class Hosted(Protocol):
    """A running service, as its health is asked for."""

    @property
    def applied_seq(self) -> int:
        """The last entry of the log that it has taken."""
        ...

    def health(self) -> Health:
        """Whether it is well, and what it says of itself."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSaid:
    """What the broker told of the log, or why it did not; `is_gone` says that there is no log."""

    facts: LogFacts | None = None
    problem: str = ""
    is_gone: bool = False


@dataclass(slots=True)
class HealthProbes:
    """The services of this process: what is judged of each, and whether it is ready.

    Nothing is judged before the first `judge`: then a service is as ready as it says itself.
    """

    hosts: dict[str, Hosted] = field(default_factory=dict)
    connections: dict[str, NatsConnection] = field(default_factory=dict)
    limits: HealthLimits = field(default_factory=HealthLimits)
    _probes: dict[str, list[Probe]] = field(default_factory=dict)
    _following: dict[str, FollowJudge] = field(default_factory=dict)
    _judged: dict[str, tuple[Judged, ...]] = field(default_factory=dict)
    _bus: BusJudge = field(init=False)
    _loop: LoopJudge = field(init=False)

    def __post_init__(self) -> None:
        self._bus = BusJudge(limits=self.limits)
        self._loop = LoopJudge(limits=self.limits)

    def note(self, service: str, host: Hosted, connection: NatsConnection) -> None:
        """Add a service; one that bore its name before is forgotten."""
        self.hosts[service] = host
        self.connections[service] = connection
        self._following[service] = FollowJudge(limits=self.limits)
        self._judged.pop(service, None)

    def probe(self, service: str, probe: Probe) -> Callable[[], None]:
        """Have more judged of a service, until the result is called."""
        probes = self._probes.setdefault(service, [])
        probes.append(probe)
        return lambda: probes.remove(probe) if probe in probes else None

    def judge(
        self, said: BrokerSaid, applied: Mapping[str, int], *, now_s: float, late_s: float = 0.0
    ) -> None:
        """Judge everything anew.

        `applied` is how far each service had come before the broker was asked, `late_s` how much
        later than asked for the event loop called back.
        """
        shared = [
            self._bus.judge(problem=said.problem, now_s=now_s, is_final=said.is_gone),
            self._loop.judge(late_s, now_s),
        ]
        if said.facts is not None:
            shared.append(storage(said.facts, self.limits))
        for service, applied_seq in applied.items():
            found = [*self._followed(service, applied_seq, said.facts, now_s), *shared]
            failing = self.connections[service].publishing.failing
            found.append(publishing(failing, self.limits, now_s))
            for probe in tuple(self._probes.get(service, ())):
                found += probe(now_s)
            self._tell_changes(service, found)
            self._judged[service] = tuple(found)

    def judged(self, service: str) -> tuple[Judged, ...]:
        """What was judged last of a service."""
        return self._judged.get(service, ())

    def ready(self, service: str) -> bool:
        """Whether events flow through a service of this process. Any thread may ask."""
        host = self.hosts.get(service)
        if host is None or not host.health().healthy:
            return False
        if not self.connections[service].connected:
            return False
        return not any(judged.stops_events for judged in self.judged(service))

    def alive(self) -> bool:
        """Whether no restart is needed: everything that should run does."""
        return all(
            judged.healthy
            for service in tuple(self.hosts)
            for judged in self.judged(service)
            if judged.kind is ConditionKind.TASKS
        )

    def statuses(self) -> tuple[ServiceStatus, ...]:
        """How the services of this process are, by name."""
        return tuple(
            ServiceStatus(
                service=service,
                ready=self.ready(service),
                heard_s_ago=0,
                conditions=tuple(
                    judged.condition()
                    for judged in self.judged(service)
                    if judged.kind not in OF_THE_SYSTEM
                ),
            )
            for service in sorted(self.hosts)
        )

    def overall(self) -> Health:
        """Ready when events flow through every service; not before there is one."""
        detail: dict[str, str | int | bool] = {}
        for name, host in sorted(self.hosts.items()):
            detail[f"{name}.connected"] = self.connections[name].connected
            detail.update({f"{name}.{key}": value for key, value in host.health().detail.items()})
            for judged in self.judged(name):
                if not judged.healthy:
                    detail[f"{name}.{judged.kind.value}"] = judged.condition().detail
        healthy = bool(self.hosts) and all(self.ready(name) for name in self.hosts)
        return Health(healthy=healthy, detail=detail)

    def conditions(self) -> Readings:
        """Whether each condition is well, as a metric."""
        for service, found in tuple(self._judged.items()):
            for judged in found:
                yield float(judged.healthy), {SERVICE: service, CONDITION: judged.kind.value}

    def figures(self, kind: ConditionKind) -> Readings:
        """By which figures a condition is judged, as a metric."""
        for service, found in tuple(self._judged.items()):
            for judged in found:
                if judged.kind is kind and judged.figure is not None:
                    yield float(judged.figure), {SERVICE: service}

    def _followed(
        self, service: str, applied_seq: int, facts: LogFacts | None, now_s: float
    ) -> list[Judged]:
        if facts is None:
            # What was seen last stands until something else is seen.
            return [one for one in self.judged(service) if one.kind is ConditionKind.LOG]
        following = self._following[service]
        place = facts.places.get(service)
        return [
            following.judge(
                applied_seq=applied_seq, place=place, last_seq=facts.last_seq, now_s=now_s
            )
        ]

    def _tell_changes(self, service: str, found: Sequence[Judged]) -> None:
        before = {judged.kind: judged.healthy for judged in self.judged(service)}
        for judged in found:
            if judged.healthy == before.get(judged.kind, True):
                continue
            tell = _log.info if judged.healthy else _log.error
            tell(
                "condition_healthy" if judged.healthy else "condition_unhealthy",
                service=service,
                condition=judged.kind.value,
                detail=judged.condition().detail,
            )


class HealthMonitor:
    """Looks at the services of a process every `look_s`, and tells the system how they are.

    It has a connection of its own, so that it sees what those of the services do not.

    Parameters
    ----------
    connection
        Not open yet; it is closed with the monitor.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        connection: NatsConnection,
        probes: HealthProbes,
        *,
        partition: int = 0,
        look_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probes = probes
        self._connection = connection
        self._stream = NatsEventStream(
            self._connection, partition=partition, publish_timeout_s=_ANSWER_S
        )
        self._look_s = look_s or LOOK_S
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        hidden = self._show()
        try:
            late_s = 0.0
            while True:
                await self._look(late_s)
                due_s = self._clock() + self._look_s
                await asyncio.sleep(self._look_s)
                late_s = self._clock() - due_s
        finally:
            for hide in hidden:
                hide()
            await self._connection.close()

    async def _look(self, late_s: float) -> None:
        probes = self._probes
        # Before the broker is asked: what is applied by now is in the log that it tells of.
        applied = {service: host.applied_seq for service, host in sorted(probes.hosts.items())}
        said = await self._asked(tuple(applied))
        probes.judge(said, applied, now_s=self._clock(), late_s=late_s)
        with suppress(ProviderUnavailable):  # its condition says so
            await tell_health(self._connection, probes.statuses())

    async def _asked(self, services: Sequence[str]) -> BrokerSaid:
        from nats.js.errors import NotFoundError

        from spotline.adapters.nats.connection import PASSING

        try:
            async with asyncio.timeout(_ANSWER_S):
                return BrokerSaid(facts=await self._stream.facts(services))
        except NotFoundError as error:
            return BrokerSaid(problem=f"there is no log: {error.description}", is_gone=True)
        except (ConfigError, ProviderUnavailable, *PASSING) as error:
            return BrokerSaid(problem=str(error) or type(error).__name__)

    def _show(self) -> list[Callable[[], None]]:
        telemetry = telemetry_for("health")
        shown = [telemetry.observe(HEALTHY, self._probes.conditions)]
        for kind, name in CONDITION_FIGURES.items():
            shown.append(telemetry.observe(name, partial(self._probes.figures, kind)))
        return shown
