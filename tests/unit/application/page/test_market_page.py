"""What the pages of the market remember and say."""

from __future__ import annotations

from spotline.application.page.market import SpotLife, quantiles, state_of
from spotline.application.page.offerings import (
    OfferingFilter,
    calibration,
    fan_points,
    grouped_by_age,
    issued_slots,
    lives_by_age,
    offering_rows,
)
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.forecast import CountProbability, ForecastStep
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance
from tests.fakes.allocator import (
    EAST,
    WEST,
    forecast_issued,
    job,
)
from tests.fakes.paged import PageStory

ALL = OfferingFilter()


def opened(*slots: int, spot: int = 4) -> PageStory:
    story = PageStory().submitted()
    for slot in slots:
        story.opened(slot, spot=spot)
    return story


def test_a_row_says_price_discount_and_for_how_long_spot_is_there() -> None:
    story = opened(0, spot=0).opened(1).opened(2)

    east, west = offering_rows(story.state, ALL)
    assert (east.offering.offering_id, west.offering.offering_id) == (EAST, WEST)
    assert (east.state, east.run_slots, east.discount_ppm) == ("there", 2, 700_000)
    assert not east.stale


def test_filters_take_what_they_name() -> None:
    story = opened(0)

    rows = offering_rows(story.state, OfferingFilter(region="us-west-2"))
    assert [row.offering.offering_id for row in rows] == [WEST]
    assert offering_rows(story.state, OfferingFilter(provider="nobody")) == []


def test_refusals_of_the_last_hour_are_counted_by_class_and_cool_the_offering() -> None:
    story = opened(0).turned_away(RefusalClass.NO_CAPACITY, retry_after_s=900)
    story.turned_away(RefusalClass.NO_CAPACITY).turned_away(RefusalClass.THROTTLED)

    row = offering_rows(story.state, ALL)[0]
    assert row.refusals == (("no_capacity", 2), ("throttled", 1))
    assert row.cools_until_ns == story.state.now_ns + 900 * 10**9
    assert offering_rows(story.state, ALL, tenant="somebody else")[0].refusals == ()


def test_refusals_and_cooling_pass_with_time() -> None:
    story = opened(0).turned_away(RefusalClass.NO_CAPACITY, retry_after_s=900)
    for slot in range(1, 9):
        story.opened(slot)

    row = offering_rows(story.state, ALL)[0]
    assert (row.refusals, row.cools_until_ns) == ((), 0)


def test_a_limit_of_ours_says_nothing_of_the_offering() -> None:
    story = opened(0).turned_away(RefusalClass.LIMIT, retry_after_s=900)

    assert offering_rows(story.state, ALL)[0].cools_until_ns == 0


def test_lives_end_by_being_taken_or_given_back_and_some_go_on() -> None:
    story = opened(0).holds("a", "b", "c").opened(6)
    story.taken("a").holds("b", "c").opened(12).holds("c").opened(18)

    (first, second, third) = lives_by_age(story.state, EAST)
    assert (first.reached, first.lost, first.ended, first.alive) == (3, 0, 0, 0)
    assert (second.from_h, second.reached, second.lost) == (1, 3, 1)
    assert (third.from_h, third.ended, third.alive) == (2, 1, 1)
    assert lives_by_age(story.state, EAST, tenant="somebody else") == []


def test_shares_of_few_lives_are_called_few() -> None:
    lives = [(SpotLife("t", 60, lost=number < 5), False) for number in range(20)]

    (group,) = grouped_by_age(lives)
    assert (group.lost_ppm, group.few) == (250_000, False)
    assert grouped_by_age(lives[:19])[0].few


def test_a_forecast_of_the_past_is_shown_with_what_came() -> None:
    story = opened(0).tell(forecast_issued(0, sure_ppm=500_000)).opened(1, spot=3)

    points = fan_points(story.state, EAST, 0)
    assert [point.came for point in points] == [3, None, None, None, None, None]
    assert points[0].step[:3] == (0, 0, 4)
    assert issued_slots(story.state, EAST) == [0]
    assert issued_slots(story.state, "nowhere") == []


def test_counts_inside_the_band_are_counted_by_step() -> None:
    story = opened(0).tell(forecast_issued(0, sure_ppm=1_000_000)).opened(1).opened(2, spot=2)

    one, two = calibration(story.state, EAST)[:2]
    assert (one.step, one.scored, one.inside, one.inside_ppm) == (1, 1, 1, 1_000_000)
    assert (two.scored, two.inside) == (1, 0)


def test_forecasts_are_forgotten_in_time() -> None:
    story = PageStory().submitted()
    for slot in range(60):
        story.opened(slot).tell(forecast_issued(slot))

    assert len(story.state.market.fans) == 48
    assert fan_points(story.state, EAST, 3) == []


def test_quantiles_are_the_smallest_counts_that_reach_them() -> None:
    step = ForecastStep(
        spot_price_micro_usd=1,
        counts=(
            CountProbability(instances=8, probability_ppm=50_000),
            CountProbability(instances=0, probability_ppm=100_000),
            CountProbability(instances=4, probability_ppm=850_000),
        ),
    )

    assert tuple(quantiles(step)) == (0, 4, 4)


def test_an_unknown_count_is_no_empty_one() -> None:
    assert state_of(UNKNOWN_COUNT) == "unknown"
    assert state_of(Count(instances=0, provenance=Provenance.INFERRED)) == "none"


def test_instances_beside_on_demand_are_counted_and_not_guessed() -> None:
    story = PageStory(job()).submitted().opened(0)
    story.reported(spot(1, on_demand=1))

    assert story.state.market.untold_lives == 2
    assert lives_by_age(story.state, EAST) == []


def spot(count: int, on_demand: int) -> tuple[Lot, ...]:
    return (Lot(offering_id=EAST, spot=count, on_demand=on_demand),)
