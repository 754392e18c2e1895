"""Shadow prices with what is expected: what futures are made of, and when they are published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotline.application.outlook.following import Following
from spotline.application.selector.foreseeing import crowd_ahead
from spotline.application.selector.options import SelectorOptions, for_crowds, where_uncounted
from spotline.bench.fleet.policies import SHIPPED
from spotline.domain.crowd.shadow_prices import CREDIBLE_BIDS
from spotline.domain.events.allocation import ShadowPricesUpdated
from spotline.domain.events.event import Event
from spotline.domain.jobs.job import Throughput
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD, Count, Provenance
from spotline.replay.handlers import selector_options
from tests.fakes.recorded_run import SETTINGS
from tests.fakes.selector import SelectorWorld, job_of, market_of

# Work for two instances in nearly all slots before the deadline: there is no waiting for spot.
BUSY_SLOTS = 18.0
# Of the 24 slots to come whose worths are averaged, 19 lie before the deadline of all jobs.
SHARE_BEFORE_DUE = 19 / 24
SLOW = market_of().offerings[0].offering_id


def crowd_of(
    jobs: int, *, slots: int = 20, work_slots: float = BUSY_SLOTS, **options: object
) -> SelectorWorld:
    """Jobs that arrive together on one offering, cleared, with prices ahead; no slot is open."""
    chosen = {"clearing": True, "shadow_prices": True, "prices_ahead": True, **options}
    market = market_of(slots=2 * slots)
    market = replace(
        market,
        offerings=market.offerings[:1],
        **{
            name: getattr(market, name)[:, :1]
            for name in (
                *("spot_price_micro_usd", "on_demand_price_micro_usd"),
                *("spot_available", "on_demand_available"),
                *("spot_provenance", "on_demand_provenance", "quoted_ns"),
            )
        },
    )
    world = SelectorWorld(
        *(job_of(k, slots=slots, work_slots=work_slots) for k in range(1, jobs + 1)),
        market=market,
        **chosen,
    )
    world.worth = ()
    return world


def with_quotes(world: SelectorWorld, **changes: Any) -> None:
    """Let all quotes of the open slot say something else."""
    world.state.opened = replace(
        world.state.current,
        quotes=tuple(
            replace(quoted, quote=replace(quoted.quote, **changes))
            for quoted in world.state.current.quotes
        ),
    )


def with_spot(world: SelectorWorld, instances: int) -> None:
    """Let the open slot have so much spot."""
    with_quotes(world, spot_available=Count(instances=instances, provenance=Provenance.OBSERVED))


def ahead(world: SelectorWorld) -> dict[str, int] | None:
    """What is expected of the slots to come, with the arrivals that the world had."""
    found = crowd_ahead(world.state, world.state.arrivals)
    return None if found is None else found.worths()


def expected(world: SelectorWorld, instances: int) -> int:
    """What the one offering is expected to be worth where so much spot is there, and stays."""
    with_spot(world, instances)
    found = ahead(world)
    assert found is not None
    (worth,) = found.values()
    return worth


def beyond_spot(world: SelectorWorld) -> int:
    quote = world.state.current.quotes[0].quote
    return quote.on_demand_price_micro_usd - quote.spot_price_micro_usd


def priced(events: list[Event]) -> list[ShadowPricesUpdated]:
    return [event for event in events if isinstance(event, ShadowPricesUpdated)]


def test_scarce_spot_is_expected_to_be_worth_what_on_demand_costs_beyond_it() -> None:
    world = crowd_of(3)
    world.open()

    assert expected(world, 4) == pytest.approx(SHARE_BEFORE_DUE * beyond_spot(world), rel=1e-4)


def test_plenty_of_spot_is_expected_to_be_worth_nothing() -> None:
    world = crowd_of(3)
    world.open()
    assert expected(world, 64) == 0


def test_what_a_lone_job_needs_itself_is_no_price() -> None:
    world = crowd_of(1)
    world.open()

    assert expected(world, 1) == 0
    assert not priced(world.decide())


def test_jobs_like_those_of_late_are_expected_even_where_one_runs() -> None:
    world = crowd_of(1)
    world.open()
    arrivals = world.state.arrivals
    for _ in range(8):
        arrivals.note(1, arrivals.jobs[0][1])
    world.state.slot = 1

    assert expected(world, 1) > 0


def test_spot_on_which_jobs_are_half_as_fast_is_worth_half() -> None:
    throughputs = (
        Throughput(offering=SLOW, table=(0.5, 1.0)),
        Throughput(offering="*", table=(1.0, 2.0)),
    )
    jobs = [job_of(k, work_slots=BUSY_SLOTS, throughputs=throughputs) for k in range(1, 9)]
    world = SelectorWorld(*jobs, clearing=True, shadow_prices=True, prices_ahead=True)
    world.open()
    with_spot(world, 1)
    with_quotes(world, spot_price_micro_usd=1, on_demand_price_micro_usd=1_000_000)
    found = ahead(world)

    assert found is not None
    slow = found.pop(SLOW)
    for worth in found.values():
        assert worth == pytest.approx(SHARE_BEFORE_DUE * 1_000_000, rel=1e-4)
    assert slow == pytest.approx(SHARE_BEFORE_DUE * 500_000, rel=1e-4)


def test_unknown_counts_have_no_price() -> None:
    world = crowd_of(3)
    world.open()
    with_quotes(world, spot_available=Count(instances=0, provenance=Provenance.UNKNOWN))

    assert ahead(world) is None


def test_equal_states_expect_equal_worths() -> None:
    worlds = [crowd_of(4) for _ in range(2)]
    for world in worlds:
        world.next_slot()
        world.open()

    assert ahead(worlds[0]) == ahead(worlds[1])


def test_deadlines_far_away_are_seen_in_longer_periods() -> None:
    world = crowd_of(3, slots=100, work_slots=54.0)
    world.open()

    # 324 instance-slots, and 300 of spot before they are due; in the first 36 slots it would look enough.
    assert expected(world, 3) == pytest.approx(beyond_spot(world), rel=1e-4)


def test_the_greatest_prices_work_and_slowness_are_no_reason_to_stop() -> None:
    throughputs = (
        Throughput(offering=SLOW, table=(1e-4, 1e-4)),
        Throughput(offering="*", table=(1.0, 2.0)),
    )
    jobs = [job_of(k, work_slots=1e6, throughputs=throughputs) for k in range(1, 4)]
    world = SelectorWorld(*jobs, clearing=True, shadow_prices=True, prices_ahead=True)
    world.open()
    with_spot(world, 1)
    with_quotes(
        world,
        spot_price_micro_usd=1,
        on_demand_price_micro_usd=MOST_PRICE_MICRO_USD,
    )
    found = ahead(world)

    assert found is not None
    assert found.pop(SLOW) >= 0
    assert min(found.values()) > MOST_PRICE_MICRO_USD // 2


def test_prices_are_published_when_a_slot_has_settled_and_not_before() -> None:
    world = crowd_of(3)
    opened = world.open()
    with_spot(world, 4)
    decided = world.decide()
    assert not priced(opened + decided)
    settled = world.grant(decided)

    (published,) = priced(settled)
    assert published.slot == 0
    (price,) = published.prices
    assert price.micro_usd_per_instance_hour > 0
    assert world.state.spot_surcharge(price.offering_id) == price.micro_usd_per_instance_hour


def test_what_is_decided_again_inside_a_slot_prices_nothing_again() -> None:
    world = crowd_of(3)
    world.open()
    with_spot(world, 4)
    first = world.grant(world.decide())
    assert len(priced(first)) == 1
    losing = next(run for run in world.state.running() if run.held.spot)
    # Were they looked for again, they would be far away from what is published.
    world.state.shadow.published = {}

    assert not priced(world.lose(int(losing.job.job_id.rsplit("-", 1)[-1]), 600))


def test_what_is_expected_fades_as_bids_are_cleared() -> None:
    world = crowd_of(3)
    world.open()
    with_spot(world, 4)
    world.state.shadow.note(-1, {}, CREDIBLE_BIDS * 3)
    (fading,) = priced(world.grant(world.decide()))
    fresh = crowd_of(3)
    fresh.open()
    with_spot(fresh, 4)
    (first,) = priced(fresh.grant(fresh.decide()))

    assert (
        fading.prices[0].micro_usd_per_instance_hour < first.prices[0].micro_usd_per_instance_hour
    )


def test_jobs_served_in_turn_expect_nothing() -> None:
    world = crowd_of(3, most_bidders=2)
    world.open()
    with_spot(world, 4)

    assert not priced(world.grant(world.decide()))


def test_without_the_option_prices_come_of_clearings_alone() -> None:
    world = crowd_of(3, prices_ahead=False)
    world.open()
    with_spot(world, 4)

    assert world.state.arrivals is None
    assert not priced(world.grant(world.decide()))


def test_who_follows_a_selector_knows_the_same_arrivals() -> None:
    options = SelectorOptions(clearing=True, shadow_prices=True, prices_ahead=True)
    world = crowd_of(3)
    world.next_slot()
    following = Following(options)
    for event in world.fed:
        following.fold(event)
    known = following.snapshot()

    assert known is not None
    assert known.state.arrivals is not None
    assert known.state.arrivals == world.state.arrivals
    assert known.state.arrivals is not world.state.arrivals


def test_it_is_on_wherever_crowds_are_served_and_their_benchmark_with_them() -> None:
    assert SHIPPED.prices_ahead
    assert for_crowds(SelectorOptions()).prices_ahead
    assert not where_uncounted(SHIPPED).prices_ahead
    assert not SelectorOptions().prices_ahead
    assert not selector_options(SETTINGS).prices_ahead
