from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.configuration import Configuration, Method, MethodOption
from spotline.domain.configuration.gpus import gpu_facts
from spotline.domain.configuration.models import model_facts
from spotline.domain.configuration.steptime import (
    Coefficients,
    step_times,
    step_work,
    trainable_parameters,
)

FULL = Configuration(
    model_name="granite-3.1-8b",
    method=Method.FULL,
    gpu_model="a100-80gb",
    gpus=1,
    nodes=1,
    tokens_per_sample=4096,
    batch_size=4,
)
# Everything at the data sheet's rate, nothing hidden, no overhead: the formulas alone.
IDEAL = Coefficients(
    efficiency=1.0,
    half_efficiency_tokens=0.0,
    quantised_efficiency=1.0,
    mixture_efficiency=1.0,
    frozen_backward_over_forward=2.0,
    memory_efficiency=1.0,
    link_efficiency=1.0,
    roce_efficiency=1.0,
    tcp_efficiency=1.0,
    overlap=0.0,
    overhead_s=0.0,
    overhead_s_per_layer=0.0,
    collective_s_per_layer=0.0,
)
MODEL, GPU = model_facts("granite-3.1-8b"), gpu_facts("a100-80gb")


@dataclass(frozen=True, kw_only=True)
class Step:
    compute_s: float
    optimiser_s: float
    communication_s: float
    overhead_s: float
    tokens_per_s: float

    @property
    def step_s(self):
        return self.compute_s + self.optimiser_s + self.communication_s + self.overhead_s


def step_time(configuration, coefficients=None):
    times = step_times(step_work((configuration,)), coefficients or Coefficients())
    return Step(**{field.name: float(getattr(times, field.name)[0]) for field in fields(Step)})


def _with(configuration, **options):
    given_options = tuple(
        MethodOption(name=name, value=value) for name, value in sorted(options.items())
    )
    return replace(configuration, options=given_options)


def test_compute_is_three_passes_of_two_flops_a_parameter_and_attention():
    tokens = 4 * 4096
    attention = 2 * 4096 * MODEL.hidden * MODEL.layers
    flops = 3 * (2 * MODEL.parameters + attention) * tokens
    assert step_time(FULL, IDEAL).compute_s == pytest.approx(flops / (GPU.dense_tflops * 1e12))


def test_optimiser_moves_twenty_bytes_a_trained_parameter():
    expected = 20 * MODEL.parameters / (GPU.memory_gb_per_s * 1e9)
    assert step_time(FULL, IDEAL).optimiser_s == pytest.approx(expected)


def test_replicas_reduce_their_gradients_around_a_ring():
    eight = _with(replace(FULL, gpus=8, batch_size=32), placement="replicated")
    expected = 2 * 7 / 8 * 2 * MODEL.parameters / (GPU.link_gb_per_s * 1e9)
    assert step_time(eight, IDEAL).communication_s == pytest.approx(expected)


def test_shards_move_weights_twice_and_gradients_once():
    eight = replace(FULL, gpus=8, batch_size=32)
    expected = 7 / 8 * 3 * 2 * MODEL.parameters / (GPU.link_gb_per_s * 1e9)
    assert step_time(eight, IDEAL).communication_s == pytest.approx(expected)


def test_one_gpu_does_not_communicate():
    assert step_time(FULL, IDEAL).communication_s == 0


def test_lora_trains_two_matrices_of_its_rank_each():
    lora = _with(replace(FULL, method=Method.LORA), lora_rank="16", lora_matrices="7")
    assert trainable_parameters(lora, MODEL) == 2 * 16 * MODEL.hidden * 7 * MODEL.layers


def test_a_mixture_computes_with_its_active_parameters_only():
    mixture = replace(FULL, model_name="mixtral-8x7b", tokens_per_sample=64, batch_size=1024)
    facts = model_facts("mixtral-8x7b")
    attention = 2 * 64 * facts.hidden * facts.layers
    flops = 3 * (2 * facts.active_parameters + attention) * 64 * 1024
    assert step_time(mixture, IDEAL).compute_s == pytest.approx(flops / 312e12)


def test_a_tiny_batch_takes_as_long_as_reading_the_weights():
    tiny = replace(FULL, batch_size=1, tokens_per_sample=8)
    expected = 3 * 2 * MODEL.parameters / (GPU.memory_gb_per_s * 1e9)
    assert step_time(tiny, IDEAL).compute_s == pytest.approx(expected)


def test_the_network_between_nodes_is_slower_over_tcp():
    nodes = replace(FULL, gpus=16, nodes=2, batch_size=16)
    fast = step_time(_with(nodes, enable_roce="true"))
    slow = step_time(_with(nodes, enable_roce="false"))
    assert slow.communication_s > 2 * fast.communication_s
    assert slow.compute_s == fast.compute_s


def test_recomputed_activations_cost_one_more_forward_pass():
    plain = step_time(FULL, IDEAL).compute_s
    again = step_time(_with(FULL, gradient_checkpointing="true"), IDEAL).compute_s
    assert again == pytest.approx(plain * 4 / 3)


def test_gpus_that_take_turns_are_no_faster_than_one():
    split = _with(replace(FULL, gpus=2), placement="split")
    assert step_time(split, IDEAL).compute_s == pytest.approx(step_time(FULL, IDEAL).compute_s)


def test_tensor_parallel_gpus_share_the_arithmetic():
    group = _with(replace(FULL, gpus=4), placement="tensor", model_parallel="4")
    assert step_time(group, IDEAL).compute_s == pytest.approx(step_time(FULL, IDEAL).compute_s / 4)


def test_bfloat16_is_slow_where_it_is_not_native():
    t4 = replace(FULL, gpu_model="t4")
    half = replace(t4, precision="float16")
    assert step_time(t4, IDEAL).compute_s > 4 * step_time(half, IDEAL).compute_s


def test_arrays_agree_with_single_steps():
    configurations = [FULL, replace(FULL, gpus=8, batch_size=64), replace(FULL, batch_size=1)]
    times = step_times(step_work(configurations), Coefficients())
    single = [step_time(one) for one in configurations]
    np.testing.assert_allclose(times.step_s, [one.step_s for one in single])
    np.testing.assert_allclose(times.tokens_per_s, [one.tokens_per_s for one in single])


def test_no_configurations_give_empty_arrays():
    assert step_times(step_work([]), Coefficients()).step_s.shape == (0,)


def test_unreadable_options_say_nothing():
    odd = _with(FULL, gradient_accumulation_steps="auto", lora_rank="-1")
    assert step_time(odd) == step_time(FULL)


@pytest.mark.parametrize("field", [field.name for field in fields(Coefficients)])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_coefficients_refuse_what_no_rate_or_time_can_be(field, value):
    with pytest.raises(ValueError, match=field):
        Coefficients(**{field: value})


def test_overlap_above_one_is_refused():
    with pytest.raises(ValueError, match="overlap"):
        Coefficients(overlap=1.5)


@given(
    st.integers(0, 5),
    st.integers(0, 6),
    st.sampled_from([512, 2048, 8192]),
    st.sampled_from(list(Method)),
    st.sampled_from(["granite-3.1-2b", "mixtral-8x7b", "llama-3-70b"]),
    st.sampled_from(["t4", "l40s", "a100-80gb", "h100-80gb"]),
)
def test_a_larger_batch_takes_longer_and_runs_no_slower(power, extra, tokens, method, model, gpu):
    gpus = 2**power
    one = Configuration(
        model_name=model,
        method=method,
        gpu_model=gpu,
        gpus=gpus,
        nodes=max(1, gpus // 8),
        tokens_per_sample=tokens,
        batch_size=gpus * 2**extra,
    )
    small, large = step_time(one), step_time(replace(one, batch_size=2 * one.batch_size))
    assert small.communication_s >= 0
    assert large.step_s > small.step_s
    assert large.tokens_per_s >= small.tokens_per_s * (1 - 1e-9)
