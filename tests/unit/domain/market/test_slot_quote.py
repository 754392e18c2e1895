"""What is said of a price, believed or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.offering import UNKNOWN_COUNT, CapacityType, Quote
from spotline.domain.market.slot_quote import SlotQuote

prices = st.integers(1, 10**12)


@given(prices, prices, st.none() | prices, st.none() | prices)
def test_the_worst_price_is_the_dearest_that_is_said(
    spot: int, on_demand: int, doubted_spot: int | None, doubted_on_demand: int | None
) -> None:
    said = SlotQuote(
        quote=Quote(
            offering_id="a",
            ts_event_ns=0,
            spot_price_micro_usd=spot,
            on_demand_price_micro_usd=on_demand,
            spot_available=UNKNOWN_COUNT,
            on_demand_available=UNKNOWN_COUNT,
        ),
        age_s=0,
        quarantined_spot_price_micro_usd=doubted_spot or 0,
        quarantined_on_demand_price_micro_usd=doubted_on_demand or 0,
    )

    assert said.worst_price(CapacityType.SPOT) == max(spot, doubted_spot or spot)
    assert said.worst_price(CapacityType.ON_DEMAND) == max(
        on_demand, doubted_on_demand or on_demand
    )
    assert said.doubted == (doubted_spot is not None or doubted_on_demand is not None)
