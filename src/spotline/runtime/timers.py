"""The timers of a handler, running while it asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from spotline.application.spec import Timer

Gate = Callable[[Timer], Awaitable[None]]
"""Returns when a timer with `needs_gate` may record its events."""


@dataclass(slots=True)
class _ArmedTimer:
    task: asyncio.Task[None] | None = None
    recording: bool = False


class ArmedTimers:
    """Waits for each timer once, and has its events recorded when it is due.

    Parameters
    ----------
    record
        Stores the events of a timer.
    gate
        Awaited before a timer with `needs_gate` is recorded; None lets it pass.
    """

    def __init__(
        self, service: str, record: Callable[[Timer], Awaitable[None]], gate: Gate | None
    ) -> None:
        self._service = service
        self._record = record
        self._gate = gate
        self._armed: dict[str, _ArmedTimer] = {}

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, timers: Sequence[Timer], tasks: asyncio.TaskGroup) -> None:
        """Start the timers that are not running yet, and stop those that are not asked for."""
        due = {timer.timer_id: timer for timer in timers}
        for timer_id in [timer_id for timer_id in self._armed if timer_id not in due]:
            gone = self._armed.pop(timer_id)
            # Half of its events may be stored already: then the other half follows.
            if gone.task is not None and not gone.recording:
                gone.task.cancel()
        for timer_id, timer in due.items():
            if timer_id not in self._armed:
                armed = self._armed[timer_id] = _ArmedTimer()
                armed.task = tasks.create_task(
                    self._fire(timer, armed), name=f"{self._service}:timer:{timer_id}"
                )

    def cancel(self) -> None:
        """Stop all of them."""
        for armed in self._armed.values():
            if armed.task is not None:
                armed.task.cancel()

    async def _fire(self, timer: Timer, armed: _ArmedTimer) -> None:
        await asyncio.sleep(timer.after_s)
        if timer.needs_gate and self._gate is not None:
            await self._gate(timer)
        armed.recording = True
        await self._record(timer)
