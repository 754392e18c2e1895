"""Whether a whole ledger is what was written: every row, and the sums that must agree."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, select

from spotline.adapters.ledger import tables as t
from spotline.adapters.ledger.checksums import verified
from spotline.adapters.ledger.opening import check_file
from spotline.contracts.errors import LedgerDamaged

# By owner and job: number and sum of charges, and the sum of those for instances.
_Sums = dict[tuple[str, str], list[int]]


def audit(connection: Connection) -> None:
    """Read every row of every owner.

    A checksum tells that a row changed, also in its key, where no reader would look for it; the sums
    tell that a row is gone.

    Raises
    ------
    LedgerDamaged
        Something is not what was written.
    """
    check_file(connection)
    charged: _Sums = defaultdict(lambda: [0, 0, 0])
    summed: _Sums = defaultdict(lambda: [0, 0, 0])
    for table in t.SEALED:
        # In the order of writing's keys or not: here only the sums matter.
        for row in verified(table, connection.execute(select(table)).yield_per(1000)):
            if table is t.charges:
                sums = charged[row.owner, row.job_id]
                sums[0] += 1
                sums[1] += row.cost_micro_usd
                sums[2] += row.cost_micro_usd if row.instances else 0
            elif table is t.spend:
                summed[row.owner, row.job_id][0] = row.charges
                summed[row.owner, row.job_id][1] = row.micro_usd
            elif table is t.bills:
                summed[row.owner, row.job_id][2] += row.estimate_micro_usd
    for key in sorted(charged.keys() | summed.keys()):
        if charged[key] != summed[key]:
            owner, job_id = key
            raise LedgerDamaged(
                t.spend.name,
                f"owner={owner!r}, job_id={job_id!r}",
                "number and sum of charges, and sum of those for instances, were "
                f"{summed[key]}, are {charged[key]}",
            )
