"""A bill, what ran behind it, and prices: from files to what an assessment is made of."""

from __future__ import annotations

from pathlib import Path

from spotline.adapters.bills.machines import has_gpus
from spotline.adapters.bills.prices import known_list_prices, read_spot_prices
from spotline.adapters.bills.reading import BillFile
from spotline.adapters.histories.reading import read_history
from spotline.domain.assessment.facts import RebuiltBill
from spotline.domain.assessment.rebuild import BillFold


def read_assessed(bill: Path, *, jobs: Path | None, prices: Path | None) -> RebuiltBill:
    """Read a bill and rebuild the jobs behind it.

    Parameters
    ----------
    bill
        An export of FOCUS, AWS or Google Cloud: CSV, packed or not, or Parquet.
    jobs
        What a scheduler remembers of its jobs; None: jobs are rebuilt from the bill alone.
    prices
        Output of `aws ec2 describe-spot-price-history`.

    Raises
    ------
    ContractError
        A file cannot be read, is of no kind that is known, or has a cell that is wrong; names file,
        row and column.
    """
    file = BillFile(bill)
    series = () if prices is None else read_spot_prices(prices)
    history = () if jobs is None else read_history(jobs)
    fold = BillFold(has_gpus, known_list_prices())
    for line in file.lines():
        fold.take(line)
    return fold.rebuilt(
        source=f"{bill.name}: {file.kind}", reading=file.reading, history=history, prices=series
    )
