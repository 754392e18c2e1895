"""Options that say which prices are believed, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.application.market_ingest.handler import IngestOptions
    from spotline.domain.market.grid import AnyMarket

PriceSanity = Annotated[
    bool,
    typer.Option(
        envvar="SPOTLINE_PRICE_SANITY",
        help="Buy no spot by a price that is not believed (docs/operating.md).",
    ),
]
ListPrices = Annotated[
    list[str] | None,
    typer.Option(
        "--list-price",
        metavar="OFFERING=USD",
        help="On-demand list price per instance-hour that prices are judged by; repeat for several.",
    ),
]
StaleAfter = Annotated[
    int,
    typer.Option(
        min=-1,
        metavar="SECONDS",
        envvar="SPOTLINE_STALE_AFTER_S",
        help="Buy no spot by quotes that are older, in market time; 0: by their own pace; -1: buy.",
    ),
]


def judged(
    ingest: IngestOptions, market: AnyMarket, said: tuple[bool, Sequence[str] | None, int]
) -> IngestOptions:
    """Slots that open as before, by the price sanity, list prices and age that options say.

    Raises
    ------
    ContractError
        A list price is none, or of no offering of the market; names the option.
    """
    price_sanity, list_prices, stale_after_s = said
    return replace(
        ingest,
        price_sanity=price_sanity,
        list_prices_micro_usd=_list_prices(list_prices or (), market),
        stale_after_s=None if stale_after_s < 0 else stale_after_s,
    )


def without_pause(*, price_sanity: bool) -> IngestOptions:
    """Slots that open as fast as they are decided, and quotes that age by their own pace."""
    from spotline.application.market_ingest.handler import IngestOptions

    return IngestOptions(price_sanity=price_sanity, stale_after_s=0)


def _list_prices(said: Sequence[str], market: AnyMarket) -> dict[str, int]:
    from spotline.adapters.market.parse import names, price_micro_usd

    known = sorted(o.offering_id for o in market.offerings if o.reservation is None)
    found: dict[str, int] = {}
    for text in said:
        offering_id, equals, usd = text.rpartition("=")
        if not equals or offering_id not in known:
            raise ContractError(
                "--list-price",
                f"expected OFFERING=USD of one of {names(known)}, found {text!r}",
            )
        found[offering_id] = price_micro_usd(usd, f"--list-price of {offering_id}")
    return found
