"""What is publicly known of models: size and shape."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A transformer's size and shape.

    `active_parameters` are those a token passes through (fewer than `parameters` in a mixture of
    experts). `published` says that the shape is the published one; otherwise it is inferred from
    the size, which is good to some tens of percent. `intermediate` is the width of the
    feed-forward layers a token passes through: in a mixture, that of its experts together.
    """

    name: str
    parameters: int
    active_parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    published: bool = True


class UnknownModel(ValueError):
    """Neither the catalogue nor the name says how large a model is."""


# Names; parameters in millions, active ones in millions (0: all); layers, hidden, intermediate,
# heads, key-value heads, vocabulary. Source: the models' published configurations and cards.
# Models of one shape and size share a row, each under a name of its own (` | ` parts them).
_TABLE = """
granite-3.0-8b | granite-3.1-8b | granite-3.2-8b | granite-3.3-8b | granite-3-8b; 8171 0; 40 4096 12800 32 8 49155
granite-3.0-2b | granite-3.1-2b | granite-3.2-2b | granite-3.3-2b | granite-3-2b; 2534 0; 40 2048 8192 32 8 49155
granite-3.0-1b-a400m | granite-3.1-1b-a400m; 1335 427; 24 1024 4096 16 8 49155
granite-3.0-3b-a800m | granite-3.1-3b-a800m | powermoe-3b; 3299 880; 32 1536 4096 24 8 49155
granite-4.0-350m; 352 0; 28 1024 2048 16 4 100352
granite-4.0-h-350m; 340 0; 32 768 2048 12 4 100352
granite-4.0-1b; 1632 0; 40 2048 4096 16 4 100352
granite-4.0-h-1b; 1462 0; 40 1536 4096 12 4 100352
granite-4.0-micro; 3403 0; 40 2560 8192 40 8 100352
granite-4.0-h-micro; 3191 0; 40 2048 8192 32 8 100352
granite-4.0-h-tiny | granite-4.0-tiny | moe-7b-1b-active-shared-experts; 6939 1000; 40 1536 4096 12 4 100352
granite-4.0-h-small; 32200 9000; 40 4096 9216 32 8 100352
granite-7b; 6738 0; 32 4096 11008 32 32 32008
granite-8b-japanese; 8050 0; 36 4096 14336 32 8 49152
granite-13b; 13000 0; 40 5632 22528 44 1 50304
granite-20b | granite-20b-code; 20073 0; 52 6144 24576 48 1 49152
granite-34b-code; 33653 0; 88 6144 24576 48 1 49152
granite-3b-code; 3483 0; 32 2560 10240 32 32 49152
granite-8b-code; 8055 0; 36 4096 14336 32 8 49152
powerlm-3b; 3514 0; 40 2304 9216 36 36 49152
allam-1-13b; 13300 0; 40 5120 13824 40 40 61248
llama-7b | llama-1-7b | vicuna-7b | alpaca-7b; 6738 0; 32 4096 11008 32 32 32000
llama-13b | llama-1-13b | vicuna-13b; 13016 0; 40 5120 13824 40 40 32000
llama-30b | llama-33b | llama-1-33b; 32529 0; 60 6656 17920 52 52 32000
llama-65b | llama-1-65b; 65286 0; 80 8192 22016 64 64 32000
llama-2-7b | codellama-7b; 6738 0; 32 4096 11008 32 32 32000
llama-2-13b | codellama-13b; 13016 0; 40 5120 13824 40 40 32000
codellama-34b; 33744 0; 48 8192 22016 64 8 32000
llama-2-70b | codellama-70b; 68977 0; 80 8192 28672 64 8 32000
llama-3-8b | llama-3.1-8b; 8030 0; 32 4096 14336 32 8 128256
llama-3-70b | llama-3.1-70b | llama-3.3-70b; 70554 0; 80 8192 28672 64 8 128256
llama-3.1-405b; 405853 0; 126 16384 53248 128 8 128256
llama-3.2-1b; 1236 0; 16 2048 8192 32 8 128256
llama-3.2-3b; 3213 0; 28 3072 8192 24 8 128256
tinyllama-1.1b; 1100 0; 22 2048 5632 32 4 32000
mistral-7b | zephyr-7b | openbuddy-zephyr-7b; 7242 0; 32 4096 14336 32 8 32000
mistral-nemo-12b; 12248 0; 40 5120 14336 32 8 131072
mistral-small-22b; 22247 0; 56 6144 16384 48 8 32768
mistral-small-24b; 23572 0; 40 5120 32768 32 8 131072
mistral-123b; 122610 0; 88 12288 28672 96 8 32768
mixtral-8x7b; 46703 12879; 32 4096 28672 32 8 32000
mixtral-8x22b; 140630 39150; 56 6144 32768 48 8 32768
qwen-1.8b | qwen-1.5-1.8b; 1837 0; 24 2048 5504 16 16 151936
qwen-7b | qwen-1.5-7b; 7721 0; 32 4096 11008 32 32 151936
qwen-14b | qwen-1.5-14b; 14167 0; 40 5120 13696 40 40 152064
qwen-72b | qwen-1.5-72b; 72288 0; 80 8192 24576 64 64 152064
qwen-1.5-0.5b; 464 0; 24 1024 2816 16 16 151936
qwen-1.5-4b; 3950 0; 40 2560 6912 20 20 151936
qwen-1.5-32b; 32512 0; 64 5120 27392 40 8 152064
qwen-1.5-110b; 111210 0; 80 8192 49152 64 8 152064
qwen-2-0.5b | qwen-2.5-0.5b; 494 0; 24 896 4864 14 2 151936
qwen-2-1.5b | qwen-2.5-1.5b; 1544 0; 28 1536 8960 12 2 151936
qwen-2-7b | qwen-2.5-7b | qwen-2.5-coder-7b; 7616 0; 28 3584 18944 28 4 152064
qwen-2-72b | qwen-2.5-72b; 72706 0; 80 8192 29568 64 8 152064
qwen-2.5-3b; 3086 0; 36 2048 11008 16 2 151936
qwen-2.5-14b; 14770 0; 48 5120 13824 40 8 152064
qwen-2.5-32b; 32764 0; 64 5120 27648 40 8 152064
qwen-3-0.6b; 596 0; 28 1024 3072 16 8 151936
qwen-3-1.7b; 1721 0; 28 2048 6144 16 8 151936
qwen-3-4b; 4022 0; 36 2560 9728 32 8 151936
qwen-3-8b; 8191 0; 36 4096 12288 32 8 151936
qwen-3-14b; 14768 0; 40 5120 17408 40 8 151936
qwen-3-32b; 32762 0; 64 5120 25600 64 8 151936
qwen-3-30b-a3b; 30532 3345; 48 2048 6144 32 4 151936
falcon-7b; 6922 0; 32 4544 18176 71 1 65024
falcon-40b; 41303 0; 60 8192 32768 128 8 65024
falcon-180b; 179522 0; 80 14848 59392 232 8 65024
phi-1 | phi-1.5; 1418 0; 24 2048 8192 32 32 51200
phi-2; 2780 0; 32 2560 10240 32 32 51200
phi-3-mini | phi-3.5-mini; 3821 0; 32 3072 8192 32 32 32064
phi-3-medium; 13960 0; 40 5120 17920 40 10 32064
phi-4; 14660 0; 40 5120 17920 40 10 100352
gemma-2b; 2506 0; 18 2048 16384 8 1 256000
gemma-7b; 8538 0; 28 3072 24576 16 16 256000
gemma-2-2b; 2614 0; 26 2304 9216 8 4 256000
gemma-2-9b; 9242 0; 42 3584 14336 16 8 256000
gemma-2-27b; 27227 0; 46 4608 36864 32 16 256000
gemma-3-1b; 1000 0; 26 1152 6912 4 1 262144
gemma-3-4b; 4300 0; 34 2560 10240 8 4 262144
gemma-3-12b; 12187 0; 48 3840 15360 16 8 262144
gemma-3-27b; 27432 0; 62 5376 21504 32 16 262144
gpt-2; 124 0; 12 768 3072 12 12 50257
gpt-2-medium; 355 0; 24 1024 4096 16 16 50257
gpt-2-large; 774 0; 36 1280 5120 20 20 50257
gpt-2-xl; 1558 0; 48 1600 6400 25 25 50257
santacoder; 1124 0; 24 2048 8192 16 1 49280
starcoder; 15518 0; 40 6144 24576 48 1 49152
starcoder-2-3b; 3030 0; 30 3072 12288 24 2 49152
starcoder-2-7b; 7174 0; 32 4608 18432 36 4 49152
starcoder-2-15b; 15958 0; 40 6144 24576 48 4 49152
gpt-j-6b; 6053 0; 28 4096 16384 16 16 50400
gpt-neox-20b; 20555 0; 44 6144 24576 64 64 50432
opt-125m; 125 0; 12 768 3072 12 12 50272
opt-350m; 331 0; 24 1024 4096 16 16 50272
opt-1.3b; 1316 0; 24 2048 8192 32 32 50272
opt-2.7b; 2652 0; 32 2560 10240 32 32 50272
opt-6.7b; 6658 0; 32 4096 16384 32 32 50272
opt-13b; 12853 0; 40 5120 20480 40 40 50272
opt-30b; 29975 0; 48 7168 28672 56 56 50272
opt-66b; 65719 0; 64 9216 36864 72 72 50272
bloom-560m; 559 0; 24 1024 4096 16 16 250880
bloom-7b; 7069 0; 30 4096 16384 32 32 250880
bloom-176b | bloom; 176247 0; 70 14336 57344 112 112 250880
mpt-7b; 6649 0; 32 4096 16384 32 32 50432
mpt-30b; 29966 0; 48 7168 28672 64 64 50432
stablelm-alpha-3b; 3637 0; 16 4096 16384 32 32 50688
stablelm-alpha-7b; 7869 0; 16 6144 24576 48 48 50432
stablelm-3b; 2795 0; 32 2560 6912 32 32 50304
stablelm-2-1.6b; 1645 0; 24 2048 5632 32 32 100352
stablelm-2-12b; 12143 0; 40 5120 13824 32 8 100352
pythia-70m; 70 0; 6 512 2048 8 8 50304
pythia-160m; 162 0; 12 768 3072 12 12 50304
pythia-410m; 405 0; 24 1024 4096 16 16 50304
pythia-1b; 1012 0; 16 2048 8192 8 8 50304
pythia-1.4b; 1415 0; 24 2048 8192 16 16 50304
pythia-2.8b; 2775 0; 32 2560 10240 32 32 50304
pythia-6.9b; 6857 0; 32 4096 16384 32 32 50432
pythia-12b; 11846 0; 36 5120 20480 40 40 50688
chatglm-6b; 6173 0; 28 4096 16384 32 32 130528
chatglm-2-6b | chatglm-3-6b; 6244 0; 28 4096 13696 32 2 65024
glm-4-9b; 9400 0; 40 4096 13696 32 2 151552
baichuan-7b; 7000 0; 32 4096 11008 32 32 64000
baichuan-13b; 13265 0; 40 5120 13696 40 40 64000
baichuan-2-7b; 7506 0; 32 4096 11008 32 32 125696
baichuan-2-13b; 13897 0; 40 5120 13696 40 40 125696
internlm-7b; 7322 0; 32 4096 11008 32 32 103168
internlm-20b; 20096 0; 60 5120 13824 40 40 103168
internlm-2-7b | internlm-2.5-7b; 7738 0; 32 4096 14336 32 8 92544
internlm-2-20b; 19861 0; 48 6144 16384 48 8 92544
yi-6b | yi-1.5-6b; 6061 0; 32 4096 11008 32 4 64000
yi-9b | yi-1.5-9b; 8829 0; 48 4096 11008 32 4 64000
yi-34b | yi-1.5-34b; 34389 0; 60 7168 20480 56 8 64000
deepseek-7b | deepseek-llm-7b; 6910 0; 30 4096 11008 32 32 102400
deepseek-67b | deepseek-llm-67b; 67425 0; 95 8192 22016 64 8 102400
deepseek-coder-1.3b; 1346 0; 24 2048 5504 16 16 32256
deepseek-coder-6.7b; 6740 0; 32 4096 11008 32 32 32256
deepseek-coder-33b; 33343 0; 62 7168 19200 56 8 32256
deepseek-moe-16b; 16376 2830; 28 2048 11264 16 16 102400
deepseek-v-2-lite; 15706 2660; 27 2048 11264 16 16 102400
deepseek-v-2; 235741 21380; 60 5120 12288 128 128 102400
deepseek-v-3 | deepseek-r-1; 671026 37550; 61 7168 18432 128 128 129280
smollm-2-135m | smollm-135m; 135 0; 30 576 1536 9 3 49152
smollm-2-360m | smollm-360m; 362 0; 32 960 2560 15 5 49152
smollm-2-1.7b | smollm-1.7b; 1711 0; 24 2048 8192 32 32 49152
"""

# Names that do not come out of the spelling rules below.
_ALIASES = {
    "bloom-7.1b": "bloom-7b",
    "bloomz-7.1b": "bloom-7b",
    "gpt-bigcode-santacoder": "santacoder",
    "granite-4.0-tiny-preview": "granite-4.0-tiny",
    "mistral-large": "mistral-123b",
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-small": "mistral-small-24b",
    "phi-1.5-1.3b": "phi-1.5",
    "phi-3-mini-3.8b": "phi-3-mini",
    "stablelm-3b-4e-1t": "stablelm-3b",
    "stablelm-base-alpha-3b": "stablelm-alpha-3b",
    "tiny-llama": "tinyllama-1.1b",
    "tiny-llama-1.1b": "tinyllama-1.1b",
    "tinyllama": "tinyllama-1.1b",
}

# Words that tell tunings, formats and context lengths apart, not shapes.
# fmt: off
_NOISE = frozenset({
    "hf", "instruct", "chat", "base", "it", "sft", "dpo", "gptq", "awq", "gguf", "bnb",
    "int4", "int8", "bit", "meta", "ibm", "preview", "fp16", "bf16", "float16", "bfloat16",
    "beta",
})
# fmt: on
_SIZE = r"(?:\d+x)?\d+(?:\.\d+)?[bm](?![a-z0-9])"
_WORD = re.compile(rf"{_SIZE}|a\d+(?:\.\d+)?[bm](?![a-z])|\d+k(?![a-z])|\d+(?:\.\d+)*|[a-z]+")
_VERSION_AFTER_SIZE = re.compile(rf"((?<![a-z0-9.]){_SIZE}.*?)[-_ ]v\d+(?:\.\d+)*(?![a-z0-9])")
_MIXTURE = re.compile(r"(\d+)x(\d+(?:\.\d+)?)([bm])")
_PLAIN_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bm])")
_ACTIVE_SIZE = re.compile(r"a(\d+(?:\.\d+)?)([bm])")
_UNIT = {"b": 10**9, "m": 10**6}

# Share of a dense model's weights that a mixture repeats per expert (Mixtral 8x7B: 5.64 of 7.24
# billion are feed-forward).
_EXPERT_SHARE = 0.78
_EXPERTS_PER_TOKEN = 2

# Depth of published models by size, interpolated between on a logarithmic scale.
_DEPTH_BY_PARAMETERS = (
    (1e8, 12.0),
    (3.5e8, 24.0),
    (1.3e9, 24.0),
    (3e9, 30.0),
    (7e9, 32.0),
    (1.3e10, 40.0),
    (3.4e10, 58.0),
    (7e10, 80.0),
    (4e11, 120.0),
)
_HEAD_WIDTH = 128
_USUAL_VOCABULARY = 50_000


def _catalogue() -> dict[str, ModelFacts]:
    facts: dict[str, ModelFacts] = {}
    for line in _TABLE.strip().splitlines():
        names, sizes, shape = (part.strip() for part in line.split(";"))
        parameters, active = (int(size) * 10**6 for size in sizes.split())
        layers, hidden, intermediate, heads, kv_heads, vocabulary = map(int, shape.split())
        for name in names.split(" | "):
            facts[name] = ModelFacts(
                name=name,
                parameters=parameters,
                active_parameters=active or parameters,
                layers=layers,
                hidden=hidden,
                intermediate=intermediate,
                heads=heads,
                kv_heads=kv_heads,
                vocabulary=vocabulary,
            )
    return facts


_CATALOGUE = _catalogue()


def model_names() -> tuple[str, ...]:
    """All models whose shape is known, sorted by canonical name."""
    return tuple(sorted(_CATALOGUE))


@lru_cache(maxsize=65536)
def model_facts(name: str, parameters: int = 0) -> ModelFacts:
    """Look a model up by any usual spelling of its name, else infer it from its size.

    Parameters
    ----------
    name
        Such as `granite-3.1-8b-instruct`, `meta-llama/Llama-2-7b-hf`.
    parameters
        Its size where the caller knows it, 0 otherwise; overrules the catalogue's.

    Raises
    ------
    UnknownModel
        The name is not in the catalogue, holds no size such as `7b`, and none is given.
    """
    if parameters < 0:
        raise UnknownModel(f"parameters must be >= 0, was {parameters}")
    words = _words(name)
    spelled = "-".join(words)
    spelled = _ALIASES.get(spelled, spelled)
    found = _CATALOGUE.get(spelled)
    if found is not None:
        return found if not parameters else _scaled(found, parameters)
    total, active = _sizes(words)
    if parameters:
        active = round(parameters * active / total) if total else parameters
        total = parameters
    if not total:
        raise UnknownModel(
            f"model_name must be a known model (such as llama-3.1-8b, granite-3.1-2b, "
            f"mixtral-8x7b), or hold its size (such as 7b, 350m, 8x7b, 3b-a800m), or come with "
            f"model_parameters, was {name!r}"
        )
    return _inferred(spelled or name, total, active)


def _words(name: str) -> list[str]:
    text = name.strip().lower().rpartition("/")[2]
    text = re.sub(r"(?<=\d)[_p](?=\d)", ".", text)
    text = re.sub(r"(?<=\d)b(\d)(?![a-z0-9])", r".\1b", text)
    text = _VERSION_AFTER_SIZE.sub(r"\1", text)
    words = _WORD.findall(text)
    return [word for word in words if word not in _NOISE and not _says_context_or_date(word)]


def _says_context_or_date(word: str) -> bool:
    return re.fullmatch(r"\d+k|\d{4}", word) is not None


def _sizes(words: list[str]) -> tuple[int, int]:
    """Parameters and active parameters that a name's words say, 0 where they do not."""
    total = active = 0
    for word in words:
        mixture = _MIXTURE.fullmatch(word)
        if mixture is not None and not total:
            one = float(mixture[2]) * _UNIT[mixture[3]]
            experts = int(mixture[1])
            total = round(one * (1 + (experts - 1) * _EXPERT_SHARE))
            active = round(one * (1 + (min(experts, _EXPERTS_PER_TOKEN) - 1) * _EXPERT_SHARE))
            continue
        plain = _PLAIN_SIZE.fullmatch(word)
        if plain is not None and not total:
            total = round(float(plain[1]) * _UNIT[plain[2]])
        part = _ACTIVE_SIZE.fullmatch(word)
        if part is not None and not active:
            active = round(float(part[1]) * _UNIT[part[2]])
    return total, min(active or total, total)


def _scaled(facts: ModelFacts, parameters: int) -> ModelFacts:
    if parameters == facts.parameters:
        return facts
    active = max(1, round(facts.active_parameters * parameters / facts.parameters))
    return replace(facts, parameters=parameters, active_parameters=active)


def _inferred(name: str, parameters: int, active: int) -> ModelFacts:
    """A usual shape: feed-forward width 8/3 of hidden, so 12 layers * hidden^2 weights."""
    layers = max(2, round(_depth(active)))
    hidden = math.sqrt(active / (12 * layers))
    hidden = max(_HEAD_WIDTH, _HEAD_WIDTH * round(hidden / _HEAD_WIDTH))
    heads = int(hidden) // _HEAD_WIDTH
    return ModelFacts(
        name=name,
        parameters=parameters,
        active_parameters=active,
        layers=layers,
        hidden=int(hidden),
        intermediate=round(hidden * 8 / 3),
        heads=heads,
        kv_heads=min(heads, 8),
        vocabulary=_USUAL_VOCABULARY,
        published=False,
    )


def _depth(parameters: int) -> float:
    points = _DEPTH_BY_PARAMETERS
    if parameters <= points[0][0]:
        return points[0][1]
    for (low, low_depth), (high, high_depth) in pairwise(points):
        if parameters <= high:
            share = math.log(parameters / low) / math.log(high / low)
            return low_depth + share * (high_depth - low_depth)
    return points[-1][1]
