"""What the ledger says, as metrics: spend, what is held, and how near a cap is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from spotline.adapters.ledger.sql import SqlLedger
from spotline.domain.ledger.caps import Caps
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import MICRO_USD_PER_USD
from spotline.runtime.metrics import CAPACITY_TYPE, Readings
from spotline.runtime.telemetry import Telemetry


def show_ledger(telemetry: Telemetry, ledger: SqlLedger, caps: Caps) -> Callable[[], None]:
    """Have the metrics of the ledger read off it when somebody asks, until the result is called."""

    def spend() -> Readings:
        return [(ledger.total_micro_usd() / MICRO_USD_PER_USD, {})]

    def held() -> Readings:
        counts = Counter(instance.capacity_type for instance in ledger.held())
        return [(counts[kind], {CAPACITY_TYPE: kind.value}) for kind in CapacityType]

    def cap_used() -> Readings:
        cap = caps.most_micro_usd_per_job
        if not cap:
            return []
        running = {instance.job_id for instance in ledger.held()}
        spent = ledger.spend_by_job()
        return [(max((spent.get(job_id, 0) for job_id in running), default=0) / cap, {})]

    with ExitStack() as shown:
        shown.callback(telemetry.observe("spotline.spend", spend))
        shown.callback(telemetry.observe("spotline.instances.held", held))
        shown.callback(telemetry.observe("spotline.spend.cap_used", cap_used))
        return shown.pop_all().close
