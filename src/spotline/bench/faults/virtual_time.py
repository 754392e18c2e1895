"""An event loop whose time is played: where nothing is ready, it jumps to the next timer.

Hours of waiting cost nothing, and the same tasks run in the same order every time. It has no
threads and no sockets: whoever asks for one gets an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class NothingLeft(Exception):
    """All tasks wait for each other: no timer is armed, and nothing is ready."""


class _NoSelector:
    """Stands where a loop waits for sockets: it moves the clock instead of waiting."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance

    def select(self, timeout: float | None) -> list[Any]:
        self._advance(timeout)
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks in virtual time, seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._clock_resolution = 1e-9
        self._selector = _NoSelector(self._pass_time)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now_s

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Refuse: a thread would bring the time of the machine in."""
        raise RuntimeError("nothing here runs in a thread")

    def _pass_time(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            raise NothingLeft("every task waits, and for nothing that can come")
        self._now_s += max(0.0, timeout_s)

    def _process_events(self, event_list: Any) -> None:
        """There are none: no sockets."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


def run_virtually(work: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run `work` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())
