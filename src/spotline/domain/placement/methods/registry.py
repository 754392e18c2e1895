"""All placement methods by name. To add one: a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spotline.domain.placement.interface import PlacementMethod
from spotline.domain.placement.methods.bace_pipe import BacePipe
from spotline.domain.placement.methods.baselines import BASELINES
from spotline.domain.placement.methods.exact import Exact
from spotline.domain.placement.methods.spotline import Spotline

_ALL: tuple[PlacementMethod, ...] = (*BASELINES, BacePipe(), Spotline(), Exact())

METHODS: Mapping[str, PlacementMethod] = MappingProxyType(
    {method.method_id: method for method in _ALL}
)

DEFAULT_METHOD_ID = "spotline"


def method_named(method_id: str) -> PlacementMethod:
    """Return the placement method called `method_id`.

    Raises
    ------
    KeyError
        There is none; the message names those there are.
    """
    try:
        return METHODS[method_id]
    except KeyError:
        raise KeyError(
            f"unknown placement method {method_id!r}; expected one of {', '.join(METHODS)}"
        ) from None
