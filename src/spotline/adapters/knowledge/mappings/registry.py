"""The kinds of tables that can be imported. A new one is a module here and a line below."""

from __future__ import annotations

from spotline.adapters.knowledge.mapping import Mapping
from spotline.adapters.knowledge.mappings import (
    fms_acceleration,
    litgpt,
    ms_swift,
    nemo,
    sfttrainer,
    vectorlm,
)
from spotline.contracts.errors import ContractError

_MAPPINGS = (
    sfttrainer.MAPPING,
    fms_acceleration.MAPPING,
    fms_acceleration.MIXTURE_MAPPING,
    litgpt.MAPPING_2023,
    litgpt.MAPPING_HUB,
    ms_swift.MAPPING,
    nemo.MAPPING,
    vectorlm.MAPPING,
)

# Of a header that is none: it may be a page of text.
_SHOWN_CHARACTERS = 300


def mapping_names() -> tuple[str, ...]:
    """All formats, sorted."""
    return tuple(sorted(mapping.name for mapping in _MAPPINGS))


def mapping_named(name: str) -> Mapping:
    """Look a format up; `ContractError` where there is none of this name."""
    for mapping in _MAPPINGS:
        if mapping.name == name:
            return mapping
    raise ContractError("--format", f"expected one of {', '.join(mapping_names())}, found {name}")


def mapping_for(header: frozenset[str], where: str) -> Mapping:
    """The format whose columns are all in `header`; the most specific one of several.

    Raises
    ------
    ContractError
        No format has its columns there; says what is missing for the nearest.
    """
    matching = [mapping for mapping in _MAPPINGS if mapping.required <= header]
    if matching:
        return max(matching, key=lambda mapping: (len(mapping.required), mapping.name))
    nearest = min(_MAPPINGS, key=lambda m: (len(m.required - header) / len(m.required), m.name))
    missing = ", ".join(sorted(nearest.required - header))
    found = ", ".join(sorted(header))[:_SHOWN_CHARACTERS] or "nothing"
    raise ContractError(
        where,
        f"expected the columns of a known format ({', '.join(mapping_names())}), found "
        f"{found}; for {nearest.name} it lacks {missing}",
    )
