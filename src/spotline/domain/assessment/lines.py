"""Lines of a bill, the same for every kind of export, and jobs as a scheduler remembers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from spotline.domain.assessment.facts import BoughtAs, HiredMachine

Tags = tuple[tuple[str, str], ...]


class LineKind(Enum):
    """What a line is to a job.

    `INSTANCE` is machine time, `EGRESS` traffic, `DISK` storage. `CORRECTION` is money that goes with
    a resource and has no time of its own: refunds, credits, discounts. `UNUSED` was paid for a
    commitment and not used; `APART` belongs to no job.
    """

    INSTANCE = "instance"
    EGRESS = "egress"
    DISK = "disk"
    CORRECTION = "correction"
    UNUSED = "unused"
    APART = "apart"


class ExportLine(NamedTuple):
    """A line, parsed: a tuple, since a bill has a million of them.

    `micro` is what it costs, commitments spread over what used them; `list_micro` the on-demand list
    cost of the same use, 0 where none is named. `used_s` are instance-seconds within the window
    `begin_s` to `end_s`; None where the line says nothing of time (a machine's memory, its licence).
    `trap` is the kind of finding it belongs to, "" for none, and `noted_micro` the money named there.
    """

    row: int
    kind: LineKind
    begin_s: int
    end_s: int
    micro: int
    currency: str
    used_s: int | None = None
    list_micro: int = 0
    resource: str = ""
    machine: HiredMachine | None = None
    purchase: BoughtAs = BoughtAs.ON_DEMAND
    tags: Tags = ()
    trap: str = ""
    noted_micro: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillReading:
    """How a bill was read: what no line of it says.

    `naive_rows` are rows whose times name no zone; `duplicate_micro` is what rows that stood there
    before would have added, by currency.
    """

    kind: str
    rows: int = 0
    naive_rows: int = 0
    duplicate_rows: tuple[tuple[str, int], ...] = ()
    duplicate_micro: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedWindow:
    """What a resource was used for between two times, all lines of that window together."""

    begin_s: int
    end_s: int
    used_s: int
    micro: int
    list_micro: int
    listed_s: int
    seconds: Mapping[BoughtAs, int]
    tags: Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryJob:
    """A job as the scheduler that ran it remembers it.

    `names` are other names under which its machines may be tagged; `nodes` the instances or hosts it
    ran on, empty where the history tells none. `gpus` is GPUs on each node, 0 where not told, and
    `instances` 0 where not told. `end_s` is None while it runs.
    """

    job_id: str
    begin_s: int
    end_s: int | None
    owner: str = ""
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    instances: int = 0
    gpus: int = 0
    restarts: int = 0
