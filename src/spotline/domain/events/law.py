"""Events of market laws and value tables: `law.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.market.named_law import NamedLaw
from spotline.domain.solvers.table_spec import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketLawLearned:
    """The law of an offering, learned from its past up to `slot`."""

    slot: int
    offering_id: str
    named: NamedLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTableRequested:
    """A job was admitted where the law is known: its value table is wanted."""

    job_id: str
    tenant: str
    slot: int
    table: TableSpec
    named: NamedLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTableReady:
    """A job's value table is built: from now on its decisions name it."""

    job_id: str
    tenant: str
    slot: int
    table_id: str
    size_bytes: int
