"""Job files as `spotline simulate` takes them: at the market's first slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.adapters.market.parquet import write_market
from spotline.cli.simulate_inputs import simulation_inputs
from spotline.contracts.errors import ContractError
from spotline.domain.units import NS_PER_S, cost_micro_usd
from tests.fakes.recorded_run import small_market

FILE = """
tenant: research
work: 8 instance_hours
deadline: {hard: 12h}
instances: {min: 1, max: 4}
throughput: {"*": {alpha_per_hour: 1}}
"""


def read(tmp_path: Path, text: str):
    market = small_market(slots=96)
    write_market(market, tmp_path / "market.parquet")
    (tmp_path / "job.yaml").write_text(text)
    _, jobs, _ = simulation_inputs(
        str(tmp_path / "market.parquet"),
        None,
        str(tmp_path / "job.yaml"),
        seed=0,
        slot_s=0,
        reservations=None,
    )
    return market, jobs


def test_a_while_counts_from_the_first_slot_and_its_prices_are_quoted(tmp_path: Path) -> None:
    market, (job,) = read(tmp_path, FILE)

    assert job.deadline.at_ns == market.start_ns + 12 * 3600 * NS_PER_S
    by_hand = []
    for count in job.allowed_counts:
        slots = -(-(8 * 3600 // count + job.overheads.launch_s) // market.slot_s)
        if slots * market.slot_s <= 12 * 3600:
            by_hand += [
                slots * cost_micro_usd(int(price), count, market.slot_s)
                for price in market.on_demand_price_micro_usd[0]
            ]
    assert job.on_demand_quote_micro_usd == min(by_hand)
    assert job.value_micro_usd == job.budget_micro_usd == -(-min(by_hand) * 3 // 2)


def test_a_stated_value_is_left_as_it_is(tmp_path: Path) -> None:
    _, (job,) = read(tmp_path, FILE + "value_usd: 3\n")

    assert (job.value_micro_usd, job.on_demand_quote_micro_usd) == (3_000_000, 0)


def test_without_a_value_a_deadline_that_cannot_be_met_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"--jobs, .*cannot be met"):
        read(tmp_path, FILE.replace("12h", "1h"))
