"""What is publicly known of GPUs: memory, arithmetic, links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from spotline.domain.configuration.catalogue import read_catalogue

_MIB = 2**20
_RATES = ("dense_tflops", "memory_gb_per_s", "link_gb_per_s", "network_gb_per_s")


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


def _facts(name: str, row: Mapping[str, str]) -> GpuFacts:
    return GpuFacts(
        name=name,
        memory_gb=round(int(row["memory_mib"]) * _MIB / 1e9, 3),
        bfloat16=row["bfloat16"] == "1",
        **{rate: float(row[rate]) for rate in _RATES},
    )


# Memory in MiB as the driver reports it (an "80 GB" card holds 80 GiB), 16-bit dense TFLOPS,
# memory GB/s, link GB/s in one direction (NVLink or Infinity Fabric; PCIe 3/4/5 x16 is
# 15.8/31.5/63), network GB/s per GPU, native bfloat16. Sources: the vendors' data sheets
# (nvidia.com, amd.com); network: the largest common cloud node (p2.16xlarge 25 Gbit/s, p3dn,
# g4dn, g5, g6 100, g6e, p4d 400, p5, p6 3200 Gbit/s), 100 Gbit/s a node where there is none.
_CATALOGUE, _ALIASES = read_catalogue("gpus.csv", _facts)

# Words that say nothing of which GPU it is.
# fmt: off
_NOISE = frozenset({
    "nvidia", "amd", "tesla", "geforce", "instinct", "gpu", "gpus", "core", "tensor",
    "graphics", "card", "accelerator", "ampere", "hopper", "blackwell", "turing", "volta",
    "kepler", "oam", "server", "edition", "hgx", "dgx", "gddr6", "gddr6x", "gddr7", "hbm",
    "hbm2", "hbm2e", "hbm3", "hbm3e", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "nvlink",
})
# fmt: on
# Without a memory size the smaller card is meant, as GCP says it: a `nvidia-tesla-a100` has 40 GB.
_SIZED = {"a100": "40gb", "h100": "80gb"}
# A memory size in the name of a GPU that comes in one size only (or whose usual one it is).
_MEMORY = re.compile(r"\d+(gb|g|gib)")


def gpu_names() -> tuple[str, ...]:
    """All canonical names, sorted."""
    return tuple(sorted(_CATALOGUE))


@lru_cache(maxsize=4096)
def gpu_facts(name: str) -> GpuFacts:
    """Look a GPU up by any usual spelling: `NVIDIA-A100-SXM4-80GB` is `a100-80gb`.

    Raises
    ------
    UnknownGpu
        No GPU goes by this name; says which are known.
    """
    found = _CATALOGUE.get(name)
    if found is None:
        found = _CATALOGUE.get(_canonical(name))
    if found is None:
        raise UnknownGpu(
            f"gpu_model must be a known GPU ({', '.join(sorted(_CATALOGUE))}) or a usual "
            f"spelling of one, was {name!r}"
        )
    return found


def _canonical(name: str) -> str:
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    # Markets number their offers: `gpu-h100x1-80gb` is one H100.
    words = [re.sub(r"(?<=\d)x\d+$", "", word) for word in words]
    words = [word for word in words if word not in _NOISE]
    memory = [word for word in words if _MEMORY.fullmatch(word)]
    pcie = [word for word in words if word.startswith("pci")]
    model = "-".join(word for word in words if word not in memory and word not in pcie)
    model = _ALIASES.get(model, model)
    if model in _CATALOGUE and not memory:
        return model
    size = memory[0].rstrip("gib") + "gb" if memory else _SIZED.get(model, "")
    # NVIDIA names the GH200 after its CPU's memory.
    if model == "h100-94gb-nvl" or f"{model}-{size}" == "gh200-480gb":
        return model
    full = "-".join(part for part in (model, size, "pcie" if pcie else "") if part)
    if full in _CATALOGUE:
        return full
    without_pcie = f"{model}-{size}" if size else model
    if without_pcie in _CATALOGUE and model not in _SIZED:
        return without_pcie
    facts = _CATALOGUE.get(model)
    return model if facts is not None and _near(size, facts.memory_gb) else full


def _near(size: str, memory_gb: float) -> bool:
    if not size:
        return True
    # Sellers round: a B200 is sold as 180, 183 and 192 GB.
    return abs(float(size.removesuffix("gb")) / memory_gb - 1) < 0.15
