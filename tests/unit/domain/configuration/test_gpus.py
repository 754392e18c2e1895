import pytest

from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts, gpu_names


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA-A100-80GB-PCIe", "a100-80gb-pcie"),
        ("a100-pcie-40gb", "a100-40gb-pcie"),
        ("a100-80gb-sxm4", "a100-80gb"),
        ("NVIDIA-H100-PCIe", "h100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("H200-SXM-141GB", "h200"),
        ("gpu-h200x1-141gb", "h200"),
        ("gpu-mi325x1-256gb", "mi325x"),
        ("b200-180gb", "b200"),
        ("gh200-96gb", "gh200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A10G-24GB", "a10g"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("nvidia-tesla-v100", "v100"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("L40S", "l40s"),
    ],
)
def test_usual_spellings_name_the_same_gpu(spelling, name):
    assert gpu_facts(spelling).name == name


def test_canonical_names_name_themselves():
    assert [gpu_facts(name).name for name in gpu_names()] == list(gpu_names())


def test_every_instance_type_of_the_markets_has_a_known_gpu():
    from spotline.adapters.market.instance_types import INSTANCE_TYPES

    models = {one.gpu_model for one in INSTANCE_TYPES.values()}
    assert {gpu_facts(model).name for model in models} == models


@pytest.mark.parametrize("name", ["", "a1000", "a100-55gb", "banana"])
def test_unknown_gpu_is_refused_with_the_known_ones(name):
    with pytest.raises(UnknownGpu, match="a100-80gb"):
        gpu_facts(name)


def test_memory_is_what_the_driver_reports_in_decimal_gigabytes():
    assert gpu_facts("a100-80gb").memory_gb == pytest.approx(80 * 2**30 / 1e9, abs=0.001)


def test_older_gpus_lack_bfloat16():
    without = {name for name in gpu_names() if not gpu_facts(name).bfloat16}
    assert without == {"k80", "p100", "v100", "v100-32gb", "t4", "rtx-2080-ti", "quadro-rtx-6000"}
