"""Bugs that full and faulty disks bring out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spotline.adapters.ledger import sql, statements
from spotline.bench.faults.plants.bus import PLANTS as BUS_PLANTS
from spotline.bench.faults.plants.interface import Plant, Replacement


def _checksums_are_not_looked_at() -> Sequence[Replacement]:
    def unverified(table: Any, result: Any) -> Iterator[Any]:
        yield from result

    def trusted(connection: Any) -> None:
        return None

    return (
        Replacement(where=statements, name="verified", value=unverified),
        Replacement(where=sql, name="verified", value=unverified),
        Replacement(where=sql, name="audit", value=trusted),
    )


def _a_ledger_is_not_read_when_it_is_opened() -> Sequence[Replacement]:
    def trusted(connection: Any) -> None:
        return None

    return (Replacement(where=sql, name="audit", value=trusted),)


PLANTS = (
    Plant(
        name="checksums_are_not_looked_at",
        what="rows are taken as they are read",
        replacements=_checksums_are_not_looked_at,
    ),
    Plant(
        name="a_ledger_is_not_read_when_it_is_opened",
        what="damage is found when its row is needed, or never",
        replacements=_a_ledger_is_not_read_when_it_is_opened,
        seed=9,
    ),
    BUS_PLANTS[0],
)
