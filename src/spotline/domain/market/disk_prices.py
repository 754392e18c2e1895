"""Prices of instances with their disks: what an instance-hour costs in all.

Sources quote instances alone. Whatever is decided, limited or held against on-demand goes by what
slots show, and that has the disks in it; what is listed stands beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering
from spotline.domain.market.slot_quote import SlotQuote


def with_disk_prices(
    offerings: Sequence[Offering], quotes: Sequence[SlotQuote]
) -> tuple[SlotQuote, ...]:
    """Add to a slot's prices what disks cost; the same quotes where no offering has any.

    Parameters
    ----------
    quotes
        One for each of `offerings`, in their order.
    """
    return tuple(
        _with_disks(quoted, offering) for offering, quoted in zip(offerings, quotes, strict=True)
    )


def priced_with_disks(market: Market) -> Market:
    """The same market at prices with disks, as slots would show them; itself where none has any.

    A market that was read from a log's slots has them already.
    """
    rates = [offering.disk_micro_usd_per_hour for offering in market.offerings]
    if not any(rates):
        return market
    reserved = [offering.reservation is not None for offering in market.offerings]
    on_demand = np.array(rates, dtype=np.int64)
    return replace(
        market,
        spot_price_micro_usd=market.spot_price_micro_usd + np.where(reserved, 0, on_demand),
        on_demand_price_micro_usd=market.on_demand_price_micro_usd + on_demand,
    )


def _with_disks(quoted: SlotQuote, offering: Offering) -> SlotQuote:
    rate = offering.disk_micro_usd_per_hour
    if not rate or quoted.unquoted:
        return quoted
    quote, listed = quoted.quote, quoted.listed
    if offering.reservation is not None:
        # It has no spot, and nothing of it is listed.
        return replace(quoted, quote=replace(quote, on_demand_price_micro_usd=rate))
    return replace(
        quoted,
        quote=replace(
            quote,
            spot_price_micro_usd=quote.spot_price_micro_usd + rate,
            on_demand_price_micro_usd=quote.on_demand_price_micro_usd + rate,
        ),
        listed_spot_price_micro_usd=listed.spot_price_micro_usd,
        listed_on_demand_price_micro_usd=listed.on_demand_price_micro_usd,
    )
