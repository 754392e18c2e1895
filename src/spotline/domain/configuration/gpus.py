"""What is publicly known of GPUs: memory, arithmetic, links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU model's data sheet.

    `name` is the canonical one (`a100-80gb`, `a100-80gb-pcie`, `t4`), as offerings have it.
    `memory_gb` is 10^9 bytes, `dense_tflops` 16-bit tensor arithmetic without sparsity (float16
    where bfloat16 is not native), bandwidths are 10^9 bytes per second; `link_gb_per_s` is to the
    other GPUs of its node in one direction, `network_gb_per_s` its share of a usual node's network.
    """

    name: str
    memory_gb: float
    dense_tflops: float
    memory_gb_per_s: float
    link_gb_per_s: float
    network_gb_per_s: float
    bfloat16: bool


class UnknownGpu(ValueError):
    """No GPU in the catalogue goes by a name."""


def gpu_facts(name: str) -> GpuFacts:
    """Look a GPU up by any usual spelling: `NVIDIA-A100-SXM4-80GB` is `a100-80gb`.

    Raises
    ------
    UnknownGpu
        No GPU goes by this name; says which are known.
    """
    raise NotImplementedError
