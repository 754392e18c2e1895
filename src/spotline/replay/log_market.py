"""The market of a recorded log, as far as it is known: what-ifs may last longer than the run did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spotline.adapters.market.parquet import read_market
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import INFERRED, IntArray, Market
from spotline.domain.units import NS_PER_S

MARKET_FILE = "market.parquet"
"""In a log's directory: the whole market that the run was on, where whoever recorded it had that."""

_COMPARED = (
    *("spot_price_micro_usd", "on_demand_price_micro_usd"),
    *("spot_available", "on_demand_available"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMarket:
    """A market that covers the lives of a log's jobs; the last `assumed` slots are an assumption."""

    market: Market
    assumed: int = 0

    @property
    def assumption(self) -> str:
        """What is assumed, empty for nothing."""
        if not self.assumed:
            return ""
        return (
            f"the log ends {self.assumed} slots before the last deadline: in these there is no "
            "spot, and on-demand at its last price"
        )


def market_of_log(directory: Path, observed: Market, until_ns: int) -> LogMarket:
    """Choose the market file beside the log, or what was observed, carried on to `until_ns`.

    Parameters
    ----------
    observed
        The market as the log's slots told it.

    Raises
    ------
    ContractError
        The file is no market, or another one than the log's.
    """
    path = directory / MARKET_FILE
    market = observed
    if path.exists():
        market = _whole(path, observed)
    end_ns = market.start_ns + market.slots * market.slot_s * NS_PER_S
    missing = -(-(until_ns - end_ns) // (market.slot_s * NS_PER_S))
    if missing <= 0:
        return LogMarket(market=market)
    return LogMarket(market=carried_on(market, missing), assumed=missing)


def carried_on(market: Market, slots: int) -> Market:
    """The market with so many slots more: no spot in them, on-demand as in its last slot."""

    def more(values: IntArray) -> IntArray:
        return np.concatenate([values, np.repeat(values[-1:], slots, axis=0)])

    none = np.zeros((slots, len(market.offerings)), dtype=np.int64)
    return replace(
        market,
        spot_price_micro_usd=more(market.spot_price_micro_usd),
        on_demand_price_micro_usd=more(market.on_demand_price_micro_usd),
        spot_available=np.concatenate([market.spot_available, none]),
        spot_provenance=np.concatenate([market.spot_provenance, none + INFERRED]),
        on_demand_available=more(market.on_demand_available),
        on_demand_provenance=more(market.on_demand_provenance),
        quoted_ns=more(market.quoted_ns),
    )


def _whole(path: Path, observed: Market) -> Market:
    market = read_market(path)
    if not _begins_with(market, observed):
        raise ContractError(
            str(path), "expected the market that the log beside it was recorded on, found another"
        )
    return market


def _begins_with(market: Market, observed: Market) -> bool:
    """Whether what was observed is how the market begins; what left it in between aside."""
    columns = {offering.offering_id: k for k, offering in enumerate(market.offerings)}
    wanted = [offering.offering_id for offering in observed.offerings]
    if (
        (market.slot_s, market.start_ns) != (observed.slot_s, observed.start_ns)
        or market.slots < observed.slots
        or not set(wanted) <= columns.keys()
    ):
        return False
    chosen = [columns[offering_id] for offering_id in wanted]
    return all(
        np.array_equal(getattr(market, name)[: observed.slots, chosen], getattr(observed, name))
        for name in _COMPARED
    )
