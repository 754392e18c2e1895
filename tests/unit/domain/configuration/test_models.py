import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.models import UnknownModel, model_facts, model_names


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("granite-3.1-8b-instruct", "granite-3.1-8b"),
        ("granite-3b-code-base-128k", "granite-3b-code"),
        ("granite-13b-v2", "granite-13b"),
        ("ibm-granite/granite-4.0-tiny-preview", "granite-4.0-tiny"),
        ("NousResearch/Llama-2-70b-hf", "llama-2-70b"),
        ("LLAMA2-7B", "llama-2-7b"),
        ("Llama 2-13B", "llama-2-13b"),
        ("llama-7b", "llama-7b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("llama3.1-405b", "llama-3.1-405b"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ", "mixtral-8x7b"),
        ("mistral-7b-v0.2", "mistral-7b"),
        ("mistral-123b-v2", "mistral-123b"),
        ("bigcode/gpt_bigcode-santacoder", "santacoder"),
        ("qwen-1_8b-chat", "qwen-1.8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen-2.5-7b"),
        ("Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("gemma-2b", "gemma-2b"),
        ("google/gemma-2-2b-it", "gemma-2-2b"),
        ("stablelm-base-alpha-3b", "stablelm-alpha-3b"),
        ("tiny-llama", "tinyllama-1.1b"),
        ("bigscience/bloom-7b1", "bloom-7b"),
        ("gpt2-xl", "gpt-2-xl"),
    ],
)
def test_usual_spellings_name_the_same_published_model(spelling, name):
    facts = model_facts(spelling)
    assert (facts.name, facts.published) == (name, True)


def test_canonical_names_name_themselves():
    assert [model_facts(name).name for name in model_names()] == list(model_names())


def _weights(facts):
    """Attention, gated or plain feed-forward layers and embeddings, in two usual builds."""
    head = facts.hidden / facts.heads
    attention = facts.hidden * head * (2 * facts.heads + 2 * facts.kv_heads)
    gated = facts.layers * (attention + 3 * facts.hidden * facts.intermediate)
    plain = facts.layers * (attention + 2 * facts.hidden * facts.intermediate)
    embedding = facts.vocabulary * facts.hidden
    return [body + copies * embedding for body in (gated, plain) for copies in (0, 1, 2)]


def test_published_shapes_add_up_to_the_published_size():
    # Hybrids and latent attention have other layers than the sum below.
    others = ("-h-", "tiny", "moe-7b", "deepseek-v", "deepseek-r", "deepseek-moe", "gemma-3")
    off = {}
    for name in model_names():
        facts = model_facts(name)
        if any(part in name for part in others) or facts.active_parameters < facts.parameters:
            continue
        error = min(abs(weights / facts.parameters - 1) for weights in _weights(facts))
        if error > 0.08:
            off[name] = round(error, 3)
    assert off == {}


def test_unknown_mixture_is_sized_by_its_name():
    facts = model_facts("newcomer-8x7b")
    known = model_facts("mixtral-8x7b")
    assert facts.parameters == pytest.approx(known.parameters, rel=0.05)
    assert facts.active_parameters == pytest.approx(known.active_parameters, rel=0.05)
    assert not facts.published


def test_active_size_in_the_name_is_understood():
    facts = model_facts("newcomer-3b-a800m")
    assert (facts.parameters, facts.active_parameters) == (3_000_000_000, 800_000_000)


def test_a_size_that_runs_into_another_family_is_not_mistaken():
    assert model_facts("llama-27b").parameters == 27_000_000_000


@given(st.integers(min_value=10**7, max_value=10**12))
def test_given_size_is_kept_and_the_shape_follows_it(parameters):
    facts = model_facts("mystery", parameters)
    assert facts.parameters == facts.active_parameters == parameters
    assert facts.layers >= 2
    assert facts.hidden % facts.heads == 0
    if parameters >= 10**9:
        assert 12 * facts.layers * facts.hidden**2 == pytest.approx(parameters, rel=0.25)


@given(st.integers(1, 400), st.integers(1, 400))
def test_larger_inferred_models_are_not_shallower(one, other):
    small, large = sorted((one, other))
    assert model_facts(f"mystery-{small}b").layers <= model_facts(f"mystery-{large}b").layers


def test_given_size_overrules_the_catalogue_in_proportion():
    facts = model_facts("mixtral-8x7b", 23_351_500_000)
    assert facts.parameters == 23_351_500_000
    assert facts.active_parameters == pytest.approx(12_879_000_000 / 2, rel=1e-6)


@pytest.mark.parametrize("name", ["", "gpt-banana", "llama", "v2"])
def test_a_name_without_size_is_refused_with_what_was_expected(name):
    with pytest.raises(UnknownModel, match="model_parameters"):
        model_facts(name)
