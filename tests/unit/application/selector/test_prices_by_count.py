"""Shadow prices by count: on where a log's manifest says so, and else as before."""

from __future__ import annotations

from typing import Any

from spotline.application.allocation.value_tables import terms_of
from spotline.application.selector.options import SelectorOptions, for_crowds, where_uncounted
from spotline.bench.fleet.policies import SHIPPED
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.solvers.table_spec import TableSpec
from spotline.domain.solvers.table_terms import TableTerms
from spotline.replay.handlers import selector_options
from tests.fakes.recorded_run import SETTINGS
from tests.unit.application.selector.test_revisions import refusing_driver

PUBLISHED = 250_000


def spec_at(price: int, **options: Any) -> tuple[TableSpec, TableTerms]:
    """The table that a job would ask for while spot at its home has this shadow price."""
    driver, _ = refusing_driver(SelectorOptions(rehearsals=0, shadow_prices=True, **options))
    run = next(iter(driver.state.runs.values()))
    driver.state.shadow.published = {run.offering_id: price} if price else {}
    counts, prices = [0, 4, 16, 16] * 10, [300_000] * 40
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    spec = driver.state.table_spec(
        NamedLaw(law_id=law_id_of(law), law=law), run.offering_id, run.compiled
    )
    return spec, terms_of(spec, run.compiled, law)


def test_a_table_goes_by_count_where_that_is_asked_for_and_spot_has_a_price() -> None:
    flat, flat_terms = spec_at(PUBLISHED)
    spread, terms = spec_at(PUBLISHED, prices_by_count=True)

    assert (flat.surcharge_by_count, flat_terms.surcharge_by_count) == (False, False)
    assert (spread.surcharge_by_count, terms.surcharge_by_count) == (True, True)
    assert spread.spot_surcharge_micro_usd == terms.spot_surcharge == PUBLISHED
    assert spread.table_id != flat.table_id


def test_where_spot_has_no_price_tables_are_named_as_before() -> None:
    assert spec_at(0, prices_by_count=True) == spec_at(0)


def test_it_is_on_wherever_crowds_are_served_and_their_benchmark_with_them() -> None:
    assert SHIPPED.prices_by_count
    assert for_crowds(SelectorOptions()).prices_by_count
    assert not where_uncounted(SHIPPED).prices_by_count
    assert not SelectorOptions().prices_by_count
    assert not selector_options(SETTINGS).prices_by_count
