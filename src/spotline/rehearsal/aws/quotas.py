"""vCPU quotas: one for each kind of purchase and group of families, of an account in a region.

Groups and codes: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html. A new
account has 0 of most; here they are ample until somebody sets them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spotline.rehearsal.aws.places import ON_DEMAND, SPOT

AMPLE_VCPUS = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPool:
    """A quota that several families share."""

    code: str
    name: str
    lifecycle: str
    families: re.Pattern[str]
    default_vcpus: float = AMPLE_VCPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A quota of an account in a region: what it has, and what is used of it."""

    code: str
    name: str
    vcpus: float
    used_vcpus: int


def _pool(code: str, name: str, lifecycle: str, families: str) -> QuotaPool:
    return QuotaPool(code=code, name=name, lifecycle=lifecycle, families=re.compile(families))


POOLS = (
    _pool("L-C4BD4855", "All P5 Spot Instance Requests", SPOT, r"p5\w*"),
    _pool("L-3819A6DF", "All G and VT Spot Instance Requests", SPOT, r"(g|vt)\d\w*"),
    _pool(
        "L-34B43A08",
        "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        SPOT,
        r"(a|c|d|h|i|m|r|t|z)\d\w*",
    ),
    # What is no type of AWS counts as a GPU of this group.
    _pool("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", SPOT, r".*"),
    _pool("L-DB2E81BA", "Running On-Demand G and VT instances", ON_DEMAND, r"(g|vt)\d\w*"),
    _pool(
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        ON_DEMAND,
        r"(a|c|d|h|i|m|r|t|z)\d\w*",
    ),
    _pool("L-417A185B", "Running On-Demand P instances", ON_DEMAND, r".*"),
)


def pool_of(instance_type: str, lifecycle: str) -> QuotaPool:
    """The quota that a type counts in, bought that way."""
    family, dot, _ = instance_type.partition(".")
    # `a100-1x` is not of the family `a1`: only what is written as AWS writes is of its families.
    name = family if dot else ""
    return next(
        pool for pool in POOLS if pool.lifecycle == lifecycle and pool.families.fullmatch(name)
    )
