"""The services that follow events, composed in one loop of virtual time, as `up` composes them.

Real handlers, hosts, ledger and simulated cloud; the broker is in memory, and what goes over gRPC
is called in process. Each service is a process as far as the others can see: killed, nothing of it
reaches broker, ledger or cloud any more, and another one is started in its place.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.grpc.allocator.admitting import Acknowledging
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.admission import Accepted
from spotline.application.allocator.handler import JobsHandler, check_submission
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.cloud_actuator.handler import ActuateHandler
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.cloud_actuator.ports import CloudProvider
from spotline.application.forecaster.handler import ForecastHandler, ForecastStateCodec
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.read_model.handler import ReadModelHandler
from spotline.application.selector.handler import SelectHandler
from spotline.application.spec import Call, Timer
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.points import (
    SERVICES,
    CountedStream,
    Killed,
    Lifeline,
    counted_cloud,
    counted_ledger,
    counted_snapshots,
)
from spotline.bench.faults.scenario import HORIZON_SLOTS, START_NS, Scenario
from spotline.bench.faults.stream import MemoryBroker, MemorySnapshots
from spotline.bench.faults.virtual_time import run_virtually
from spotline.bench.faults.world_store import INSTALLATION, OWNER, WorldStore
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError, InvariantViolation, ProviderUnavailable
from spotline.contracts.mapping import digest
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.forecasting.registry import forecaster_factory
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.orphans import ReapRules
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S
from spotline.replay.parts import answer_in_process
from spotline.runtime.lineage import SnapshotsOfLog
from spotline.runtime.retelling import tell_again
from spotline.runtime.service import HostSettings, ServiceHost
from spotline.runtime.snapshots import Snapshots

AnyHost = ServiceHost[Any]

_REAP = ReapRules(installation_id=INSTALLATION.installation_id)
_HOST = HostSettings(batch=32, idle_s=5.0, snapshot_every=16, threads=False)
_LOOK_EVERY_S = 0.5
_RETRY_S = 1.0
_START_AGAIN_S = 1.0
_MOST_CRASHES = 6
# Nothing has come for so long: nothing will.
PATIENCE_S = 6 * 3600.0


class Disturbing(Protocol):
    """What a family of faults does to a world; see `families.interface`."""

    faults: int
    notes: dict[str, object]

    def delay_s(self) -> float:
        """How long a trip to broker, ledger or cloud takes."""
        ...

    def ingest(self) -> IngestOptions:
        """How market_ingest opens slots."""
        ...

    def market(self, market: Market) -> Market:
        """The market as market_ingest gets it."""
        ...

    def cloud(self, cloud: SimulatedCloud) -> CloudProvider:
        """The cloud as the actuator sees it."""
        ...

    def reach(self, line: Lifeline, point: str) -> None:
        """A service comes by a fail point."""
        ...

    async def before_slot(self, world: FaultWorld, slot: int) -> None:
        """The market waits for this before it opens a slot."""
        ...

    async def disturb(self, world: FaultWorld) -> None:
        """Run beside the services."""
        ...


class FaultWorld:
    """One run.

    Attributes
    ----------
    hosts
        The present process of each service; none while it is down.
    lines
        The latest process of each service, also where it has ended.
    """

    def __init__(self, scenario: Scenario, family: Disturbing, folder: Path) -> None:
        self.scenario = scenario
        self.family = family
        self.folder = folder
        self.ledger_file = folder / "ledger.sqlite"
        self.cloud_file = folder / "simulated_cloud.sqlite"
        self.clock_skew_ns = 0
        self.broker = MemoryBroker(now_ns=self._now_ns)
        self.store = WorldStore(self.broker, self.ledger_file, self._pause)
        self.hosts: dict[str, AnyHost] = {}
        self.lines: dict[str, Lifeline] = {}
        self.points: Counter[str] = Counter()
        self.killed: set[str] = set()
        self.crashes: dict[str, list[str]] = {}
        self.accepted: dict[str, str] = {}
        self.stalled = ""
        self._ended: set[str] = set()  # in the first so many entries that were lost
        self._lost_read = 0
        self.patience_s = PATIENCE_S
        self.most_crashes = _MOST_CRASHES
        self._decoded: list[tuple[StoredEntry, tuple[tuple[str, Event], ...]]] = []
        self._feed = JobFeed()
        self._answering = asyncio.Event()
        self._down: set[str] = set()
        self._paused: dict[str, float] = {}
        self._barred: dict[str, asyncio.Event] = {}
        self._delays = random.Random(f"delays {scenario.seed}")  # noqa: S311
        self._serve: dict[str, Callable[[Lifeline, ExitStack], Awaitable[AnyHost]]] = {
            "market_ingest": self._market_ingest,
            "forecaster": self._forecaster,
            "selector": self._selector,
            "cloud_actuator": self._cloud_actuator,
            "allocator": self._allocator,
            "read_model": self._read_model,
        }

    def _now_ns(self) -> int:
        """The broker's clock: wall time, which begins when the market does."""
        elapsed_ns = int(asyncio.get_running_loop().time() * NS_PER_S)
        return START_NS + elapsed_ns + self.clock_skew_ns

    # --- the run ------------------------------------------------------------------------------

    async def run(self) -> FaultOutcome:
        """Run all services until all is over, or nothing comes any more."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.keep(service), name=service) for service in SERVICES]
            tasks.append(group.create_task(self.family.disturb(self), name="faults"))
            self.stalled = await self._until_over()
            for task in tasks:
                task.cancel()
        return FaultOutcome(
            scenario=self.scenario,
            entries=tuple(self.broker.entries),
            lost=tuple(self.broker.lost),
            ledger=self.ledger_file,
            cloud=self.cloud_file,
            accepted=dict(self.accepted),
            faults=self.family.faults,
            stalled=self.stalled,
            crashes={service: tuple(said) for service, said in sorted(self.crashes.items())},
            points=self.points,
            killed=frozenset(self.killed),
            notes=self.family.notes,
        )

    async def _until_over(self) -> str:
        loop = asyncio.get_running_loop()
        seen, since_s = -1, loop.time()
        jobs = {job.job_id for job in self.scenario.jobs}
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._is_over(jobs):
                return ""
            gone = sorted(self._down)
            if gone:
                return f"{', '.join(gone)} cannot be kept running"
            if self.broker.last_seq != seen:
                seen, since_s = self.broker.last_seq, loop.time()
            elif loop.time() - since_s > self.patience_s:
                return f"nothing came after entry {seen} for {self.patience_s:g} s"

    def _is_over(self, jobs: set[str]) -> bool:
        """Whether the market has ended, every job too, and all services have taken everything."""
        ingest, selector = self.hosts.get("market_ingest"), self.hosts.get("selector")
        if ingest is None or selector is None or set(self.hosts) != set(SERVICES):
            return False
        state = ingest.state
        if state.slot != self.scenario.market.slots - 1 or not state.settled:
            return False
        if not all(host.healthy for host in self.hosts.values()):
            return False
        waiting = any(
            self.broker.waits_for(service, host._consumed_subjects)
            for service, host in self.hosts.items()
        )
        return not waiting and self._closed() >= (jobs & set(self.accepted))

    def _closed(self) -> set[str]:
        """Jobs that have ended: one that did in what is lost is not begun again."""
        for entry in self.broker.lost[self._lost_read :]:
            self._ended |= {
                event.job_id for _, event in _events_of(entry) if isinstance(event, JobClosed)
            }
        self._lost_read = len(self.broker.lost)
        closed = {event.job_id for event in self.events(JobClosed) if isinstance(event, JobClosed)}
        return closed | self._ended

    def events(self, *kinds: type[Event]) -> Sequence[Event]:
        """What the log holds of these kinds, in order, but for what a fault wrote."""
        return [event for _, event in self.logged() if isinstance(event, kinds)]

    def logged(self) -> Sequence[tuple[str, Event]]:
        """What the log holds, in order, by id, but for what a fault wrote."""
        entries, decoded = self.broker.entries, self._decoded
        # A log that was cut goes on with other entries: what is no longer in it is read no more.
        while decoded and (
            len(decoded) > len(entries) or entries[len(decoded) - 1] is not decoded[-1][0]
        ):
            decoded.pop()
        decoded += [(entry, tuple(_events_of(entry))) for entry in entries[len(decoded) :]]
        foreign: Any = self.family.notes.get("foreign", ())
        return [
            (event_id, event)
            for _, events in decoded
            for event_id, event in events
            if event_id not in foreign
        ]

    # --- one process of a service -------------------------------------------------------------

    async def keep(self, service: str) -> None:
        """Start a service, and start it again whenever it has ended."""
        while True:
            barred = self._barred.get(service)
            if barred is not None:
                await barred.wait()
            line = self.lines[service] = Lifeline(service, self)
            crashed = await self._serve_once(line)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # Killed in the very moment in which the run is over.
                return
            if self.lines[service] is not line:
                # Another process has taken over, and is kept by another.
                return
            if crashed and len(self.crashes[service]) >= self.most_crashes:
                self._down.add(service)
                return
            await asyncio.sleep(self._delays.random() * 5)

    async def _serve_once(self, line: Lifeline) -> bool:
        """Run one process of a service until it ends; whether it ended by an error of its own."""
        service = line.service
        host: AnyHost | None = None
        try:
            await self.store.settle_first()
            with ExitStack() as stack:
                host = await self._serve[service](line, stack)
                if self.lines[service] is line:
                    self.hosts[service] = host
                await host.run()
        except (Killed, BaseExceptionGroup) as ended:
            if not _is_killed(ended):
                return self._crashed(line, ended)
            return False
        except Exception as error:  # noqa: BLE001 - whatever ends a process ends it
            return self._crashed(line, error)
        finally:
            if self.hosts.get(service) is host:
                self.hosts.pop(service, None)
                if service == "allocator":
                    self._answering.clear()
            line.alive = False
        return False

    def _crashed(self, line: Lifeline, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            raise error
        service = line.service
        if self.lines[service] is not line:
            # Fenced by the one that took over: that is how it is to end.
            return False
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, BaseExceptionGroup):
            said = "; ".join(f"{type(one).__name__}: {one}" for one in error.exceptions)
        self.crashes.setdefault(service, []).append(said)
        return True

    async def reach(self, line: Lifeline, point: str) -> None:
        """Count a fail point, let the family act there, and pass the time it takes."""
        self.points[point] += 1
        try:
            self.family.reach(line, point)
        except Killed:
            self.killed.add(point)
            raise
        await asyncio.sleep(self.family.delay_s())
        if line.held is not None:
            await line.held.wait()
        paused_s = self._paused.get(line.service, 0.0) - asyncio.get_running_loop().time()
        if paused_s > 0:
            await asyncio.sleep(paused_s)

    def pause(self, service: str, pause_s: float) -> None:
        """Let a service stand still wherever it is next seen, as a stopped process does."""
        self._paused[service] = asyncio.get_running_loop().time() + pause_s

    def kill(self, service: str) -> None:
        """Kill a service wherever it is; it is started again."""
        line = self.lines.get(service)
        if line is not None:
            line.alive = False

    def bar(self, service: str) -> None:
        """Kill a service, and start it no more until `unbar`."""
        self._barred.setdefault(service, asyncio.Event())
        self.kill(service)

    def unbar(self, service: str) -> None:
        """Let a service be started again."""
        barred = self._barred.pop(service, None)
        if barred is not None:
            barred.set()

    # --- what each service is made of ---------------------------------------------------------

    async def _stream(self, line: Lifeline) -> CountedStream:
        return CountedStream(await self.store.opened(line), line)

    async def _pause(self) -> None:
        await asyncio.sleep(self.family.delay_s())

    async def _market_ingest(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        handler = IngestHandler(self.family.market(self.scenario.market), self.family.ingest())
        gate = partial(self._gate, line)
        return ServiceHost(handler, await self._stream(line), gate=gate, settings=_HOST)

    async def _forecaster(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        factory = forecaster_factory(self.scenario.forecaster)
        stream = await self.store.opened(line)
        store = SnapshotsOfLog(MemorySnapshots(self.broker, pause=self._pause), stream)
        return ServiceHost(
            ForecastHandler(factory, horizon_slots=HORIZON_SLOTS),
            CountedStream(stream, line),
            snapshots=Snapshots(
                store=counted_snapshots(store, line),
                codec=ForecastStateCodec(factory, horizon_slots=HORIZON_SLOTS),
            ),
            settings=_HOST,
        )

    async def _selector(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        async def allocate(call: Call) -> Sequence[Event]:
            # As patient as its time-out: an allocator that is being started again is waited for.
            await self._answering.wait()
            line.check()
            return answer_in_process(call)

        handler = SelectHandler(self.scenario.selector, digest=digest)
        return ServiceHost(handler, await self._stream(line), calls=allocate, settings=_HOST)

    async def _cloud_actuator(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        ledger = SqlLedger(ledger_url(self.ledger_file), OWNER)
        stack.callback(ledger.close)
        counted = counted_ledger(ledger, line)
        remembered = self.store.remembered(ledger)
        stream = await self.store.opened(line, remembered)
        ledger.claim(INSTALLATION.installation_id, stream.incarnation)
        await tell_again(stream, counted, remembered)
        line.check()
        self.store.note(stream)
        stack.callback((cloud := SimulatedCloud(self.cloud_file, self.scenario.cloud)).close)
        actuation = CloudActuation(
            counted_cloud(self.family.cloud(cloud), line),
            counted,
            ActuationOptions(caps=self.scenario.caps, agreement=AgreementRules(reap=_REAP)),
        )
        await _started(actuation)
        calls = SimulatedCloudDriver(cloud, actuation.perform)
        return ServiceHost(
            ActuateHandler(), CountedStream(stream, line), calls=calls, settings=_HOST
        )

    async def _allocator(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        self._feed = JobFeed()
        host = ServiceHost(
            JobsHandler(),
            await self._stream(line),
            on_applied=self._feed.on_applied,
            settings=_HOST,
        )
        answering = asyncio.get_running_loop().create_task(self._answer(host, line))
        stack.callback(answering.cancel)
        return host

    async def _read_model(self, line: Lifeline, stack: ExitStack) -> AnyHost:
        return ServiceHost(ReadModelHandler(), await self._stream(line), settings=_HOST)

    async def _answer(self, host: AnyHost, line: Lifeline) -> None:
        await host.live()
        if line.alive:
            self._answering.set()

    # --- jobs ---------------------------------------------------------------------------------

    async def _gate(self, line: Lifeline, timer: Timer) -> None:
        """Hold a slot back until the jobs before it are handed over."""
        slot = int(timer.timer_id.removeprefix("slot:"))
        await self.family.before_slot(self, slot)
        # Behind a loss the market may go on some slots later.
        for due in sorted(due for due in self.scenario.handed_over if due <= slot):
            for job in self.scenario.handed_over[due]:
                await self.submit(job)
        line.check()

    async def submit(self, job: Job) -> None:
        """Hand a job over until it is acknowledged, as a platform does."""
        while job.job_id not in self.accepted:
            await self._answering.wait()
            try:
                await self._submit(job)
            except (RpcRefused, Killed):
                await asyncio.sleep(_RETRY_S)
                continue
            self.accepted[job.job_id] = job.tenant

    async def _submit(self, job: Job) -> None:
        """What the allocator does with a submission (`JobServicer.Submit`)."""
        host = self.hosts["allocator"]
        admitting = Acknowledging(host, self._feed, await_admission=True)
        checked = check_submission(host.state, job)
        if not isinstance(checked, Accepted):
            raise InvariantViolation(f"the scenario's own job was refused: {checked}")
        if checked.already_submitted:
            await admitting.admitted(job.job_id)
        else:
            await admitting.record(job)


async def _started(actuation: CloudActuation) -> None:
    """Start it as a process does: again while the cloud does not answer."""
    while True:
        try:
            await actuation.start()
            return
        except ProviderUnavailable:
            await asyncio.sleep(_START_AGAIN_S)


def _events_of(entry: StoredEntry) -> Iterator[tuple[str, Event]]:
    """The events of an entry by id; none where it cannot be read, none behind one that cannot."""
    try:
        for stored in unpacked(entry):
            yield stored.envelope().event_id, event_of(stored)
    except ContractError:
        return


def _is_killed(ended: BaseException) -> bool:
    if isinstance(ended, BaseExceptionGroup):
        return all(_is_killed(error) for error in ended.exceptions)
    return isinstance(ended, (Killed, asyncio.CancelledError))


def run_world(scenario: Scenario, family: Disturbing, folder: Path) -> FaultOutcome:
    """Run a scenario with the faults of a family, in a folder of its own."""

    # Made inside: what it waits by belongs to the loop.
    async def run() -> FaultOutcome:
        return await FaultWorld(scenario, family, folder).run()

    return run_virtually(run)
