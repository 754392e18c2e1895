"""What is publicly known of models: size and shape."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from spotline.domain.configuration.catalogue import read_catalogue


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
_SHAPE = ("layers", "hidden", "intermediate", "heads", "kv_heads", "vocabulary")
_HEAD_WIDTH = 128
_USUAL_VOCABULARY = 50_000


def _facts(name: str, row: Mapping[str, str]) -> ModelFacts:
    return ModelFacts(
        name=name,
        parameters=int(row["parameters_m"]) * 10**6,
        active_parameters=(int(row["active_m"]) or int(row["parameters_m"])) * 10**6,
        published=True,
        **{shape: int(row[shape]) for shape in _SHAPE},
    )


# Source: the models' published configurations and cards; sizes are in millions, active ones 0 where
# a token passes through all. Models of one shape and size share a row.
_CATALOGUE, _ALIASES = read_catalogue("models.csv", _facts)


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
