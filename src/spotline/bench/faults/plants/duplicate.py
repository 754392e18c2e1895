"""Bugs that messages which come twice bring out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.turn import RecentIds
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.bench.faults.stream import MESSAGE_ID
from spotline.contracts.envelope import Envelope, StoredEntry


def _ids_are_not_remembered() -> Sequence[Replacement]:
    def add(self: RecentIds, event_id: str) -> bool:
        return True

    return (Replacement(where=RecentIds, name="add", value=add),)


def _ids_are_forgotten_at_once() -> Sequence[Replacement]:
    add = RecentIds.add

    def forgetful(self: RecentIds, event_id: str) -> bool:
        self._limit = 4
        return add(self, event_id)

    return (Replacement(where=RecentIds, name="add", value=forgetful),)


def _message_id_stands_for_event_id() -> Sequence[Replacement]:
    envelope = StoredEntry.envelope

    def by_message(self: StoredEntry) -> Envelope:
        read = envelope(self)
        message_id = self.headers.get(MESSAGE_ID, "")
        return replace(read, event_id=message_id or read.event_id)

    return (Replacement(where=StoredEntry, name="envelope", value=by_message),)


PLANTS = (
    Plant(
        name="ids_are_not_remembered",
        what="an event that was applied is applied again",
        replacements=_ids_are_not_remembered,
    ),
    Plant(
        name="ids_are_forgotten_at_once",
        what="only the last few ids are remembered",
        replacements=_ids_are_forgotten_at_once,
    ),
    Plant(
        name="message_id_stands_for_event_id",
        what="a message under another id is taken for another event",
        replacements=_message_id_stands_for_event_id,
    ),
)
