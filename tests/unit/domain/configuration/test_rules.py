from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.rules import broken_rules

FITTING = Configuration(
    model_name="granite-3.1-8b",
    method=Method.FULL,
    gpu_model="a100-80gb",
    gpus=16,
    nodes=2,
    tokens_per_sample=4096,
    batch_size=32,
    expert_parallel=4,
)


def test_a_fitting_configuration_breaks_no_rule():
    assert broken_rules(FITTING) == ()


@pytest.mark.parametrize(
    ("change", "rule", "field", "numbers"),
    [
        ({"batch_size": 20}, "batch_divisible_by_gpus", "batch_size", ("16", "20")),
        ({"nodes": 3}, "gpus_divisible_by_nodes", "gpus", ("3", "16")),
        (
            {"expert_parallel": 5},
            "gpus_divisible_by_expert_parallel",
            "expert_parallel",
            ("16", "5"),
        ),
    ],
)
def test_a_broken_rule_says_field_and_numbers(change, rule, field, numbers):
    (broken,) = broken_rules(replace(FITTING, **change))
    assert (broken.rule, broken.field) == (rule, field)
    assert all(number in broken.message for number in numbers)


def test_all_broken_rules_are_listed():
    broken = broken_rules(replace(FITTING, batch_size=1, nodes=5, expert_parallel=7))
    assert [one.field for one in broken] == ["batch_size", "gpus", "expert_parallel"]


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 16), st.integers(1, 256))
def test_rules_are_broken_exactly_where_something_does_not_divide(gpus, nodes, experts, batch):
    configuration = replace(
        FITTING, gpus=gpus, nodes=nodes, expert_parallel=experts, batch_size=batch
    )
    remainders = (batch % gpus, gpus % nodes, gpus % experts)
    assert len(broken_rules(configuration)) == sum(1 for one in remainders if one)
