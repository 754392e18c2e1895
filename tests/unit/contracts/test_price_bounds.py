"""A price that nothing costs is a breach of the contract, which names its field."""

from __future__ import annotations

import pytest

from spotline.api.v1 import market_pb2
from spotline.contracts.codec import decode
from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD

PRICES = {"spot_price_micro_usd": 1_000_000, "on_demand_price_micro_usd": 4_000_000}


def quote(**changed: int) -> market_pb2.Quote:
    count = market_pb2.Count(provenance=market_pb2.PROVENANCE_UNKNOWN)
    return market_pb2.Quote(
        offering_id="a", spot_available=count, on_demand_available=count, **(PRICES | changed)
    )


@pytest.mark.parametrize("field", list(PRICES))
@pytest.mark.parametrize("price", [2**63 - 1, MOST_PRICE_MICRO_USD + 1, -1])
def test_a_quote_is_a_dead_letter_that_names_the_field(field: str, price: int) -> None:
    said = market_pb2.QuoteObserved(quote=quote(**{field: price}))

    with pytest.raises(ContractError, match=field):
        decode("market.quote", said.SerializeToString())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quarantined_spot_price_micro_usd", 2**63 - 1),
        ("quarantined_on_demand_price_micro_usd", -1),
        ("age_s", -1),
    ],
)
def test_a_slot_is_a_dead_letter_that_names_the_field(field: str, value: int) -> None:
    quoted = market_pb2.SlotQuote(quote=quote(), **{field: value})
    said = market_pb2.SlotOpened(slot=1, slot_s=600, quotes=[quoted])

    with pytest.raises(ContractError, match=field):
        decode("market.slot", said.SerializeToString())


def test_the_dearest_price_there_is_may_be_said() -> None:
    said = market_pb2.QuoteObserved(quote=quote(spot_price_micro_usd=MOST_PRICE_MICRO_USD))

    assert decode("market.quote", said.SerializeToString())
