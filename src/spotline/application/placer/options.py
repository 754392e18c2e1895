"""The placer's options, and the names that they may hold."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.placement.interface import CostBasis, PlacementMethod
from spotline.domain.placement.methods.registry import DEFAULT_METHOD_ID, method_named


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerOptions:
    """Who places, what counts as cost, and whether running jobs move where that pays.

    `method` is a name of the registry, `cost` one of `CostBasis`: `energy` or `rent`.

    Raises
    ------
    ValueError
        There is no such method or cost.
    """

    method: str = DEFAULT_METHOD_ID
    cost: str = CostBasis.ENERGY.value
    moves: bool = True

    def __post_init__(self) -> None:
        named_method(self.method)
        named_basis(self.cost)

    @property
    def basis(self) -> CostBasis:
        """What counts as cost."""
        return named_basis(self.cost)


def named_method(name: str) -> PlacementMethod:
    """The placement method of this name; `ValueError` lists those there are."""
    try:
        return method_named(name)
    except KeyError as error:
        raise ValueError(f"method: {error.args[0]}") from error


def named_basis(name: str) -> CostBasis:
    """The cost basis of this name; `ValueError` lists those there are."""
    try:
        return CostBasis(name)
    except ValueError:
        known = ", ".join(basis.value for basis in CostBasis)
        raise ValueError(f"cost must be one of {known}, was {name!r}") from None
