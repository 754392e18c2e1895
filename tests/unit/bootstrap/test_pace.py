"""How fast a market runs, by the options of `spotline up`."""

import pytest

from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.pace import own_market, pace_of

NOTHING = {
    "speed": 0.0,
    "slots_per_s": 0.0,
    "wall_clock": False,
    "own_market": False,
    "in_wall_time": False,
}


@pytest.mark.parametrize(
    ("stated", "interval_s", "barrier", "market_s_per_s"),
    [
        ({}, 0.0, True, 1.0),
        ({"slots_per_s": 4.0}, 0.25, True, 1.0),
        ({"wall_clock": True}, 300.0, False, 1.0),
        ({"speed": 60.0}, 5.0, False, 60.0),
        ({"speed": 60.0, "in_wall_time": True}, 5.0, False, 60.0),
        ({"own_market": True, "in_wall_time": True}, 300.0, False, 1.0),
        ({"own_market": True, "speed": 10.0, "in_wall_time": True}, 30.0, False, 10.0),
    ],
)
def test_slots_open_at_the_pace_that_was_asked_for(stated, interval_s, barrier, market_s_per_s):
    pace = pace_of(**(NOTHING | stated))

    ingest = pace.ingest(300, wait_for_work=False)

    assert (ingest.slot_interval_s, ingest.barrier) == (interval_s, barrier)
    assert pace.market_s_per_s == market_s_per_s


def test_the_local_cloud_has_a_market_of_its_own(tmp_path):
    market = own_market(chosen_cloud("local", most_instances=3), tmp_path, slot_s=60)

    assert market.slot_s == 60
    assert market.offerings[0].provider == "local"
