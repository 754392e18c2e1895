"""Token buckets: an account makes so many calls at once, and so many a second after that.

Sizes: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html. The seconds are of
market time, as all that the rehearsal counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.service import AwsCall, AwsError

_FULL_DESCRIBE = ("DescribeInstances", "DescribeInstanceStatus", "DescribeTags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many calls at once, and so many more a second."""

    burst: float
    per_s: float


READS = Rate(burst=100, per_s=20)
# Nothing said of what to describe, and no page: dear.
UNBOUNDED_READS = Rate(burst=50, per_s=10)
WRITES = Rate(burst=50, per_s=5)


def rate_of(call: AwsCall) -> tuple[str, Rate]:
    """The bucket that a call takes from."""
    if not call.operation.startswith(("Describe", "Get")):
        return "writes", WRITES
    bounded = any(name in call.params for name in ("Filters", "InstanceIds", "MaxResults"))
    if call.operation in _FULL_DESCRIBE and not bounded:
        return "unbounded reads", UNBOUNDED_READS
    return "reads", READS


class Buckets:
    """The buckets of all accounts and regions."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, str, str], tuple[int, float]] = {}

    def take(self, call: AwsCall, now_ns: int) -> None:
        """Let a call pass, or refuse it; raises AwsError."""
        name, rate = rate_of(call)
        key = call.account_id, call.region, name
        since_ns, level = self._levels.get(key, (now_ns, rate.burst))
        level = min(rate.burst, level + (now_ns - since_ns) / NS_PER_S * rate.per_s)
        passes = level >= 1
        self._levels[key] = now_ns, level - 1 if passes else level
        if not passes:
            raise AwsError("RequestLimitExceeded", "Request limit exceeded.", status=503)
