"""Hosts one handler on the log: recovers, handles, publishes, and only then acknowledges.

What makes a restart safe at every point:

- An input is acknowledged after everything that follows from it is stored.
- Ids are derived from the cause, and what this service has stored behind the acknowledged inputs
  is read back first: handling an input again publishes only what was still missing.
- The state is a fold over the log: each input, then the stored decisions it caused, whether this
  process made them or one before it.
- An input that the handler cannot take is parked at once and left out from then on. Only what
  depends on the outside (a call, the stream) is tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

import structlog

from spotline.application.spec import Call, Handler, Timer, derive_id
from spotline.application.turn import Output, PendingCall, Turn, Turns, context_of
from spotline.contracts.batch import unpacked
from spotline.contracts.build import dead_letter_for, event_of
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import (
    ContractError,
    InvariantViolation,
    ProviderUnavailable,
    Throttled,
)
from spotline.contracts.subjects import KINDS, subjects_with
from spotline.domain.events.event import Event
from spotline.domain.units import NS_PER_S
from spotline.runtime.health import Health
from spotline.runtime.own_records import OwnRecords
from spotline.runtime.recorded_turns import RecordedTurns, StoredOutputs
from spotline.runtime.snapshots import SnapshotKeeper, Snapshots
from spotline.runtime.stream import EventStream, Subscription
from spotline.runtime.telemetry import telemetry_for
from spotline.runtime.timers import ArmedTimers, Gate
from spotline.runtime.turn_threads import TurnThreads
from spotline.runtime.watched import HostCounters

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")

Listener = Callable[[Event, Envelope, int], None]
"""Gets every applied input and decision with its seq, in the order they were applied."""

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
    work in hand go on. On a loop without `threads` all turns keep it.
    """

    batch: int = 256
    flush_after_s: float = 0.005
    idle_s: float = 0.2
    stop_timeout_s: float = 10.0
    snapshot_every: int = 2000
    threads: bool = True


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
        self._turns = Turns(handler)
        self._stream = stream
        self._calls = calls
        self._on_applied = on_applied
        self._snapshots = SnapshotKeeper(self._turns, snapshots) if snapshots else None
        self._settings = settings or HostSettings()
        self._threads = TurnThreads(handler, threads=self._settings.threads)
        spec = handler.spec
        self._service = spec.service
        itself = (spec.service,) if {*spec.consumes} & {*spec.produces} else ()
        self._consumed_subjects = subjects_with(spec.consumes, *itself)
        self._consumed_kinds = frozenset(KINDS[event_type] for event_type in spec.consumes)
        self.counters = HostCounters()
        self._own = OwnRecords(spec, stream, self.counters)
        self._past = RecordedTurns(self._turns, self._own, self.counters)
        self._started_s = time.time()
        self._subscription: Subscription | None = None
        self._applied_seq = self._since_snapshot = 0
        self._outbox: list[_Applied] = []
        self._flushed_s = self._lag_s = 0.0
        self._tasks: asyncio.TaskGroup | None = None
        self._timers = ArmedTimers(self._service, self._record_timer, gate)
        self._phase = Phase.STARTING
        self._backlog = True
        # Whether what is answered from its state can be asked; its server says so.
        self.answering = True
        self._live = asyncio.Event()
        self._stop = asyncio.Event()
        # Last: what reads the metrics may do so at once.
        self._telemetry = telemetry_for(self._service, self)
        self._telemetry.may_record(spec.produces)

    # --- seen from outside --------------------------------------------------------------------

    @property
    def state(self) -> StateT:
        """The handler's state, to be read between awaits and never changed; refused in a long turn."""
        return self._threads.at_rest(self._turns.state)

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
                "parked": self.counters.parked.total(),
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
        output = self._turns.observation(event, event_id=event_id, correlation_id=correlation_id)
        seq = (await self._own.store([self._envelope(output)]))[0]
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
                    # Behind a loss, what followed from an input may be gone: all is handled again,
                    # and what is still there of it is not stored twice.
                    await self._recover(0 if subscription.rebased else subscription.floor_seq)
                    await self._follow(subscription)
                self._timers.cancel()
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
                await self._handle_entry(entry)
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
        last_seq = await self._stream.last_seq()
        if self._snapshots is not None:
            self._applied_seq = await self._snapshots.load(last_seq=last_seq)
            self.counters.snapshots_set_aside = self._snapshots.set_aside
        first_seq = self._applied_seq + 1
        await self._own.read_back(first_seq, last_seq, floor_seq)
        async for entry in self._stream.read(
            self._consumed_subjects, first_seq=first_seq, last_seq=last_seq
        ):
            if entry.seq <= floor_seq:
                await self._refold_entry(entry)
            else:
                await self._handle_entry(entry)
            if self._stop.is_set():
                raise _Stopping
        await self._flush()
        self._own.forget_decisions()
        _log.info("recovered", service=self._service, seq=self._applied_seq, floor_seq=floor_seq)

    # --- one input ----------------------------------------------------------------------------

    async def _refold_entry(self, entry: StoredEntry) -> None:
        """Apply acknowledged inputs and the decisions recorded for them; decide nothing."""
        with suppress(ContractError):  # it was dead-lettered
            for event in unpacked(entry, self._consumed_kinds):
                self._refold(event)
        # Only what is parked here for the first time is not stored yet.
        await self._flush()

    def _refold(self, entry: StoredEntry) -> None:
        try:
            event, envelope = event_of(entry), entry.envelope()
        except ContractError:
            return  # it was dead-lettered
        self._applied_seq = entry.seq
        if not self._past.awaits(envelope):
            return
        turn, stored = self._past.refold(event, context_of(entry, envelope), envelope)
        self._note(_Applied(event, envelope, entry.seq), turn, stored)
        self._since_snapshot += 1

    async def _handle_entry(self, entry: StoredEntry) -> None:
        """Handle all of an entry: only behind its last event are snapshots taken."""
        if entry.seq <= self._applied_seq:
            return
        self._applied_seq = entry.seq
        try:
            events = unpacked(entry, self._consumed_kinds)
        except ContractError as error:
            await self._dead_letter(entry, error)
            return
        for event in events:
            await self._handle(event)
        if asyncio.get_running_loop().time() - self._flushed_s > self._settings.flush_after_s:
            await self._settle()

    async def _handle(self, entry: StoredEntry) -> None:
        try:
            event, envelope = event_of(entry), entry.envelope()
        except ContractError as error:
            await self._dead_letter(entry, error)
            return
        if not self._past.awaits(envelope):
            return
        ctx = context_of(entry, envelope)
        await self._threads.ahead(self._turns.state, event)
        with self._telemetry.handling(envelope, entry.headers, entry.seq):
            turn, stored = await self._threads.taken(self._past.take, event, ctx, envelope)
            self._note(_Applied(event, envelope, entry.seq), turn, stored)
            if turn.calls:
                await self._flush()
                await self._perform(turn.calls)
        self.counters.handled += 1
        self._since_snapshot += 1
        _log.debug(
            "handled",
            service=self._service,
            kind=envelope.kind,
            seq=entry.seq,
            event_id=envelope.event_id,
            correlation_id=ctx.correlation_id,
            decided=len(turn.outputs),
            calls=len(turn.calls),
        )

    def _note(self, applied: _Applied, turn: Turn, stored: StoredOutputs) -> None:
        """Keep what was applied until it is stored and the listener has got it.

        Of an event that is parked nobody here is told but that it is.
        """
        if turn.parked is None and turn.error is None:
            self._outbox.append(applied)
        for output in turn.outputs:
            entry = stored.get(output.index)
            envelope = self._envelope(output) if entry is None else entry.envelope()
            self._outbox.append(_Applied(output.event, envelope, entry.seq if entry else None))

    async def _perform(self, calls: Sequence[PendingCall]) -> None:
        """Perform what was not performed before, and record the answers."""
        for pending in calls:
            # The last answer has the call's own id.
            if pending.call_id in self._own:
                continue
            events = await self._answers(pending.call)
            answers = pending.answers(events)
            await self._own.store([self._envelope(answer) for answer in answers])
            self._telemetry.recorded(events)

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
        place = f".{entry.place}" if entry.place else ""
        event_id = derive_id(f"seq:{entry.seq}{place}", f"deadletter:{self._service}")
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
        await self._own.store([self._telemetry.traced(letter, cause=entry.headers)])

    # --- storing ------------------------------------------------------------------------------

    def _envelope(self, output: Output) -> Envelope:
        return self._telemetry.traced(output.envelope(self._service))

    async def _settle(self) -> None:
        """Between two inputs: store what the last ones led to, and see what that leaves to do."""
        await self._flush()
        self._flushed_s = asyncio.get_running_loop().time()
        if self._phase is Phase.LIVE and self._tasks is not None and not self._stop.is_set():
            self._timers.arm(self._turns.due(), self._tasks)
        await self._save_snapshot(at_least=self._settings.snapshot_every)

    async def _flush(self) -> None:
        """Store what was decided, then tell the listener."""
        fresh = [applied for applied in self._outbox if applied.seq is None]
        if fresh:
            seqs = await self._own.store([applied.envelope for applied in fresh])
            for applied, seq in zip(fresh, seqs, strict=True):
                applied.seq = seq
            self._telemetry.recorded(applied.event for applied in fresh)
        outbox, self._outbox = self._outbox, []
        if self._on_applied is not None:
            for applied in outbox:
                self._on_applied(applied.event, applied.envelope, applied.seq or 0)

    async def _record_timer(self, timer: Timer) -> None:
        outputs = self._turns.timer_outputs(timer)
        await self._own.store([self._envelope(output) for output in outputs])
        self._telemetry.recorded(timer.events)

    async def _save_snapshot(self, *, at_least: int) -> None:
        """Save a snapshot if that many inputs have come since the last one."""
        if self._snapshots is None or self._since_snapshot < at_least:
            return
        self._since_snapshot = 0
        await self._snapshots.save(self._applied_seq)


def _waited_s(entry: StoredEntry) -> float:
    # The broker's clock may be ahead of ours.
    return max(0.0, (time.time_ns() - entry.stored_ns) / NS_PER_S)
