"""What is publicly known of GPUs: memory, arithmetic, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_MIB = 2**20


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


# Memory in MiB as the driver reports it (an "80 GB" card holds 80 GiB), 16-bit dense TFLOPS,
# memory GB/s, link GB/s in one direction (NVLink or Infinity Fabric; PCIe 3/4/5 x16 is
# 15.8/31.5/63), network GB/s per GPU, native bfloat16. Sources: the vendors' data sheets
# (nvidia.com, amd.com); network: the largest common cloud node (p2.16xlarge 25 Gbit/s, p3dn,
# g4dn, g5, g6 100, g6e, p4d 400, p5, p6 3200 Gbit/s), 100 Gbit/s a node where there is none.
_ROWS: tuple[tuple[str, int, float, float, float, float, bool], ...] = (
    ("k80", 11441, 4.4, 240.0, 15.8, 0.2, False),
    ("p100", 16280, 21.2, 732.0, 80.0, 1.6, False),
    ("v100", 16160, 125.0, 900.0, 150.0, 1.6, False),
    ("v100-32gb", 32510, 125.0, 900.0, 150.0, 1.6, False),
    ("t4", 15360, 65.0, 320.0, 15.8, 1.6, False),
    ("rtx-2080-ti", 11264, 53.8, 616.0, 15.8, 1.6, False),
    ("quadro-rtx-6000", 24220, 130.5, 672.0, 15.8, 1.6, False),
    ("rtx-3090", 24576, 71.0, 936.0, 31.5, 1.6, True),
    ("rtx-4090", 24564, 165.2, 1008.0, 31.5, 1.6, True),
    ("rtx-5090", 32607, 209.5, 1792.0, 63.0, 1.6, True),
    ("rtx-a5000", 24564, 111.1, 768.0, 31.5, 1.6, True),
    ("rtx-a6000", 49140, 154.8, 768.0, 31.5, 1.6, True),
    ("rtx-6000-ada", 49140, 364.2, 960.0, 31.5, 1.6, True),
    ("rtx-pro-6000", 97887, 503.8, 1792.0, 63.0, 6.2, True),
    ("a10", 23028, 125.0, 600.0, 31.5, 1.6, True),
    ("a10g", 23028, 70.0, 600.0, 31.5, 1.6, True),
    ("a30", 24576, 165.0, 933.0, 31.5, 1.6, True),
    ("a40", 46068, 149.7, 696.0, 31.5, 1.6, True),
    ("l4", 23034, 121.0, 300.0, 31.5, 1.6, True),
    ("l40", 46068, 181.0, 864.0, 31.5, 1.6, True),
    ("l40s", 46068, 362.0, 864.0, 31.5, 6.2, True),
    ("a100-40gb", 40960, 312.0, 1555.0, 300.0, 6.2, True),
    ("a100-40gb-pcie", 40960, 312.0, 1555.0, 31.5, 1.6, True),
    ("a100-80gb", 81920, 312.0, 2039.0, 300.0, 6.2, True),
    ("a100-80gb-pcie", 81920, 312.0, 1935.0, 31.5, 1.6, True),
    ("h100-80gb", 81559, 989.4, 3352.0, 450.0, 50.0, True),
    ("h100-80gb-pcie", 81559, 756.5, 2039.0, 63.0, 6.2, True),
    ("h100-94gb-nvl", 95830, 835.5, 3938.0, 300.0, 6.2, True),
    ("h20", 97871, 148.0, 4000.0, 450.0, 25.0, True),
    ("h200", 143771, 989.4, 4800.0, 450.0, 50.0, True),
    ("gh200", 97871, 989.4, 4000.0, 450.0, 25.0, True),
    ("b200", 183359, 2250.0, 8000.0, 900.0, 50.0, True),
    ("b300", 275040, 2250.0, 8000.0, 900.0, 100.0, True),
    ("mi210", 65520, 181.0, 1638.0, 31.5, 6.2, True),
    ("mi250x", 65520, 191.5, 1638.0, 150.0, 12.5, True),
    ("mi300x", 196592, 1307.4, 5300.0, 448.0, 50.0, True),
    ("mi325x", 262128, 1307.4, 6000.0, 448.0, 50.0, True),
)

_CATALOGUE: dict[str, GpuFacts] = {
    name: GpuFacts(
        name=name,
        memory_gb=round(memory_mib * _MIB / 1e9, 3),
        dense_tflops=tflops,
        memory_gb_per_s=memory_rate,
        link_gb_per_s=link,
        network_gb_per_s=network,
        bfloat16=bfloat16,
    )
    for name, memory_mib, tflops, memory_rate, link, network, bfloat16 in _ROWS
}

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
_ALIASES = {
    "2080-ti": "rtx-2080-ti",
    "2080ti": "rtx-2080-ti",
    "rtx-2080ti": "rtx-2080-ti",
    "rtx2080ti": "rtx-2080-ti",
    "rtx-6000": "quadro-rtx-6000",
    "quadro-6000": "quadro-rtx-6000",
    "3090": "rtx-3090",
    "rtx3090": "rtx-3090",
    "4090": "rtx-4090",
    "rtx4090": "rtx-4090",
    "5090": "rtx-5090",
    "rtx5090": "rtx-5090",
    "a5000": "rtx-a5000",
    "a6000": "rtx-a6000",
    "6000-ada": "rtx-6000-ada",
    "rtx6000-ada": "rtx-6000-ada",
    "rtx-6000-ada-generation": "rtx-6000-ada",
    "rtx6000ada": "rtx-6000-ada",
    "pro-6000": "rtx-pro-6000",
    "rtxpro6000": "rtx-pro-6000",
    "h100-nvl": "h100-94gb-nvl",
    "grace-gh200": "gh200",
    "mi250": "mi250x",
    "mi300": "mi300x",
    "mi325": "mi325x",
}


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
