"""The bill of a recorded log, and on what kind of cloud it was run up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotline.adapters.eventlog.manifest import read_manifest
from spotline.application.focus.rows import FocusLedger, FocusTotals
from spotline.replay.focus import focus_rows

SIMULATED, REHEARSED, REAL = "simulated", "rehearsed", "real"
# Clouds whose instances cost nobody anything: ours, and processes of this machine.
_OWN = ("", "simulated", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBill:
    """What a log's charges come to; `label` says whether money was paid for them."""

    label: str
    totals: FocusTotals


def read_bill_of(log: Path) -> ReadBill:
    """Add up a log's charges.

    Raises
    ------
    UnreadableLog
        There is none, or it cannot be read.
    """
    ledger = FocusLedger()
    for _ in focus_rows(log, ledger):
        pass
    return ReadBill(label=label_of(read_manifest(log).settings), totals=ledger.totals)


def label_of(settings: Mapping[str, Any]) -> str:
    """Simulated, rehearsed (an endpoint that is not the cloud's own), or real."""
    stated = settings.get("cloud_actuator") or {}
    if stated.get("cloud", "") in _OWN:
        return SIMULATED
    return REHEARSED if stated.get("endpoint_url") else REAL
