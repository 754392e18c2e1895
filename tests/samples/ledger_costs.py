"""What a ledger costs in time: `python -m tests.samples.ledger_costs URL_OF_AN_EMPTY_DATABASE`.

Slots of 600 jobs that each launch two instances, hold them and are charged; in the end the ledger is
opened again. Prints medians in ms of processor time: neither the disk nor PostgreSQL's server counts.
"""

from __future__ import annotations

import statistics
import sys
import time

from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry
from spotline.domain.ledger.billing import Charge
from spotline.domain.ledger.intents import IntentResult
from tests.fakes.ledgers import cost, instance_launch, intent

JOBS, SLOTS, SINGLE = 600, 10, 50


def timed(taken: list[float], work, *arguments) -> None:
    began = time.process_time()
    work(*arguments)
    taken.append(1000 * (time.process_time() - began))


def main(url: str) -> None:
    ledger = SqlLedger(url, "costs")
    steps: dict[str, list[float]] = {
        name: [] for name in ("intents", "results", "charges", "held", "spend", "single", "open")
    }
    for slot in range(SLOTS):
        intents = [intent(f"c{slot}-{job}", job_id=f"j{job}") for job in range(JOBS)]
        timed(steps["intents"], ledger.write_intents, intents)
        results = tuple(
            IntentResult(intent=each, granted_spot=2, granted_on_demand=0, refused=0)
            for each in intents
        )
        launched = tuple(
            instance_launch(f"i{slot}-{job}-{number}", slot=slot, job_id=f"j{job}")
            for job in range(JOBS)
            for number in range(2 if slot == 0 else 0)
        )
        timed(steps["results"], ledger.record, LedgerEntry(results=results, launched=launched))
        charges = tuple(
            Charge(start_s=0, cost=cost(7, slot=slot, job_id=f"j{job}", instances=2, held_s=3600))
            for job in range(JOBS)
        )
        entry = LedgerEntry(call_key=f"k{slot}", slot=slot, charges=charges)
        timed(steps["charges"], ledger.record, entry)
        timed(steps["held"], ledger.held)
        timed(steps["spend"], ledger.spend_by_job)
    for number in range(SINGLE):
        timed(steps["single"], ledger.write_intents, [intent(f"s{number}")])
    ledger.close()
    for _ in range(3):
        timed(steps["open"], lambda: SqlLedger(url, "costs").close())
    rows = SLOTS * JOBS * 3 + JOBS * 5 + SINGLE
    figures = [f"{name} {statistics.median(taken):.1f}" for name, taken in steps.items()]
    sys.stdout.write(f"{rows} rows; {' '.join(figures)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
