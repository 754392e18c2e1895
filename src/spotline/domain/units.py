"""Exact money, time and work: the integers in which Spotline decides and bills.

Money is integer micro-USD, time integer nanoseconds or seconds, work integer *quanta* (see
`WorkScale`). Floats appear only where people write or read numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    # Commands that only print import this module: numpy would double their start.
    import numpy as np
    import numpy.typing as npt

Price = TypeVar("Price", int, "npt.NDArray[np.int64]")

MICRO_USD_PER_USD = 1_000_000
NS_PER_S = 1_000_000_000
S_PER_HOUR = 3600
PPM = 1_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)

# Work amounts are scaled to about this many decimal steps: fine enough that decimals people write
# are exact, small enough that progress (times 3600) stays far below 2**63.
_WORK_DIGITS = 11


def micro_usd_from_usd(usd: float | Decimal) -> int:
    """Convert dollars to micro-dollars, half to even.

    Raises
    ------
    ValueError
        `usd` is NaN or infinite.
    """
    if not math.isfinite(usd):
        raise ValueError(f"an amount in USD must be finite, was {usd}")
    scaled = Decimal(str(usd)) * MICRO_USD_PER_USD
    return int(scaled.to_integral_value(rounding=ROUND_HALF_EVEN))


def usd_from_micro_usd(micro_usd: int) -> float:
    """Convert micro-dollars to dollars, for display and statistics only."""
    return micro_usd / MICRO_USD_PER_USD


def cost_micro_usd(price_micro_usd_per_instance_hour: Price, instances: int, held_s: int) -> Price:
    """Bill `instances` held for `held_s` seconds at a price, rounded half up to a micro-dollar.

    Of an array of prices (int64) every one is billed by itself.

    The only place that turns a price into money: simulation, planning, services and the ledger
    all call it (or its compiled copy in `solvers.window`, which a test holds equal to it).
    """
    return (price_micro_usd_per_instance_hour * instances * held_s + S_PER_HOUR // 2) // S_PER_HOUR


def utc_iso(ts_ns: int) -> str:
    """Write nanoseconds since the epoch as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(ts_ns // NS_PER_S, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_month(ts_ns: int) -> tuple[int, int]:
    """When the month of UTC begins that a time lies in, and when the next does; nanoseconds."""
    at = datetime.fromtimestamp(ts_ns // NS_PER_S, tz=UTC)
    begins = at.replace(day=1, hour=0, minute=0, second=0)
    ends = (begins + timedelta(days=32)).replace(day=1)
    return int(begins.timestamp()) * NS_PER_S, int(ends.timestamp()) * NS_PER_S


def rfc3339_of_ns(ts_ns: int) -> str:
    """Write nanoseconds since the epoch as RFC 3339 in UTC, with all nine decimals."""
    whole_s, ns = divmod(ts_ns, NS_PER_S)
    return f"{_EPOCH + timedelta(seconds=whole_s):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


def ns_from_rfc3339(text: str) -> int:
    """Read RFC 3339 as nanoseconds since the epoch; decimals after the ninth must not be stated.

    Raises
    ------
    ValueError
        It is not RFC 3339 with a UTC offset.
    """
    parts = _RFC3339.fullmatch(text)
    if parts is None:
        raise ValueError(f"a time must be RFC 3339, such as 2026-01-01T00:00:00Z, was {text!r}")
    whole, decimals, offset = parts.groups()
    whole_ns = ns_from_datetime(datetime.fromisoformat(f"{whole}{offset.upper()}"))
    return whole_ns + int((decimals or "").ljust(9, "0"))


def ns_from_datetime(moment: datetime) -> int:
    """Convert an aware datetime to nanoseconds since the epoch, exact to the microsecond.

    Raises
    ------
    ValueError
        `moment` carries no UTC offset.
    """
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"a time must carry a UTC offset, such as 2026-01-01T00:00:00Z, was {moment}"
        )
    since_epoch = moment - _EPOCH
    whole_s = since_epoch.days * 86_400 + since_epoch.seconds
    return whole_s * NS_PER_S + since_epoch.microseconds * 1_000


@dataclass(frozen=True, slots=True)
class WorkScale:
    """The integer scale of one job's work.

    A rate is stored as `rate * 10**exponent` per hour, so progress over whole seconds counts in
    *quanta* of `10**-exponent / 3600` work units. Rates written with few decimals are exact, and a
    slot's gains keep a large common divisor, which keeps the exact programs small.
    """

    exponent: int

    @classmethod
    def for_amount(cls, amount: float) -> WorkScale:
        """Choose the scale for a job of `amount` work units (> 0)."""
        if not (math.isfinite(amount) and amount > 0):
            raise ValueError(f"work must be finite and > 0, was {amount}")
        return cls(_WORK_DIGITS - math.ceil(math.log10(amount)))

    def rate_quanta_per_s(self, rate_per_hour: float) -> int:
        """Convert work units per hour to quanta per second."""
        scaled = Decimal(str(rate_per_hour)).scaleb(self.exponent)
        return int(scaled.to_integral_value(rounding=ROUND_HALF_EVEN))

    def quanta_from_work(self, amount: float) -> int:
        """Convert work units to quanta, rounded down: progress is never credited early."""
        return int(Decimal(str(amount)).scaleb(self.exponent) * S_PER_HOUR)

    def work_from_quanta(self, quanta: int) -> float:
        """Convert quanta to work units, for display only."""
        return float(Decimal(quanta).scaleb(-self.exponent) / S_PER_HOUR)
