"""Which machines a bill's texts name, and their GPUs."""

from __future__ import annotations

import pytest

from spotline.adapters.bills.machines import gpus_of, has_gpus, type_in


@pytest.mark.parametrize(
    ("text", "kind", "gpus"),
    [
        ("USE2-SpotUsage:p4d.24xlarge", "p4d.24xlarge", 8),
        ("$98.32 per On Demand Linux p5.48xlarge Instance Hour", "p5.48xlarge", 8),
        ("p6-b200.48xlarge", "p6-b200.48xlarge", 8),
        ("g6e.12xlarge, spot, us-east-2, instance-hours", "g6e.12xlarge", 4),
        ("g5.2xlarge", "g5.2xlarge", 1),
        ("a2-highgpu-8g", "a2-highgpu-8g", 8),
        ("a3-megagpu-8g", "a3-megagpu-8g", 8),
        ("g2-standard-48", "g2-standard-48", 4),
        (
            '{"ServiceType": "Standard_ND96isr_H100_v5", "VMName": "x"}',
            "Standard_ND96isr_H100_v5",
            8,
        ),
    ],
)
def test_machines_with_gpus(text, kind, gpus):
    assert type_in(text) == kind
    assert gpus_of(kind) == gpus
    assert has_gpus(kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("USE2-BoxUsage:m5.xlarge", "m5.xlarge"),
        ("n2-standard-8", "n2-standard-8"),
        ("Standard_D2s_v3", "Standard_D2s_v3"),
        ("t3a.nano", "t3a.nano"),
        ("trn1.32xlarge", "trn1.32xlarge"),
        ("USE2-EBS:VolumeUsage.gp3", ""),
        ("PutObject requests of tier 1", ""),
    ],
)
def test_machines_without_gpus(text, kind):
    assert type_in(text) == kind
    assert not has_gpus(kind)


def test_a_new_size_of_a_gpu_family_has_some_that_nobody_counts():
    assert has_gpus("p7.48xlarge")
    assert gpus_of("p7.48xlarge") == 0
