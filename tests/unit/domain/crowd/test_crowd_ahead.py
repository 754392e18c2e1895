"""What spot will be worth, from one value: works, offerings and arrivals, without a selector."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.crowd_ahead import AHEAD_SLOTS, UNITS, CrowdAhead, OfferingNow
from spotline.domain.crowd.fluid import FluidWork
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance, Quote

SPOT_PRICE, ON_DEMAND_PRICE = 1_000_000, 3_000_000
BEYOND = ON_DEMAND_PRICE - SPOT_PRICE


def offering(name: str, spot: int, speed: float = 1.0) -> OfferingNow:
    return OfferingNow(
        quote=Quote(
            offering_id=name,
            ts_event_ns=0,
            spot_price_micro_usd=SPOT_PRICE,
            on_demand_price_micro_usd=ON_DEMAND_PRICE,
            spot_available=Count(instances=spot, provenance=Provenance.OBSERVED),
            on_demand_available=UNKNOWN_COUNT,
        ),
        speed=speed,
    )


def work_of(instances: int, slots: int, due: int, *where: str) -> FluidWork:
    """Work that keeps `instances` busy for `slots`."""
    return FluidWork(0, due, instances * UNITS, instances * slots * UNITS, where)


def ahead(*offerings: OfferingNow, works: tuple[FluidWork, ...] = ()) -> CrowdAhead:
    return CrowdAhead(slot=0, slot_s=1800, offerings=offerings, works=works, arrivals=Arrivals())


def test_spot_that_is_short_all_the_time_spares_on_demand() -> None:
    short = ahead(offering("a", 4), works=(work_of(8, 36, 36, "a"),))

    assert short.worths() == {"a": pytest.approx(BEYOND, rel=1e-4)}


def test_spot_that_is_short_half_of_the_time_is_worth_half() -> None:
    # Slots behind the present one, half of which lie before the work is due.
    due = AHEAD_SLOTS // 2 + 1
    found = ahead(offering("a", 4), works=(work_of(8, due, due, "a"),)).worths()

    assert found == {"a": pytest.approx(BEYOND / 2, rel=1e-4)}


def test_spot_that_all_find_is_worth_nothing() -> None:
    works = (work_of(8, 36, 36, "a"), work_of(8, 36, 36, "a", "b"))

    assert ahead(offering("a", 8), offering("b", 8), works=works).worths() == {"a": 0, "b": 0}


def test_where_work_is_half_as_fast_spot_is_worth_half() -> None:
    works = (work_of(32, 36, 36, "a", "b"),)
    found = ahead(offering("a", 4), offering("b", 4, speed=0.5), works=works).worths()

    assert found["a"] > 0
    # On demand costs the least where work is fast: what slow spot spares is that, for half the work.
    assert found["b"] == pytest.approx(ON_DEMAND_PRICE / 2 - SPOT_PRICE, rel=1e-4)


def test_arrivals_of_late_come_again_and_no_work_is_worth_nothing() -> None:
    idle = ahead(offering("a", 4))
    arrivals = Arrivals()
    for slot in range(12):
        arrivals.note(slot, work_of(8, 6, 6, "a"))

    assert idle.worths() == {"a": 0}
    assert replace(idle, slot=11, arrivals=arrivals).worths()["a"] > 0


def test_it_is_worked_out_alike_whenever_it_is() -> None:
    arrivals = Arrivals()
    for slot in (0, 3, 4):
        arrivals.note(slot, work_of(8, 6, 9, "a"))
    busy = replace(ahead(offering("a", 4)), slot=5, arrivals=arrivals)

    assert busy.worths() == busy.worths()
