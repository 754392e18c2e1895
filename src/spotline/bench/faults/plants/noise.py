"""Bugs that bytes which are nothing bring out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.runtime.service import ServiceHost
from spotline.runtime.snapshots import SnapshotKeeper


def _what_cannot_be_read_ends_the_service() -> Sequence[Replacement]:
    async def dead_letter(self: Any, entry: StoredEntry, error: ContractError) -> None:
        raise error

    return (Replacement(where=ServiceHost, name="_dead_letter", value=dead_letter),)


def _what_cannot_be_read_is_dropped() -> Sequence[Replacement]:
    async def dead_letter(self: Any, entry: StoredEntry, error: ContractError) -> None:
        return None

    return (Replacement(where=ServiceHost, name="_dead_letter", value=dead_letter),)


def _a_damaged_snapshot_ends_the_service() -> Sequence[Replacement]:
    async def set_aside(self: Any, data: bytes | None, error: ValueError) -> None:
        raise error

    return (Replacement(where=SnapshotKeeper, name="_set_aside", value=set_aside),)


PLANTS = (
    Plant(
        name="what_cannot_be_read_ends_the_service",
        what="an entry that is no message is tried again for ever",
        replacements=_what_cannot_be_read_ends_the_service,
    ),
    Plant(
        name="what_cannot_be_read_is_dropped",
        what="an entry that is no message is left out, and nobody is told",
        replacements=_what_cannot_be_read_is_dropped,
    ),
    Plant(
        name="a_damaged_snapshot_ends_the_service",
        what="a snapshot that does not load is loaded again for ever",
        replacements=_a_damaged_snapshot_ends_the_service,
    ),
)
