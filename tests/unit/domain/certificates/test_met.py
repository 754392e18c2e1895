"""The market that was met is bounded as the future of the law that it is, and by its own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.certificates.certificate import certify, foresight_of
from spotline.domain.certificates.met import bound_on_met
from tests.unit.domain.certificates.test_certificate import (
    SLOTS,
    all_futures,
    law,
    played,
    program,
    series_of,
    terms_of,
)


@pytest.mark.parametrize("hard", [False, True])
def test_a_market_that_goes_as_the_law_says_is_bounded_as_that_future(hard: bool) -> None:
    job, market = program(hard=hard), law()
    futures, _ = all_futures(market)
    foresight = foresight_of(terms_of(job, market))
    found = certify(foresight, futures)
    series = series_of(job, market, futures)

    for future in range(0, len(futures), 7):
        records = series.records(future * job.end_slots, job.end_slots)
        bound = bound_on_met(foresight, records)
        assert bound.ceiling_micro_usd == pytest.approx(found.penalised[future])
        assert bound.clairvoyant_micro_usd == pytest.approx(found.clairvoyant[future])
        assert bound.exact


@pytest.mark.parametrize("overhead_s", [0, 900])
def test_without_luck_nothing_that_was_decided_online_earns_more_than_the_bound(
    overhead_s: int,
) -> None:
    job, market = program(overhead_s=overhead_s), law()
    futures, _ = all_futures(market)
    foresight = foresight_of(terms_of(job, market))
    series = series_of(job, market, futures)
    lucky = 0

    for future, results in enumerate(played(job, market, futures)):
        records = series.records(future * job.end_slots, job.end_slots)
        for result in results:
            bound = bound_on_met(foresight, records, result.holdings)
            assert bound.luck_micro_usd == foresight.charged(futures, future, result.holdings)
            assert bound.missing_micro_usd(result.utility_micro_usd) >= -10
            lucky += result.utility_micro_usd > bound.ceiling_micro_usd + 10
    # It is luck that makes the difference: some earned more than the bound.
    assert lucky


def test_counts_and_prices_between_those_of_the_law_count_as_they_were() -> None:
    job, market = program(), law()
    futures, _ = all_futures(market)
    foresight = foresight_of(terms_of(job, market))
    records = series_of(job, market, futures).records(0, job.end_slots)

    def ceiling(**changes: int) -> float:
        return bound_on_met(
            foresight, [replace(record, **changes) for record in records]
        ).ceiling_micro_usd

    # One instance is of the level that has none by the law, three of the one that has two.
    assert ceiling(spot_available=1) > ceiling(spot_available=0)
    assert ceiling(spot_available=3) == ceiling(spot_available=2)
    assert ceiling(spot_price=190_000) > ceiling(spot_price=210_000)
    assert ceiling(on_demand_price=900_000, spot_price=180_000) > ceiling(spot_price=200_000)


def test_records_that_end_early_are_refused() -> None:
    job, market = program(), law()
    futures, _ = all_futures(market)
    foresight = foresight_of(terms_of(job, market))
    records = series_of(job, market, futures).records(0, SLOTS - 1)

    with pytest.raises(ValueError, match=f"records must reach {SLOTS} slots"):
        bound_on_met(foresight, records)
