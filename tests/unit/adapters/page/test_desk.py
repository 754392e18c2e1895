"""The desk keeps every event, also while it has nowhere to put those of the past."""

from __future__ import annotations

import errno

import pytest

from spotline.adapters.page.desk import FileShelf, PageDesk
from spotline.application.page.applied import Applied
from spotline.application.read_model.ports import ViewRefused
from spotline.domain.events.event import Event
from tests.fakes.allocator import market_opened, slot_opened


def told(seq: int, event: Event) -> Applied:
    return Applied(event=event, seq=seq, kind="market.slot", event_id=f"event-{seq}")


async def test_a_full_disk_is_told_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    put = FileShelf.put

    def full(self: FileShelf, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    desk = PageDesk()
    try:
        monkeypatch.setattr(FileShelf, "put", full)
        desk.apply(Applied(event=market_opened(), seq=1, kind="market.opened", event_id="event-1"))
        for slot in range(3):
            desk.apply(told(2 + slot, slot_opened(slot)))
        with pytest.raises(ViewRefused, match="No space left"):
            await desk.ask(lambda book: book.last_slot)

        monkeypatch.setattr(FileShelf, "put", put)
        assert await desk.ask(lambda book: (book.last_slot, book.head.seq)) == (2, 4)
    finally:
        desk.close()
