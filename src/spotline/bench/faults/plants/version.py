"""Bugs that stores of another release bring out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spotline.adapters.ledger import sql
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.contracts.errors import ConfigError
from spotline.runtime import snapshots
from spotline.runtime.snapshots import Snapshot


def _a_snapshots_version_is_not_looked_at() -> Sequence[Replacement]:
    from spotline.application.forecaster.handler import ForecastStateCodec
    from spotline.bench.faults.scenario import FORECASTER, HORIZON_SLOTS
    from spotline.domain.forecasting.registry import forecaster_factory

    opened = snapshots.opened
    codec = ForecastStateCodec(forecaster_factory(FORECASTER), horizon_slots=HORIZON_SLOTS)

    def any_version(data: bytes) -> Snapshot:
        return replace(opened(data), version=codec.version)

    return (Replacement(where=snapshots, name="opened", value=any_version),)


def _a_newer_ledger_is_opened() -> Sequence[Replacement]:
    def migrate(connection: Any, version: int) -> None:
        return None

    return (Replacement(where=sql, name="migrate", value=migrate),)


def _a_newer_ledger_is_refused_without_a_word() -> Sequence[Replacement]:
    def migrate(connection: Any, version: int) -> None:
        if version > 100:
            raise ConfigError("the ledger cannot be opened")

    return (Replacement(where=sql, name="migrate", value=migrate),)


PLANTS = (
    Plant(
        name="a_snapshots_version_is_not_looked_at",
        what="a snapshot of a newer release is loaded",
        replacements=_a_snapshots_version_is_not_looked_at,
    ),
    Plant(
        name="a_newer_ledger_is_opened",
        what="a ledger of a newer schema is written to",
        replacements=_a_newer_ledger_is_opened,
    ),
    Plant(
        name="a_newer_ledger_is_refused_without_a_word",
        what="the refusal does not say which versions",
        replacements=_a_newer_ledger_is_refused_without_a_word,
    ),
)
