"""Shadow prices in the selector: published behind a cleared slot, and in the tables that follow."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.outlook.following import Following
from spotline.application.selector.loads import loads_of
from spotline.application.selector.offering_choice import Load
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.repricing import MOST_REPRICED
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.law import MarketLawLearned, ValueTableRequested
from spotline.domain.market.law import choose_space, law_id_of, learn_law
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.market.offering import Count, Provenance
from spotline.domain.policies.answer import SpotWorth
from tests.fakes.selector import SelectorWorld, job_of, market_of


def priced_world(jobs: int = 1, worth_micro_usd: int = 0, **options: object) -> SelectorWorld:
    """Jobs on a market whose laws are known, after their first slot."""
    market = market_of()
    chosen = {"clearing": True, "shadow_prices": True, **options}
    world = SelectorWorld(*(job_of(k) for k in range(1, jobs + 1)), market=market, **chosen)
    counts, prices = [0, 16] * 10, [300_000] * 20
    law = learn_law(counts, prices, choose_space(counts, prices, most_instances=16))
    named = NamedLaw(law_id=law_id_of(law), law=law)
    for offering in market.offerings:
        world.feed(MarketLawLearned(slot=0, offering_id=offering.offering_id, named=named))
    worths = [
        SpotWorth(offering_id=offering.offering_id, micro_usd_per_instance_hour=worth_micro_usd)
        for offering in sorted(market.offerings, key=lambda offering: offering.offering_id)
    ]
    world.worth = tuple(worths) if worth_micro_usd else ()
    world.next_slot()
    return world


def test_where_spot_was_worth_more_its_price_is_published_and_tables_follow() -> None:
    world = priced_world(worth_micro_usd=500_000)
    (published,) = [event for event in world.log if isinstance(event, ShadowPricesUpdated)]
    run = world.run_of()
    price = next(price for price in published.prices if price.offering_id == run.offering_id)
    first = run.table_in(world.slot + 1, run.offering_id)

    asked = [event for event in world.open() if isinstance(event, ValueTableRequested)]
    again = run.tables[run.offering_id]

    assert published.slot == 0
    assert abs(price.micro_usd_per_instance_hour - 500_000) < 250_000
    assert first is not None
    assert first.spec.spot_surcharge_micro_usd == 0
    assert asked[0].table.spot_surcharge_micro_usd == price.micro_usd_per_instance_hour
    assert again.spec == asked[0].table != first.spec
    # Until the new table is built, decisions look into the old one.
    assert run.table_in(world.slot, run.offering_id) == first
    assert run.table_in(world.slot + 1, run.offering_id) is again


def test_alone_a_job_has_no_shadow_price() -> None:
    world = priced_world()
    decided = world.next_slot()

    assert not any(isinstance(event, ShadowPricesUpdated) for event in world.log)
    assert not any(isinstance(event, ValueTableRequested) for event in decided)


def test_a_selector_without_the_option_prices_nothing() -> None:
    world = priced_world(worth_micro_usd=500_000, shadow_prices=False)
    world.next_slot()

    assert not any(isinstance(event, ShadowPricesUpdated) for event in world.log)
    assert all(table.spec.spot_surcharge_micro_usd == 0 for table in world.run_of().tables.values())


def test_so_many_tables_are_asked_for_again_in_a_slot() -> None:
    world = priced_world(jobs=MOST_REPRICED // 2 + 1, worth_micro_usd=500_000)
    tables = sum(len(run.tables) for run in world.state.runs.values())
    counts = []
    for _ in range(tables // MOST_REPRICED + 2):
        decided = world.next_slot()
        counts.append(sum(isinstance(event, ValueTableRequested) for event in decided))

    assert tables > MOST_REPRICED
    assert counts[0] == MOST_REPRICED
    assert counts[1] > 0
    assert counts[-1] == 0
    assert all(
        table.spec.spot_surcharge_micro_usd == world.state.spot_surcharge(offering_id)
        for run in world.state.runs.values()
        for offering_id, table in run.tables.items()
    )


def test_who_follows_a_selector_knows_what_it_clears_and_prices() -> None:
    options = SelectorOptions(clearing=True, shadow_prices=True)
    world = priced_world(worth_micro_usd=500_000)
    following = Following(options)
    for event in world.fed:
        following.fold(event)
    known = following.snapshot()

    assert known is not None
    assert known.state.clearing
    assert known.state.shadow is not None
    assert known.state.shadow == world.state.shadow
    assert known.state.shadow is not world.state.shadow
    assert following.left_out == 0


def test_a_running_job_counts_with_its_mean_need_where_on_demand_is_plenty() -> None:
    world = priced_world()
    state, options = world.state, SelectorOptions(clearing=True, shadow_prices=True)

    def counted_as(provenance: Provenance, options: SelectorOptions) -> Load:
        """Instances that the job, of two for six of its 20 slots, is taken to use."""
        on_demand = Count(instances=8, provenance=provenance)
        state.opened = replace(
            state.current,
            quotes=tuple(
                replace(quoted, quote=replace(quoted.quote, on_demand_available=on_demand))
                for quoted in state.current.quotes
            ),
        )
        (load,) = loads_of(state, state.running(), options).values()
        return load

    assert counted_as(Provenance.UNKNOWN, options) == Load.always(1)
    assert counted_as(Provenance.OBSERVED, options) == Load.always(2)
    assert counted_as(Provenance.UNKNOWN, SelectorOptions(clearing=True)) == Load.always(2)
    spread = replace(options, spreads_homes=True)
    assert counted_as(Provenance.UNKNOWN, spread) == Load(mean=1, most=2)
    assert counted_as(Provenance.OBSERVED, spread) == Load.always(2)
