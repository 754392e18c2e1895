"""The market of a log: the file beside it where there is one, else what was observed, carried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spotline.adapters.market.parquet import write_market
from spotline.contracts.errors import ContractError
from spotline.domain.units import NS_PER_S
from spotline.replay.log_market import MARKET_FILE, carried_on, market_of_log
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=40)
OBSERVED = MARKET.between(0, 24)


def ends_ns(slots: int) -> int:
    return MARKET.start_ns + slots * MARKET.slot_s * NS_PER_S


def test_what_was_observed_is_enough_for_jobs_that_end_within_it(tmp_path: Path) -> None:
    known = market_of_log(tmp_path, OBSERVED, ends_ns(24))

    assert known.market is OBSERVED
    assert known.assumption == ""


def test_beyond_it_there_is_no_spot_and_that_is_said(tmp_path: Path) -> None:
    known = market_of_log(tmp_path, OBSERVED, ends_ns(27))

    assert (known.market.slots, known.assumed) == (27, 3)
    assert "3 slots before the last deadline" in known.assumption
    assert not known.market.spot_available[24:].any()
    assert np.array_equal(
        known.market.on_demand_price_micro_usd[24:],
        np.repeat(OBSERVED.on_demand_price_micro_usd[-1:], 3, axis=0),
    )
    assert np.array_equal(known.market.spot_available[:24], OBSERVED.spot_available)


def test_the_file_beside_the_log_says_what_came_later(tmp_path: Path) -> None:
    write_market(MARKET, tmp_path / MARKET_FILE)

    known = market_of_log(tmp_path, OBSERVED, ends_ns(27))

    assert known.assumption == ""
    assert np.array_equal(known.market.spot_available, MARKET.spot_available)


def test_another_markets_file_is_refused(tmp_path: Path) -> None:
    write_market(small_market(slots=40, seed=4), tmp_path / MARKET_FILE)

    with pytest.raises(ContractError, match=r"market\.parquet: expected the market .* another"):
        market_of_log(tmp_path, OBSERVED, ends_ns(24))


def test_a_file_that_ends_before_the_log_is_refused(tmp_path: Path) -> None:
    write_market(MARKET.between(0, 20), tmp_path / MARKET_FILE)

    with pytest.raises(ContractError, match="found another"):
        market_of_log(tmp_path, OBSERVED, ends_ns(20))


def test_quotes_of_slots_that_are_carried_on_are_as_old_as_they_are() -> None:
    longer = carried_on(OBSERVED, 2)

    assert np.array_equal(longer.quoted_ns[-1], OBSERVED.quoted_ns[-1])
