"""When a market has enough spot for a job, computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.market import OBSERVED, UNKNOWN, Market
from spotline.domain.market.offering import Offering, Reservation
from spotline.domain.market.supply import measure_supply, most_different, spot_columns
from spotline.domain.units import NS_PER_S

START_NS = 1_767_571_200 * NS_PER_S  # 2026-01-05T00:00:00Z
ON_DEMAND = 4_000_000


def market(
    counts: dict[str, list[int | None]],
    *,
    slot_s: int = 3600,
    price: dict[str, int] | None = None,
    reserved: tuple[str, ...] = (),
) -> Market:
    """A market of zones with these counts, slot by slot; None where a count is not known."""
    zones = list(counts)
    slots = len(counts[zones[0]])
    shape = (slots, len(zones))
    available = np.array([[c or 0 for c in counts[z]] for z in zones], dtype=np.int64).T.copy()
    known = np.array([[c is not None for c in counts[z]] for z in zones]).T
    on_demand = np.full(shape, ON_DEMAND, dtype=np.int64)
    on_demand[:, [zone in reserved for zone in zones]] = 0
    start = START_NS + np.arange(slots, dtype=np.int64) * slot_s * NS_PER_S
    spot = [(price or {}).get(zone, 1_000_000) for zone in zones]
    return Market(
        offerings=tuple(
            Offering(
                offering_id=zone,
                provider="p",
                account="a",
                region="r",
                zone=zone,
                instance_type="t",
                gpu_model="g",
                gpus_per_instance=1,
                quota_pool="q",
                reservation=Reservation(instances=4) if zone in reserved else None,
            )
            for zone in zones
        ),
        slot_s=slot_s,
        start_ns=START_NS,
        spot_price_micro_usd=np.tile(np.array(spot, dtype=np.int64), (slots, 1)),
        on_demand_price_micro_usd=on_demand,
        spot_available=available,
        spot_provenance=np.where(known, OBSERVED, UNKNOWN).astype(np.int64),
        on_demand_available=np.full(shape, 8, dtype=np.int64),
        on_demand_provenance=np.full(shape, OBSERVED, dtype=np.int64),
        quoted_ns=np.tile(start[:, None], (1, len(zones))),
        source="by hand",
    )


def test_a_job_needs_all_its_instances_at_once():
    small = market({"a": [0, 2, 4, 4, 1, 4, 0, 0]})

    of_two, of_four = (measure_supply(small, [0], n).offerings[0] for n in (2, 4))

    assert (of_two.share_there, of_four.share_there) == (4 / 8, 3 / 8)
    assert of_two.stays.hours.tolist() == [3.0, 1.0]
    assert of_four.stays.hours.tolist() == [2.0, 1.0]
    assert of_two.survival.median_h == 1.0


def test_shares_are_of_the_time_in_which_the_count_is_known():
    found = measure_supply(market({"a": [1, None, None, 0]}), [0], 1)

    assert found.offerings[0].share_there == 0.5
    assert found.offerings[0].as_json()["share_known"] == 0.5
    unknown = measure_supply(market({"a": [None, None]}), [0], 1)
    assert unknown.offerings[0].share_there is None
    assert unknown.share_any is None


def test_the_hour_of_the_day_is_that_of_utc():
    # Two days: there at 01:00 on both, at 02:00 on one.
    day_1 = [int(hour in (1, 2)) for hour in range(24)]
    day_2 = [int(hour == 1) for hour in range(24)]

    by_hour = measure_supply(market({"a": day_1 + day_2}), [0], 1).offerings[0].share_by_hour

    assert by_hour.tolist() == [0.0, 1.0, 0.5] + [0.0] * 21


def test_a_slot_of_several_hours_counts_for_each_and_hours_without_any_say_so():
    found = measure_supply(market({"a": [1, 0]}, slot_s=6 * 3600), [0], 1).offerings[0]

    assert found.share_by_hour[:12].tolist() == [1.0] * 6 + [0.0] * 6
    assert found.as_json()["share_by_hour_utc"][12:] == [None] * 12


def test_a_discount_is_what_is_left_of_the_ratio_of_prices():
    small = market({"a": [1, 1], "b": [1, 1]}, price={"a": 1_000_000, "b": 3_000_000})

    a, b = (offering.as_json() for offering in measure_supply(small, [0, 1], 1).offerings)

    assert (a["price_of_on_demand"]["mean"], a["mean_discount"]) == (0.25, 0.75)
    assert (b["price_of_on_demand"]["max"], b["mean_discount"]) == (0.75, 0.25)


def test_any_and_all_against_zones_that_come_and_go_by_themselves():
    small = market({"a": [1, 1, 0, 0], "b": [1, 1, 0, 0]})

    found = measure_supply(small, [0, 1], 1)

    # Both are there half of the time, always together; alone, any would be 3/4 and all 1/4.
    assert (found.share_any, found.share_all) == (0.5, 0.5)
    assert found.if_independent == pytest.approx((0.75, 0.25))


@given(st.integers(1, 5), st.integers(1, 30), st.randoms())
def test_as_many_or_more_never_grow_with_the_number(zones, slots, chance):
    counts = {f"z{n}": [chance.randint(0, 2) for _ in range(slots)] for n in range(zones)}

    found = measure_supply(market(counts), range(zones), 1)

    assert list(found.at_least) == sorted(found.at_least, reverse=True)
    mean_there = sum(o.share_there for o in found.offerings)
    assert sum(found.at_least) == pytest.approx(mean_there)
    assert sum(found.if_independent) == pytest.approx(mean_there)


def test_of_many_offerings_those_that_differ_most_are_shown():
    # Nine zones, of which eight come in four pairs of twins: of each pair one is enough.
    pairs = {"a": [1, 1, 1, 0], "b": [0, 0, 1, 1], "c": [1, 0, 0, 0], "d": [0, 1, 0, 1]}
    counts = {f"{name}{n}": there for name, there in pairs.items() for n in (1, 2)}
    many = market({**counts, "e": [0, 0, 0, 0]})

    shown = most_different(many, 1, most=5)

    assert [many.offerings[column].offering_id[0] for column in shown] == ["a", "b", "c", "d", "e"]
    assert most_different(many, 1, most=9) == list(range(9))


def test_a_reservation_has_no_spot():
    small = market({"a": [1, 1], "mine": [0, 0]}, reserved=("mine",))

    assert spot_columns(small) == [0]
    assert most_different(small, 1) == [0]
    with pytest.raises(ValueError, match="mine is a reservation"):
        measure_supply(small, [1], 1)
    assert measure_supply(small, [], 1).at_least == ()
