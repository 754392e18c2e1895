"""Hosts one handler on the log: recovers, handles, publishes, and only then acknowledges.

What makes a restart safe at every point:

- An input is acknowledged after everything that follows from it is stored.
- Ids are derived from the cause, and what this service has stored behind the acknowledged inputs
  is read back first: handling an input again publishes only what was still missing.
- The state is a fold over the log: each input, then the stored decisions it caused, whether this
  process made them or one before it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

import structlog

from spotline.application.spec import Call, Context, Handler, Timer, derive_id
from spotline.contracts.build import dead_letter_for, envelope_for, event_of
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import (
    ContractError,
    InvariantViolation,
    ProviderUnavailable,
    Throttled,
)
from spotline.contracts.subjects import KINDS, dead_letter_subject, filter_of
from spotline.domain.events.event import Event
from spotline.domain.units import NS_PER_S
from spotline.runtime.health import Health
from spotline.runtime.metrics import HostCounters
from spotline.runtime.snapshots import Snapshot, SnapshotStore, StateCodec
from spotline.runtime.stream import EventStream, Subscription
from spotline.runtime.telemetry import telemetry_for

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")

Gate = Callable[[Timer], Awaitable[None]]
"""Returns when a timer with `needs_gate` may record its events."""

Listener = Callable[[Event, Envelope, int], None]
"""Gets every applied input and decision with its seq, in the order they were applied."""

# The broker drops a repeated id for two minutes, this for as many events.
_RECENT_IDS = 1 << 17
_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0


class CallPort(Protocol):
    """Performs the calls of one handler."""

    async def __call__(self, call: Call) -> Sequence[Event]:
        """Perform `call` and return what to record as its answer.

        A time-out is an answer. After a crash a call is performed again unless its last answer was
        stored: one with several answers must give the same ones again.

        Raises
        ------
        ProviderUnavailable
            Not now: it is performed again after a while.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How a host paces itself.

    Up to `batch` waiting inputs are handled before their outputs are stored together, but none
    waits longer than `flush_after_s` for that. `stop_timeout_s` bounds how long a stop lets the
    work in hand go on.
    """

    batch: int = 256
    flush_after_s: float = 0.005
    idle_s: float = 0.2
    stop_timeout_s: float = 10.0
    snapshot_every: int = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots(Generic[StateT]):
    """Where snapshots are kept, and how a state is written."""

    store: SnapshotStore
    codec: StateCodec[StateT]


class Phase(Enum):
    """What a host is doing."""

    STARTING = "starting"
    RECOVERING = "recovering"
    LIVE = "live"
    STOPPED = "stopped"


@dataclass(slots=True)
class _Applied:
    """What was applied to the state; `seq` is None until it is stored."""

    event: Event
    envelope: Envelope
    seq: int | None


@dataclass(slots=True)
class _ArmedTimer:
    task: asyncio.Task[None] | None = None
    publishing: bool = False


class _Stopping(Exception):
    """A stop was asked for while waiting to try again."""


class ServiceHost(Generic[StateT]):
    """Runs `handler` on `stream` until stopped.

    Any error but an unreadable input ends `run`: starting again is how a host recovers.

    Parameters
    ----------
    calls
        Performs what the handler's `decide` asks for; None if it never does.
    gate
        Awaited before a timer with `needs_gate` records its events; None lets them pass.
    on_applied
        Called synchronously after each applied input and decision, also while refolding.
    snapshots
        Spares a restart the log before the latest snapshot; None refolds all of it.
    """

    def __init__(
        self,
        handler: Handler[StateT],
        stream: EventStream,
        *,
        calls: CallPort | None = None,
        gate: Gate | None = None,
        on_applied: Listener | None = None,
        snapshots: Snapshots[StateT] | None = None,
        settings: HostSettings | None = None,
    ) -> None:
        self._handler = handler
        self._stream = stream
        self._calls = calls
        self._gate = gate
        self._on_applied = on_applied
        self._snapshots = snapshots
        self._settings = settings or HostSettings()
        spec = handler.spec
        if not spec.consumes:
            raise InvariantViolation(f"the SPEC of {spec.service} consumes nothing")
        self._service = spec.service
        self._decides = frozenset(spec.decides)
        self._produces = frozenset(spec.produces)
        self._consumed_subjects = [filter_of(event_type) for event_type in spec.consumes]
        self.counters = HostCounters()
        self._started_s = time.time()
        self._lag_s = 0.0
        self._subscription: Subscription | None = None

        self._state = handler.initial()
        self._applied_seq = 0
        self._applied_ids = _RecentIds(_RECENT_IDS)
        self._outbox: list[_Applied] = []
        self._flushed_s = 0.0
        self._since_snapshot = 0
        # What this service stored before it was started: decisions by cause and index, and the
        # seq of everything behind the acknowledged inputs.
        self._recorded: dict[str, dict[int, StoredEntry]] = {}
        self._stored_seqs: dict[str, int] = {}

        self._tasks: asyncio.TaskGroup | None = None
        self._timers: dict[str, _ArmedTimer] = {}
        self._phase = Phase.STARTING
        self._backlog = True
        # Whether what is answered from its state can be asked; its server says so.
        self.answering = True
        self._live = asyncio.Event()
        self._stop = asyncio.Event()
        # Last: whoever reads the metrics may do so at once.
        self._telemetry = telemetry_for(self._service, self)
        self._telemetry.may_record(spec.produces)

    # --- seen from outside --------------------------------------------------------------------

    @property
    def state(self) -> StateT:
        """The handler's state, to be read between awaits and never changed."""
        return self._state

    @property
    def applied_seq(self) -> int:
        """The last input the state reflects."""
        return self._applied_seq

    def health(self) -> Health:
        """Well when it follows the log without a backlog, and can be asked."""
        return Health(
            healthy=self.healthy,
            detail={
                "phase": self._phase.value,
                "backlog": self._backlog,
                "answering": self.answering,
                "applied_seq": self._applied_seq,
                "handled": self.counters.handled,
                "dead_lettered": self.counters.dead_lettered,
                "published": self.counters.published,
            },
        )

    @property
    def healthy(self) -> bool:
        """Whether it follows the log without a backlog, and can be asked."""
        return self._phase is Phase.LIVE and not self._backlog and self.answering

    @property
    def backlog(self) -> int:
        """Inputs that are stored for it and not taken yet, as far as it has heard."""
        return 0 if self._subscription is None else self._subscription.waiting

    @property
    def lag_s(self) -> float:
        """How long the last input had been stored when it was taken up, 0 when none waits."""
        return self._lag_s

    @property
    def started_s(self) -> float:
        """When it was made, Unix time."""
        return self._started_s

    async def live(self) -> None:
        """Wait until everything stored before the start is applied."""
        await self._live.wait()

    def stop(self) -> None:
        """Ask `run` to finish the input in hand and return."""
        self._stop.set()

    async def publish_observation(
        self, event: Event, *, event_id: str, correlation_id: str = ""
    ) -> int:
        """Record what the shell observed, and return its seq. Idempotent by `event_id`.

        Raises
        ------
        ProviderUnavailable
            It could not be stored in time.
        """
        envelope = self._envelope(
            event, event_id=event_id, causation_id="", correlation_id=correlation_id or event_id
        )
        seq = (await self._store([envelope]))[0]
        self._telemetry.recorded((event,))
        return seq

    async def run(self) -> None:
        """Recover, then follow the log until `stop` or cancellation.

        Both let the input in hand finish, for `stop_timeout_s` at most.
        """
        work = asyncio.create_task(self._run(), name=self._service)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            try:
                await asyncio.wait((work,), timeout=self._settings.stop_timeout_s)
            finally:
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            raise
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    # --- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        subscription = await self._stream.subscribe(self._service, self._consumed_subjects)
        self._subscription = subscription
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                with suppress(_Stopping):
                    await self._recover(subscription.floor_seq)
                    await self._follow(subscription)
                for armed in self._timers.values():
                    if armed.task is not None:
                        armed.task.cancel()
        finally:
            self._phase = Phase.STOPPED
            self._tasks = None
            self._subscription = None
            await subscription.close()

    async def _follow(self, subscription: Subscription) -> None:
        settings = self._settings
        self._phase = Phase.LIVE
        self._backlog = False
        self._live.set()
        await self._settle()
        while not self._stop.is_set():
            entries = await subscription.fetch(limit=settings.batch, timeout_s=settings.idle_s)
            self._backlog = len(entries) == settings.batch
            self._lag_s = _waited_s(entries[-1]) if entries else 0.0
            handled: StoredEntry | None = None
            for entry in entries:
                await self._handle(entry)
                handled = entry
                if self._stop.is_set():
                    break
            await self._settle()
            if handled is not None:
                await subscription.ack(handled)
        await self._save_snapshot(at_least=1)

    async def _recover(self, floor_seq: int) -> None:
        """Fold what was acknowledged, then handle again what was stored behind it."""
        self._phase = Phase.RECOVERING
        await self._load_snapshot()
        first_seq = self._applied_seq + 1
        last_seq = await self._stream.last_seq()
        await self._read_own(first_seq, last_seq, floor_seq)
        async for entry in self._stream.read(
            self._consumed_subjects, first_seq=first_seq, last_seq=last_seq
        ):
            if entry.seq <= floor_seq:
                self._refold(entry)
            else:
                await self._handle(entry)
            if self._stop.is_set():
                raise _Stopping
        await self._flush()
        self._recorded.clear()
        _log.info("recovered", service=self._service, seq=self._applied_seq, floor_seq=floor_seq)

    async def _read_own(self, first_seq: int, last_seq: int, floor_seq: int) -> None:
        produced = [filter_of(event_type) for event_type in self._handler.spec.produces]
        subjects = [*produced, dead_letter_subject(self._service)]
        decided = {KINDS[event_type] for event_type in self._decides}
        async for entry in self._stream.read(subjects, first_seq=first_seq, last_seq=last_seq):
            try:
                envelope = entry.envelope()
            except ContractError:
                continue  # somebody else's garbage on one of our subjects
            if envelope.source != self._service:
                continue
            if envelope.kind in decided:
                by_index = self._recorded.setdefault(envelope.causation_id, {})
                by_index.setdefault(envelope.index, entry)
            # Of what was not caused by an input, none is ever recorded a second time.
            if entry.seq > floor_seq or not envelope.causation_id:
                self._stored_seqs.setdefault(envelope.event_id, entry.seq)

    # --- one input ----------------------------------------------------------------------------

    def _refold(self, entry: StoredEntry) -> None:
        """Apply an acknowledged input and the decisions recorded for it; decide nothing."""
        try:
            event, envelope = event_of(entry), entry.envelope()
        except ContractError:
            return  # it was dead-lettered
        self._applied_seq = entry.seq
        if not self._applied_ids.add(envelope.event_id):
            return
        self._handler.evolve(self._state, event)
        self._outbox.append(_Applied(event, envelope, entry.seq))
        for _, output in sorted(self._recorded.pop(envelope.event_id, {}).items()):
            self._apply_output(_Applied(event_of(output), output.envelope(), output.seq))
        self._since_snapshot += 1
        self._tell_listener()

    async def _handle(self, entry: StoredEntry) -> None:
        if entry.seq <= self._applied_seq:
            return
        self._applied_seq = entry.seq
        try:
            event, envelope = event_of(entry), entry.envelope()
        except ContractError as error:
            await self._dead_letter(entry, error)
            return
        if not self._applied_ids.add(envelope.event_id):
            return
        ctx = Context(
            seq=entry.seq,
            now_ns=entry.stored_ns,
            event_id=envelope.event_id,
            correlation_id=envelope.correlation_id or envelope.event_id,
        )
        with self._telemetry.handling(envelope, entry.headers, entry.seq):
            self._handler.evolve(self._state, event)
            outcome = self._handler.decide(self._state, event, ctx)
            self._outbox.append(_Applied(event, envelope, entry.seq))
            self._apply_outputs(ctx, outcome.events)
            if outcome.calls:
                await self._flush()
                await self._perform(ctx, outcome.calls)
        self.counters.handled += 1
        self._since_snapshot += 1
        _log.debug(
            "handled",
            service=self._service,
            kind=envelope.kind,
            seq=entry.seq,
            event_id=envelope.event_id,
            correlation_id=ctx.correlation_id,
            decided=len(outcome.events),
            calls=len(outcome.calls),
        )
        if asyncio.get_running_loop().time() - self._flushed_s > self._settings.flush_after_s:
            await self._settle()

    def _apply_outputs(self, ctx: Context, events: Sequence[Event]) -> None:
        """Apply the decisions caused by an input: as recorded if they are, else as decided now."""
        recorded = self._recorded.pop(ctx.event_id, {})
        for index in range(max(len(events), max(recorded, default=-1) + 1)):
            stored = recorded.get(index)
            if stored is not None:
                self._apply_output(_Applied(event_of(stored), stored.envelope(), stored.seq))
            elif index < len(events):
                event = events[index]
                if type(event) not in self._decides:
                    raise InvariantViolation(
                        f"{self._service} decided {type(event).__name__}, "
                        "which its SPEC does not list under decides"
                    )
                envelope = self._envelope(
                    event,
                    event_id=ctx.derive_id(KINDS[type(event)], index),
                    causation_id=ctx.event_id,
                    correlation_id=ctx.correlation_id,
                    index=index,
                )
                self._apply_output(_Applied(event, envelope, None))

    def _apply_output(self, output: _Applied) -> None:
        # A service may consume what it decides: it is applied here, not when it comes round.
        if self._applied_ids.add(output.envelope.event_id):
            self._handler.evolve(self._state, output.event)
        self._outbox.append(output)

    async def _perform(self, ctx: Context, calls: Sequence[Call]) -> None:
        """Perform what was not performed before, and record the answers.

        The last answer has the call's own id: once it is stored, all are.
        """
        for index, call in enumerate(calls):
            call_id = ctx.derive_id(f"call:{call.name}", index)
            if call_id in self._stored_seqs:
                continue
            answers = await self._answers(call)
            before_last = len(answers) - 1
            await self._store(
                [
                    self._envelope(
                        answer,
                        event_id=derive_id(call_id, "before", before_last - place)
                        if place < before_last
                        else call_id,
                        causation_id=ctx.event_id,
                        correlation_id=ctx.correlation_id,
                        index=place,
                    )
                    for place, answer in enumerate(answers)
                ]
            )
            self._telemetry.recorded(answers)

    async def _answers(self, call: Call) -> Sequence[Event]:
        if self._calls is None:
            raise InvariantViolation(f"{self._service} asked for {call.name}, but has no CallPort")
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                with self._telemetry.calling(call.name):
                    return await self._calls(call)
            except ProviderUnavailable as error:
                wait_s = error.retry_after_s if isinstance(error, Throttled) else backoff_s
                _log.warning(
                    "call_postponed", service=self._service, call=call.name, error=str(error)
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
                raise _Stopping
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)

    async def _dead_letter(self, entry: StoredEntry, error: ContractError) -> None:
        event_id = derive_id(f"seq:{entry.seq}", f"deadletter:{self._service}")
        self.counters.dead_lettered += 1
        _log.error(
            "dead_lettered",
            service=self._service,
            seq=entry.seq,
            subject=entry.subject,
            error=str(error),
        )
        # What came before it is recorded before it.
        await self._flush()
        letter = dead_letter_for(entry, event_id=event_id, service=self._service, error=error)
        await self._store([self._telemetry.traced(letter, cause=entry.headers)])

    # --- storing ------------------------------------------------------------------------------

    def _envelope(
        self,
        event: Event,
        *,
        event_id: str,
        causation_id: str,
        correlation_id: str,
        index: int = 0,
    ) -> Envelope:
        if type(event) not in self._produces:
            raise InvariantViolation(
                f"{self._service} made {type(event).__name__}, "
                "which its SPEC does not list under produces"
            )
        return self._telemetry.traced(
            envelope_for(
                event,
                event_id=event_id,
                source=self._service,
                causation_id=causation_id,
                correlation_id=correlation_id,
                index=index,
            )
        )

    async def _settle(self) -> None:
        """Between two inputs: store what the last ones led to, and see what that leaves to do."""
        await self._flush()
        self._flushed_s = asyncio.get_running_loop().time()
        if self._phase is Phase.LIVE:
            self._arm_timers()
        await self._save_snapshot(at_least=self._settings.snapshot_every)

    async def _flush(self) -> None:
        """Store what was decided, then tell the listener."""
        fresh = [applied for applied in self._outbox if applied.seq is None]
        if fresh:
            seqs = await self._store([applied.envelope for applied in fresh])
            for applied, seq in zip(fresh, seqs, strict=True):
                applied.seq = seq
            self._telemetry.recorded(applied.event for applied in fresh)
        self._tell_listener()

    def _tell_listener(self) -> None:
        applied, self._outbox = self._outbox, []
        if self._on_applied is not None:
            for one in applied:
                self._on_applied(one.event, one.envelope, one.seq or 0)

    async def _store(self, envelopes: Sequence[Envelope]) -> list[int]:
        """Store what is not stored yet, in order; the seq of each."""
        known = self._stored_seqs
        missing = [one for one in envelopes if one.event_id not in known]
        fresh: dict[str, int] = {}
        if missing:
            seqs = await self._stream.publish(missing)
            self.counters.published += len(missing)
            fresh = {one.event_id: seq for one, seq in zip(missing, seqs, strict=True)}
        return [fresh.get(one.event_id) or known[one.event_id] for one in envelopes]

    # --- timers -------------------------------------------------------------------------------

    def _arm_timers(self) -> None:
        if self._tasks is None or self._stop.is_set():
            return
        due = {timer.timer_id: timer for timer in self._handler.due(self._state)}
        for timer_id in [one for one in self._timers if one not in due]:
            gone = self._timers.pop(timer_id)
            # Half of its events may be stored already: then the other half follows.
            if gone.task is not None and not gone.publishing:
                gone.task.cancel()
        for timer_id, timer in due.items():
            if timer_id not in self._timers:
                armed = self._timers[timer_id] = _ArmedTimer()
                armed.task = self._tasks.create_task(
                    self._fire(timer, armed), name=f"{self._service}:timer:{timer_id}"
                )

    async def _fire(self, timer: Timer, armed: _ArmedTimer) -> None:
        await asyncio.sleep(timer.after_s)
        if timer.needs_gate and self._gate is not None:
            await self._gate(timer)
        armed.publishing = True
        envelopes = []
        for index, event in enumerate(timer.events):
            event_id = derive_id(self._service, timer.timer_id, index)
            envelopes.append(
                self._envelope(
                    event, event_id=event_id, causation_id="", correlation_id=event_id, index=index
                )
            )
        await self._store(envelopes)
        self._telemetry.recorded(timer.events)

    # --- snapshots ----------------------------------------------------------------------------

    async def _load_snapshot(self) -> None:
        if self._snapshots is None:
            return
        try:
            snapshot = await self._snapshots.store.get(self._service)
        except ProviderUnavailable as error:
            _log.warning("snapshot_unavailable", service=self._service, error=str(error))
            return
        codec = self._snapshots.codec
        if snapshot is None or snapshot.version != codec.version:
            return
        ids, _, dumped = snapshot.content.partition(b"\n")
        self._state = codec.load(dumped)
        for event_id in json.loads(ids):
            self._applied_ids.add(event_id)
        self._applied_seq = snapshot.seq

    async def _save_snapshot(self, *, at_least: int) -> None:
        """Save a snapshot if that many inputs have come since the last one.

        Only between two inputs: what a snapshot covers is never handled again.
        """
        if self._snapshots is None or self._since_snapshot < at_least:
            return
        codec = self._snapshots.codec
        ids = json.dumps(self._applied_ids.latest()).encode()
        snapshot = Snapshot(
            seq=self._applied_seq,
            version=codec.version,
            content=ids + b"\n" + codec.dump(self._state),
        )
        self._since_snapshot = 0
        try:
            await self._snapshots.store.put(self._service, snapshot)
        except ProviderUnavailable as error:
            _log.warning("snapshot_not_saved", service=self._service, error=str(error))


def _waited_s(entry: StoredEntry) -> float:
    # The broker's clock may be ahead of ours.
    return max(0.0, (time.time_ns() - entry.stored_ns) / NS_PER_S)


class _RecentIds:
    """The latest ids, up to a limit; the same ones however often the log is folded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: dict[str, None] = {}

    def add(self, event_id: str) -> bool:
        """Remember an id; False if it is known."""
        if event_id in self._ids:
            return False
        self._ids[event_id] = None
        if len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]
        return True

    def latest(self) -> list[str]:
        return list(self._ids)
