"""Spot prices beside a bill, and list prices for machines whose bill names none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spotline.adapters.bills.machines import gpus_of
from spotline.adapters.market.instance_types import (
    INSTANCE_TYPES,
    US_LIST_PRICE_REGIONS,
    aws_region,
)
from spotline.adapters.market.price_history import read_price_history
from spotline.domain.assessment.facts import HiredMachine, SpotPriceSeries
from spotline.domain.assessment.rebuild import Prices
from spotline.domain.units import NS_PER_S, micro_usd_from_usd


def read_spot_prices(path: Path) -> Sequence[SpotPriceSeries]:
    """Read the output of `aws ec2 describe-spot-price-history`, or our CSV of it.

    Raises
    ------
    ContractError
        An entry or field breaks the format, or there is no price; names file, entry and field.
    """
    return tuple(
        SpotPriceSeries(
            machine=HiredMachine(
                provider="aws",
                region=aws_region(zone),
                zone=zone,
                instance_type=kind,
                gpus=gpus_of(kind),
            ),
            times_s=tuple(int(at) // NS_PER_S for at in series.ts_ns),
            prices_micro=tuple(map(int, series.values)),
        )
        for (kind, zone), series in read_price_history([path]).items()
    )


def known_list_prices() -> Prices:
    """On-demand list prices that the table of instance types has, micro-USD per instance-hour."""
    return {
        ("aws", region, name): micro_usd_from_usd(known.us_list_price_usd)
        for name, known in INSTANCE_TYPES.items()
        if known.us_list_price_usd is not None
        for region in sorted(US_LIST_PRICE_REGIONS)
    }
