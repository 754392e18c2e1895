"""Tables of even cells and ends that fall: on where a log's manifest says so, and else as before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.allocation.value_tables import same_table_of, surcharged, terms_of
from spotline.application.selector.options import SelectorOptions, for_crowds, where_uncounted
from spotline.bench.fleet.policies import SHIPPED
from spotline.bootstrap.explaining import SERVED
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.domain.events.event import Event
from spotline.domain.events.law import MarketLawLearned, ValueTableRequested
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.solvers.table_spec import TableSpec
from spotline.domain.solvers.table_terms import TableTerms, table_id
from spotline.replay.divergence import DIVERGED, SAME
from spotline.replay.handlers import handlers_of, selector_options
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from spotline.replay.verify import verify
from tests.fakes.recorded_run import SETTINGS, manifest_of, play, small_market, small_run
from tests.unit.application.selector.test_revisions import refusing_driver

NEW: Mapping[str, Any] = {
    "selector": {**SETTINGS["selector"], "even_cells": True},
    "forecaster": {**SETTINGS["forecaster"], "falling_ends": True},
}


def spec_under(**options: Any) -> tuple[TableSpec, TableTerms]:
    """The table that a job would ask for, and what it is made of."""
    driver, _ = refusing_driver(SelectorOptions(rehearsals=0, **options))
    run = next(iter(driver.state.runs.values()))
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    spec = driver.state.table_spec(
        NamedLaw(law_id=law_id_of(law), law=law), run.offering_id, run.compiled
    )
    return spec, terms_of(spec, run.compiled, law)


def test_a_table_is_named_as_before_unless_even_cells_are_asked_for() -> None:
    plain, terms = spec_under()
    even, even_terms = spec_under(even_cells=True)

    assert (plain.even_cells, even.even_cells) == (False, True)
    assert even_terms == replace(terms, even_cells=True)
    assert even == replace(plain, table_id=table_id(even_terms), even_cells=True)
    assert even.table_id != plain.table_id


def test_a_table_that_is_named_again_keeps_its_cells() -> None:
    spec, terms = spec_under(even_cells=True)

    dearer = surcharged(spec, 1_000, terms.program, terms.law)
    again = same_table_of(spec, terms.program, terms.law)

    assert terms_of(dearer, terms.program, terms.law) == replace(terms, spot_surcharge=1_000)
    assert again == spec


def test_a_name_does_not_stand_for_other_cells() -> None:
    spec, terms = spec_under(even_cells=True)

    with pytest.raises(ValueError, match="table_id must be"):
        terms_of(replace(spec, even_cells=False), terms.program, terms.law)


def test_tables_of_a_class_stay_as_they_are() -> None:
    assert spec_under(shared_tables=True, even_cells=True) == spec_under(shared_tables=True)


def test_services_and_their_benchmark_ask_for_even_cells_whether_counts_are_shown_or_not() -> None:
    for options in (SERVED, SHIPPED):
        assert options.even_cells
        assert where_uncounted(options).even_cells
        assert for_crowds(options, on=False).even_cells


def test_a_manifest_that_says_nothing_of_even_cells_means_none() -> None:
    assert not selector_options(SETTINGS).even_cells
    assert selector_options(NEW).even_cells
    with pytest.raises(ContractError, match="even_cells"):
        selector_options({"selector": {"even_cells": 1}})


# --- whole logs -------------------------------------------------------------------------------


@cache
def new_run() -> tuple[StoredEntry, ...]:
    market = small_market()
    log: list[StoredEntry] = []
    play([*handlers_of(NEW), ExactCloud()], market, generated_jobs(market, 4, 5), record=log.append)
    return tuple(log)


def found(log: tuple[StoredEntry, ...], kind: type[Event]) -> list[Any]:
    return [event for entry in log if isinstance(event := event_of(entry), kind)]


def exit_code(log: tuple[StoredEntry, ...], settings: Mapping[str, Any]) -> int:
    manifest = replace(manifest_of(log), settings=settings)
    return verify(log, handlers_of(settings), manifest, here=environment()).exit_code


def test_a_new_log_verifies_as_its_manifest_says() -> None:
    log = new_run()

    asked = found(log, ValueTableRequested)
    assert asked
    assert all(event.table.even_cells for event in asked)
    assert exit_code(log, NEW) == SAME


@pytest.mark.parametrize("service", ["selector", "forecaster"])
def test_a_new_log_is_none_of_a_manifest_that_leaves_one_of_them_out(service: str) -> None:
    assert exit_code(new_run(), {**NEW, service: SETTINGS[service]}) == DIVERGED


def test_an_older_log_still_verifies_and_asked_for_other_tables() -> None:
    older, newer = tuple(small_run()), new_run()

    assert exit_code(older, SETTINGS) == SAME
    assert not any(event.table.even_cells for event in found(older, ValueTableRequested))
    laws = [found(log, MarketLawLearned) for log in (older, newer)]
    assert len(laws[0]) == len(laws[1]) > 0
    assert laws[0] != laws[1]
