from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.configuration import Configuration, Method, MethodOption
from spotline.domain.configuration.memory import MemoryAssumptions, gpu_memory
from spotline.domain.configuration.models import model_facts

FULL = Configuration(
    model_name="granite-3.1-8b",
    method=Method.FULL,
    gpu_model="a100-80gb",
    gpus=1,
    nodes=1,
    tokens_per_sample=2048,
    batch_size=1,
)
PLAIN = MemoryAssumptions(fragmentation=1.0, overhead_gb=0.0)


def _with(configuration, **options):
    given_options = tuple(
        MethodOption(name=name, value=value) for name, value in sorted(options.items())
    )
    return replace(configuration, options=given_options)


def test_full_tuning_in_16_bits_holds_eight_bytes_a_parameter():
    memory = gpu_memory(FULL, PLAIN)
    held = memory.weights_gb + memory.optimiser_gb + memory.gradients_gb
    assert held == pytest.approx(8 * model_facts("granite-3.1-8b").parameters / 1e9)


def test_mixed_precision_holds_twenty_bytes_a_parameter():
    memory = gpu_memory(FULL, replace(PLAIN, mixed_precision=True))
    held = memory.weights_gb + memory.optimiser_gb + memory.gradients_gb
    assert held == pytest.approx(20 * model_facts("granite-3.1-8b").parameters / 1e9)
    assert not memory.fits


def test_sharding_splits_weights_and_states_but_replicas_do_not():
    eight = replace(FULL, gpus=8, batch_size=8)
    sharded, alone = gpu_memory(eight, PLAIN), gpu_memory(FULL, PLAIN)
    replicated = gpu_memory(_with(eight, placement="replicated"), PLAIN)
    assert sharded.optimiser_gb == pytest.approx(alone.optimiser_gb / 8)
    assert sharded.activations_gb == pytest.approx(alone.activations_gb)
    assert replicated.total_gb == pytest.approx(alone.total_gb)


def test_adapters_need_less_than_full_tuning_and_quantised_ones_least():
    full = gpu_memory(FULL).total_gb
    lora = gpu_memory(replace(FULL, method=Method.LORA)).total_gb
    qlora = gpu_memory(replace(FULL, method=Method.QLORA)).total_gb
    assert qlora < lora < full / 2


def test_recomputation_saves_activations():
    keeping = gpu_memory(_with(FULL, gradient_checkpointing="false"))
    recomputing = gpu_memory(_with(FULL, gradient_checkpointing="true"))
    assert keeping.activations_gb > 5 * recomputing.activations_gb


def test_accumulated_micro_batches_hold_one_at_a_time():
    whole = gpu_memory(replace(FULL, batch_size=8))
    parts = gpu_memory(_with(replace(FULL, batch_size=8), gradient_accumulation_steps="8"))
    assert parts.activations_gb == pytest.approx(whole.activations_gb / 8)


@pytest.mark.parametrize(
    ("model", "method", "gpu", "gpus", "fits"),
    [
        ("llama-2-7b", Method.FULL, "a100-80gb", 1, True),
        ("mixtral-8x7b", Method.FULL, "a100-80gb", 1, False),
        ("llama-2-70b", Method.LORA, "a100-80gb", 1, False),
        ("llama-2-70b", Method.QLORA, "a100-80gb", 1, True),
        ("llama-2-7b", Method.FULL, "t4", 1, False),
        ("llama-2-70b", Method.FULL, "h100-80gb", 16, True),
    ],
)
def test_verdicts_that_everybody_knows(model, method, gpu, gpus, fits):
    configuration = replace(
        FULL, model_name=model, method=method, gpu_model=gpu, gpus=gpus, batch_size=gpus
    )
    assert gpu_memory(configuration).fits is fits


@given(
    st.integers(0, 6), st.sampled_from([512, 1024, 2048, 4096, 8192]), st.sampled_from(list(Method))
)
def test_more_samples_or_longer_ones_never_need_less(power, tokens, method):
    one = replace(FULL, method=method, batch_size=2**power, tokens_per_sample=tokens)
    base = gpu_memory(one).total_gb
    assert base > 0
    assert gpu_memory(replace(one, batch_size=2 ** (power + 1))).total_gb >= base
    assert gpu_memory(replace(one, tokens_per_sample=2 * tokens)).total_gb >= base
