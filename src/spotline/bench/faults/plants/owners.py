"""Bugs that two processes of one service bring out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.adapters.ledger.rows import OwnedRows
from spotline.application.cloud_actuator.fencing import FencedCloud
from spotline.application.cloud_actuator.ports import Grant, LaunchRequest, Owner
from spotline.bench.faults.plants.interface import Plant, Replacement


def _epoch_is_not_looked_at() -> Sequence[Replacement]:
    def look(self: OwnedRows, connection: Any, query: Any) -> None:
        return None

    return (Replacement(where=OwnedRows, name="_look_at_epoch", value=look),)


def _cloud_is_called_without_a_look_at_the_epoch() -> Sequence[Replacement]:
    async def launch(self: FencedCloud, request: LaunchRequest) -> Grant:
        return await self._cloud.launch(request)

    async def terminate(self: FencedCloud, owner: Owner, instance_ids: Sequence[str]) -> None:
        await self._cloud.terminate(owner, instance_ids)

    return (
        Replacement(where=FencedCloud, name="launch", value=launch),
        Replacement(where=FencedCloud, name="terminate", value=terminate),
    )


def _epoch_is_checked_once() -> Sequence[Replacement]:
    look = OwnedRows._look_at_epoch
    seen: set[int] = set()

    def once(self: OwnedRows, connection: Any, query: Any) -> None:
        if id(self) not in seen:
            seen.add(id(self))
            look(self, connection, query)

    return (Replacement(where=OwnedRows, name="_look_at_epoch", value=once),)


PLANTS = (
    Plant(
        name="epoch_is_not_looked_at",
        what="a former owner of the ledger goes on writing",
        replacements=_epoch_is_not_looked_at,
    ),
    Plant(
        name="epoch_is_checked_once",
        what="an owner looks at the epoch when it starts, and never again",
        replacements=_epoch_is_checked_once,
    ),
    Plant(
        name="cloud_is_called_without_a_look_at_the_epoch",
        what="a former owner goes on calling the cloud",
        replacements=_cloud_is_called_without_a_look_at_the_epoch,
    ),
)
