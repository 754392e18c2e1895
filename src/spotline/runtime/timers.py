"""The timers of a handler, running while it asks for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from spotline.application.spec import Timer
from spotline.domain.units import NS_PER_S

Gate = Callable[[Timer], Awaitable[None]]
"""Returns when a timer with `needs_gate` may record its events."""


# Wall time may be set, and a machine may sleep: it is looked at this often.
_LOOK_AGAIN_S = 30.0


class TimerClock(Protocol):
    """Wall time, which may be set back, and a way to wait."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed, however wall time is set."""
        ...


class WallClock:
    """The clock of this machine."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Wait as asyncio does."""
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class _ArmedTimer:
    timer: Timer
    task: asyncio.Task[None] | None = None
    recording: bool = False

    def ask(self, timer: Timer) -> None:
        """Take over what is to be recorded; how long it waits stays as it was asked for."""
        self.timer = replace(timer, after_s=self.timer.after_s)


class ArmedTimers:
    """Waits for each timer once, and has its events recorded when it is due.

    Parameters
    ----------
    record
        Stores the events of a timer.
    gate
        Awaited before a timer with `needs_gate` is recorded; None lets it pass.
    clock
        What time it is; by default the machine's.
    """

    def __init__(
        self,
        service: str,
        record: Callable[[Timer], Awaitable[None]],
        gate: Gate | None,
        clock: TimerClock | None = None,
    ) -> None:
        self._service = service
        self._record = record
        self._gate = gate
        self._clock = clock or WallClock()
        self._armed: dict[str, _ArmedTimer] = {}

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, timers: Sequence[Timer], tasks: asyncio.TaskGroup) -> None:
        """Start the timers that are not running yet, and stop those that are not asked for.

        One that may be sooner than it was asked for at first begins again. A timer records what was
        asked for last: what was said while it waited is in it.
        """
        due = {timer.timer_id: timer for timer in timers}
        sooner = [
            timer_id
            for timer_id, armed in self._armed.items()
            if timer_id in due
            and due[timer_id].after_s < armed.timer.after_s
            and not armed.recording
        ]
        gone_ids = [timer_id for timer_id in self._armed if timer_id not in due]
        for timer_id in (*gone_ids, *sooner):
            gone = self._armed.pop(timer_id)
            # Half of its events may be stored already: then the other half follows.
            if gone.task is not None and not gone.recording:
                gone.task.cancel()
        for timer_id, timer in due.items():
            if timer_id in self._armed:
                self._armed[timer_id].ask(timer)
                continue
            armed = self._armed[timer_id] = _ArmedTimer(timer)
            armed.task = tasks.create_task(
                self._fire(armed), name=f"{self._service}:timer:{timer_id}"
            )

    def cancel(self) -> None:
        """Stop all of them."""
        for armed in self._armed.values():
            if armed.task is not None:
                armed.task.cancel()

    async def _fire(self, armed: _ArmedTimer) -> None:
        await self._clock.sleep(armed.timer.after_s)
        while (left_ns := armed.timer.not_before_ns - self._clock.now_ns()) > 0:
            await self._clock.sleep(min(left_ns / NS_PER_S, _LOOK_AGAIN_S))
        if armed.timer.needs_gate and self._gate is not None:
            await self._gate(armed.timer)
        armed.recording = True
        await self._record(armed.timer.at_wall_ns(self._clock.now_ns()))
