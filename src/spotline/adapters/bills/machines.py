"""Which instance types have GPUs, and how many: what a bill's line names and does not say.

Sources: https://aws.amazon.com/ec2/instance-types/accelerated-computing/,
https://cloud.google.com/compute/docs/gpus and
https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated.
"""

from __future__ import annotations

import re
from functools import lru_cache

from spotline.adapters.market.instance_types import INSTANCE_TYPES

_GPUS = {name: known.gpus for name, known in INSTANCE_TYPES.items()} | {
    "p3dn.24xlarge": 8,
    "p5.4xlarge": 1,
    "p5e.48xlarge": 8,
    "p5en.48xlarge": 8,
    "p6-b200.48xlarge": 8,
    "p6-b300.48xlarge": 8,
    "g4dn.12xlarge": 4,
    "g4dn.metal": 8,
    "g5.12xlarge": 4,
    "g5.24xlarge": 4,
    "g5.48xlarge": 8,
    "g6.12xlarge": 4,
    "g6.24xlarge": 4,
    "g6.48xlarge": 8,
    "g6e.12xlarge": 4,
    "g6e.24xlarge": 4,
    "g6e.48xlarge": 8,
    "g2-standard-24": 2,
    "g2-standard-48": 4,
    "g2-standard-96": 8,
    "standard_nc24ads_a100_v4": 1,
    "standard_nc48ads_a100_v4": 2,
    "standard_nc96ads_a100_v4": 4,
    "standard_nc40ads_h100_v5": 1,
    "standard_nc80adis_h100_v5": 2,
    "standard_nd96asr_v4": 8,
    "standard_nd96amsr_a100_v4": 8,
    "standard_nd96isr_h100_v5": 8,
    "standard_nd96isr_h200_v5": 8,
    "standard_nc6s_v3": 1,
    "standard_nc12s_v3": 2,
    "standard_nc24s_v3": 4,
    "standard_nc4as_t4_v3": 1,
    "standard_nc64as_t4_v3": 4,
}
# Sizes of these families have one GPU up to 8xlarge and at 16xlarge.
_ONE_GPU = re.compile(r"(?:g4dn|g5|g6|g6e|gr6)\.(?:\d*xlarge)")
_GOOGLE = re.compile(r"a[234][a-z]?-[a-z]+-(\d+)g(?:-.*)?")
_FAMILIES = re.compile(
    r"(?:p[2-9]\w*(?:-\w+)?|g[3-9]\w*)\.|a[2-4]x?[a-z]?-|g[24]-standard|standard_n[cdvg]"
)
_IN_TEXT = re.compile(
    r"(?<![\w.-])(?:[a-z][a-z0-9]{0,3}\d[a-z0-9]*(?:-[a-z0-9]+)?\.(?:nano|micro|small|medium|large|\d*xlarge|metal)(?:-\d+xl)?"
    r"|[acegmnt]\d[a-z]?-[a-z]+-\d+g?(?:-\w+)?|standard_[a-z]+\d+\w*)(?![\w-])",
    re.IGNORECASE,
)


@lru_cache(maxsize=10_000)
def gpus_of(instance_type: str) -> int:
    """GPUs of a type; 0 where it has none or nobody knows."""
    name = instance_type.lower()
    google = _GOOGLE.fullmatch(name)
    if google is not None:
        return int(google[1])
    known = _GPUS.get(name)
    if known is not None:
        return known
    return 1 if _ONE_GPU.fullmatch(name) or name.startswith("g2-standard") else 0


@lru_cache(maxsize=10_000)
def has_gpus(instance_type: str) -> bool:
    """Whether a type has GPUs: by its family where its count is not known."""
    return gpus_of(instance_type) > 0 or _FAMILIES.match(instance_type.lower()) is not None


@lru_cache(maxsize=100_000)
def type_in(text: str) -> str:
    """The instance type that a text names, "" for none."""
    match = _IN_TEXT.search(text)
    return match[0] if match else ""
