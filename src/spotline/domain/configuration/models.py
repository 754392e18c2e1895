"""What is publicly known of models: size and shape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A transformer's size and shape.

    `active_parameters` are those a token passes through (fewer than `parameters` in a mixture of
    experts). `published` says that the shape is the published one; otherwise it is inferred from
    the size, which is good to some tens of percent.
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
    raise NotImplementedError
