"""A log that goes on while the broker is asked about it is no log that was cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from spotline.adapters.nats.continuity import Continuity
from spotline.contracts.codec import encode
from spotline.contracts.errors import LogCut
from spotline.domain.events.agreement import IncarnationBegun

MADE = datetime(2026, 3, 1, tzinfo=UTC)


class Broker:
    """Tells of a stream; `meanwhile` happens after it has looked and before its answer is there."""

    def __init__(
        self, last_seq: int, meanwhile: Callable[[], None] = lambda: None, begun: int = 0
    ) -> None:
        self.last_seq, self.meanwhile, self.begun = last_seq, meanwhile, begun

    async def stream_info(self, name: str) -> Any:
        last_seq = self.last_seq
        self.meanwhile()
        return SimpleNamespace(
            created=MADE,
            state=SimpleNamespace(last_seq=last_seq),
            config=SimpleNamespace(metadata={}),
        )

    async def get_last_msg(self, name: str, subject: str) -> Any:
        if not self.begun:
            raise NotFoundError
        event = IncarnationBegun(
            installation_id="0" * 32,
            incarnation=self.begun,
            last_seq_before=4,
            detail="it was cut",
            last_slot_before=-1,
        )
        return SimpleNamespace(data=encode(event))


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


async def test_a_log_that_has_grown_as_long_again_after_a_cut_is_not_the_one_that_was_opened() -> (
    None
):
    continuity = await opened(3)

    with pytest.raises(LogCut, match="it goes on as incarnation 2, this was 1"):
        await continuity.check(Broker(5, begun=2))  # type: ignore[arg-type]
