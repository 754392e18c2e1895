"""What volumes cost: by gigabyte and month, the second, at least a minute, whoever pays for the instance.

A second costs its share of the month that it lies in: https://aws.amazon.com/ebs/pricing/, "$0.08 per
GB-month * 2000 GB * 43,200 seconds / (86,400 seconds/day * 30 day-month)". A volume is there from the
time that AWS calls the instance's launch until it shuts down.
"""

from __future__ import annotations

import calendar
import datetime
from fractions import Fraction

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.drawn import hexadecimal

_LEAST_S = 60
_DAY_S = 86_400


def volume_id(instance_id: str) -> str:
    """The id of an instance's volume."""
    return "vol-" + hexadecimal(17, "volume", instance_id)


def volume_micro_usd(gb: int, micro_usd_per_gb_month: int, from_ns: int, until_ns: int) -> int:
    """What a volume costs from one time to another, rounded half up."""
    first_s = from_ns // NS_PER_S
    last_s = max(until_ns // NS_PER_S, first_s + _LEAST_S)
    owed = Fraction(0)
    for day in range(first_s // _DAY_S, (last_s - 1) // _DAY_S + 1):
        seconds = min(last_s, (day + 1) * _DAY_S) - max(first_s, day * _DAY_S)
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
        month_s = calendar.monthrange(date.year, date.month)[1] * _DAY_S
        owed += Fraction(gb * micro_usd_per_gb_month * seconds, month_s)
    return int(owed + Fraction(1, 2))
