"""Instance types: what AWS says of those that it has, and of those that only a market file has.

vCPUs, memory and GPUs: https://aws.amazon.com/ec2/instance-types/accelerated-computing/ and
https://aws.amazon.com/ec2/instance-types/p3/ (and /p2/, /g4/, /g5/, /g6/).
"""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Type:
    """One type: `memory_mib` of the machine, `gpu_memory_mib` of each GPU; `gpu` as AWS names it."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str
    gpus: int
    gpu_memory_mib: int
    manufacturer: str = "NVIDIA"


def _type(
    name: str, vcpus: int, memory_gib: int, gpu: str, gpus: int, gpu_gib: int
) -> tuple[str, Ec2Type]:
    return name, Ec2Type(
        name=name,
        vcpus=vcpus,
        memory_mib=memory_gib * _GIB,
        gpu=gpu,
        gpus=gpus,
        gpu_memory_mib=gpu_gib * _GIB,
    )


_TYPES = dict(
    (
        _type("p2.xlarge", 4, 61, "K80", 1, 12),
        _type("p2.8xlarge", 32, 488, "K80", 8, 12),
        _type("p2.16xlarge", 64, 732, "K80", 16, 12),
        _type("p3.2xlarge", 8, 61, "V100", 1, 16),
        _type("p3.8xlarge", 32, 244, "V100", 4, 16),
        _type("p3.16xlarge", 64, 488, "V100", 8, 16),
        _type("p3dn.24xlarge", 96, 768, "V100", 8, 32),
        _type("p4d.24xlarge", 96, 1152, "A100", 8, 40),
        _type("p4de.24xlarge", 96, 1152, "A100", 8, 80),
        _type("p5.48xlarge", 192, 2048, "H100", 8, 80),
        _type("g4dn.xlarge", 4, 16, "T4", 1, 16),
        _type("g4dn.2xlarge", 8, 32, "T4", 1, 16),
        _type("g4dn.12xlarge", 48, 192, "T4", 4, 16),
        _type("g5.xlarge", 4, 16, "A10G", 1, 24),
        _type("g5.2xlarge", 8, 32, "A10G", 1, 24),
        _type("g5.12xlarge", 48, 192, "A10G", 4, 24),
        _type("g5.48xlarge", 192, 768, "A10G", 8, 24),
        _type("g6.xlarge", 4, 16, "L4", 1, 24),
        _type("g6e.xlarge", 4, 32, "L40S", 1, 48),
    )
)

# As p3.2xlarge has: of a type that only a market file knows, nobody says more.
_VCPUS_PER_GPU = 8
_MEMORY_MIB_PER_GPU = 61 * _GIB
_GPU_MEMORY_GIB = {"k80": 12, "v100": 16, "a100": 40, "h100": 80, "t4": 16, "a10g": 24}


def instance_type(name: str, gpu_model: str, gpus: int) -> Ec2Type:
    """What is said of a type: AWS's own numbers, or of an invented one so much for each GPU."""
    known = _TYPES.get(name)
    if known is not None and known.gpus == gpus:
        return known
    model, _, size = gpu_model.partition("-")
    stated = size.removesuffix("gb")
    gpu_gib = int(stated) if stated.isdecimal() else _GPU_MEMORY_GIB.get(model.lower(), 16)
    return Ec2Type(
        name=name,
        vcpus=_VCPUS_PER_GPU * gpus,
        memory_mib=_MEMORY_MIB_PER_GPU * gpus,
        gpu=model.upper(),
        gpus=gpus,
        gpu_memory_mib=gpu_gib * _GIB,
    )
