"""What an instance's disks cost in the end: exact, rounded once, apart from the instance.

A gigabyte is sold by the month, by the second of it. AWS divides by the month that a second lies in:
"$0.08 per GB-month * 2000 GB * 43,200 seconds / (86,400 seconds/day * 30 day-month)"
(https://aws.amazon.com/ebs/pricing/), and bills a minute at least.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import Disks

LEAST_DISK_S = 60
_HALF = Fraction(1, 2)


def disk_cost_micro_usd(disks: Disks | None, life: BilledLife) -> int:
    """What the disks of an instance cost over its life, micro-USD, rounded half up once.

    They are there from its launch to its end, at least a minute, whatever it costs itself: what is
    taken back for nothing, or paid for already, has them too.
    """
    if disks is None:
        return 0
    until_s = max(life.end_s, life.begin_s + LEAST_DISK_S)
    months = Fraction(0)
    at_s = life.begin_s
    while at_s < until_s:
        first_s, next_s = _month_of(at_s)
        months += Fraction(min(next_s, until_s) - at_s, next_s - first_s)
        at_s = next_s
    return int(disks.gb * disks.micro_usd_per_gb_month * months + _HALF)


def _month_of(at_s: int) -> tuple[int, int]:
    """The first second of the month that a second lies in, and that of the next; UTC."""
    at = datetime.fromtimestamp(at_s, tz=UTC)
    first = datetime(at.year, at.month, 1, tzinfo=UTC)
    following = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return int(first.timestamp()), int(following.timestamp())
