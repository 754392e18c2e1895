"""A log that goes on while the broker is asked about it is no log that was cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from spotline.adapters.nats.continuity import Continuity
from spotline.contracts.errors import LogCut

MADE = datetime(2026, 3, 1, tzinfo=UTC)


class Broker:
    """Tells of a stream; `meanwhile` happens after it has looked and before its answer is there."""

    def __init__(self, last_seq: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.last_seq, self.meanwhile = last_seq, meanwhile

    async def stream_info(self, name: str) -> Any:
        last_seq = self.last_seq
        self.meanwhile()
        return SimpleNamespace(
            created=MADE,
            state=SimpleNamespace(last_seq=last_seq),
            config=SimpleNamespace(metadata={}),
        )


async def opened(last_seq: int) -> Continuity:
    continuity = Continuity("LOG", checked=True)
    await continuity.look(Broker(last_seq), ())  # type: ignore[arg-type]
    return continuity


async def test_what_is_stored_while_the_broker_is_asked_is_not_missed() -> None:
    continuity = await opened(3)

    await continuity.check(Broker(3, meanwhile=lambda: continuity.saw(4)))  # type: ignore[arg-type]

    assert continuity.known_seq == 4


async def test_what_was_there_before_and_is_gone_is_missed() -> None:
    continuity = await opened(3)
    continuity.saw(4)

    with pytest.raises(LogCut, match="ends at entry 3, entries up to 4 were there"):
        await continuity.check(Broker(3))  # type: ignore[arg-type]
