"""Which value table a decision looks into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What the value table of one job on one offering is made of, beside the job.

    `table_id` is the SHA-256 of all that it depends on. `taken` spot instances are expected to
    stay with jobs that are served earlier; a launch of on-demand may have to wait for
    `on_demand_reserve_slots`; spot of the slots to come costs `spot_surcharge_micro_usd` per
    instance-hour more than its price, in the mean where it goes by `surcharge_by_count`. A `shared`
    one is named by the job's class, and only the job's own view of it depends on the job. One of
    `even_cells` counts work left in cells that slots are whole numbers of.
    """

    table_id: str
    law_id: str
    offering_id: str
    instance_type: str
    first_slot_start_ns: int
    slot_s: int
    on_demand_price_micro_usd: int
    on_demand_available: int
    taken: int
    on_demand_reserve_slots: int = 0
    spot_surcharge_micro_usd: int = 0
    shared: bool = False
    even_cells: bool = False
    surcharge_by_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """The table that a decision looks into, and where the market is in its law."""

    table: TableSpec
    run_state: int
