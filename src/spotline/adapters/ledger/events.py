"""Recorded answers as JSON: the ledger gives back exactly what it was told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
)
from spotline.domain.events.event import Event

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (LaunchRefused, InterruptionNoticed, CapacityLost, CapacityReported, CostAccrued)
}


def dump_events(events: Sequence[Event]) -> str:
    """Write the actuator's events as a JSON list of [kind, fields]."""
    return json.dumps(
        [
            [type(event).__name__, _ADAPTERS[type(event).__name__].dump_python(event, mode="json")]
            for event in events
        ]
    )


def load_events(text: str) -> tuple[Event, ...]:
    """Read back what `dump_events` wrote."""
    return tuple(_ADAPTERS[kind].validate_python(fields) for kind, fields in json.loads(text))
