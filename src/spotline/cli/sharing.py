"""Options that say how tenants share what is scarce."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotline.application.selector.options import SelectorOptions

Fairness = Annotated[
    float,
    typer.Option(
        envvar="SPOTLINE_FAIRNESS",
        help="The most that a tenant's bids count for having saved less; 1: all count the same.",
    ),
]
TenantShares = Annotated[
    str,
    typer.Option(
        envvar="SPOTLINE_TENANT_SHARES",
        metavar="TENANT=N,...",
        help="How much a tenant is due to save against others, which are due 1.",
    ),
]


Probes = Annotated[
    int,
    typer.Option(
        envvar="SPOTLINE_PROBES",
        min=0,
        help="Offerings without published counts to ask in a slot at most, where knowing pays.",
    ),
]


def shared(selection: SelectorOptions, fairness: float, tenant_shares: str) -> SelectorOptions:
    """The same with fairness between tenants.

    Raises
    ------
    ConfigError
        One of both is out of its range.
    """
    from spotline.contracts.errors import ConfigError

    try:
        return replace(selection, fairness=fairness, tenant_shares=tenant_shares)
    except ValueError as error:
        raise ConfigError(str(error)) from error
