"""Calls that stand still on their way, as a test asks: between the two, it can do what it likes.

A held call has come in and waits, before it takes effect or after that and before its answer. So
the moment between any two calls of a caller can be met from outside, whoever the caller is.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotline.rehearsal.aws.faults import Effect
from spotline.rehearsal.aws.service import AwsCall, ConnectionLost, Service


@dataclass(slots=True, kw_only=True)
class Hold:
    """One call of an operation (`*` and `?` in it) is to be held, after `skip` others.

    `call` is the one that is held, None until it came; `go` lets it go on; a `dropped` one has no
    effect any more, and its connection is lost.
    """

    operation: str
    effect: Effect = Effect.BEFORE
    skip: int = 0
    call: AwsCall | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False

    def __post_init__(self) -> None:
        if not self.operation:
            raise ValueError("operation must not be empty")
        if self.skip < 0:
            raise ValueError(f"skip must be >= 0, was {self.skip}")

    def takes(self, call: AwsCall) -> bool:
        """Whether this call is the one; counts it off where it is not yet."""
        if self.call is not None or not fnmatch.fnmatchcase(call.operation, self.operation):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.call = call
        return True


@dataclass(slots=True)
class Holds:
    """What is to be held, and is; `came` counts all calls by operation, held ones among them."""

    came: Counter[str] = field(default_factory=Counter)
    _holds: list[Hold] = field(default_factory=list)
    _closed: bool = False

    @property
    def held(self) -> list[str]:
        """The operations of the calls that stand still, in the order in which they were asked for."""
        return [hold.call.operation for hold in self._holds if hold.call is not None]

    def ask(self, hold: Hold) -> None:
        """Hold a call as soon as it comes."""
        self._holds.append(hold)

    def release(self, *, dropped: bool) -> int:
        """Hold nothing any more, and let go what is held; says how many calls that were."""
        held = [hold for hold in self._holds if hold.call is not None]
        self._holds.clear()
        for hold in held:
            hold.dropped = dropped
            hold.go.set()
        return len(held)

    def close(self) -> None:
        """Hold nothing from here on: the rehearsal ends."""
        self._closed = True
        self.release(dropped=True)

    def arrived(self, call: AwsCall) -> Hold | None:
        """Take a call down; what holds it, None for nothing."""
        self.came[call.operation] += 1
        if self._closed:
            return None
        return next((hold for hold in self._holds if hold.takes(call)), None)


class HeldService:
    """A service some of whose calls are held."""

    def __init__(self, service: Service, holds: Holds) -> None:
        self._service = service
        self._holds = holds

    @property
    def name(self) -> str:
        """The service's."""
        return self._service.name

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer as the service does, when the call is let go."""
        hold = self._holds.arrived(call)
        if hold is not None and hold.effect is Effect.BEFORE:
            await _passed(hold)
        answer = await self._service.answer(call)
        if hold is not None and hold.effect is Effect.AFTER:
            await _passed(hold)
        return answer


async def _passed(hold: Hold) -> None:
    await hold.go.wait()
    if hold.dropped:
        raise ConnectionLost
