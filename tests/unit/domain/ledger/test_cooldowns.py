"""Which refusal keeps what from being asked for, and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.events.capacity import RefusalClass
from spotline.domain.ledger.cooldowns import (
    CoolingRules,
    CoolingScope,
    OfferingPlace,
    Wanted,
    cooldown_after,
    cooled_by,
    cooling,
)
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

PATIENT = (
    RefusalClass.THROTTLED,
    RefusalClass.SERVER,
    RefusalClass.TOKEN_MISMATCH,
    RefusalClass.UNKNOWN_OUTCOME,
    RefusalClass.LIMIT,
)


def wanted(offering_id="a", zone="z", account="acc", pool="p", kind=CapacityType.SPOT):
    place = OfferingPlace(offering_id=offering_id, zone=zone, account=account)
    return Wanted(place=place, quota_pool=pool, capacity_type=kind)


def refuse(refusal_class, asked=None, earlier=(), at_s=0, epoch=1):
    return cooldown_after(
        refusal_class, asked or wanted(), earlier, now_ns=at_s * NS_PER_S, epoch=epoch, detail="no"
    )


def cold(cooldown, asked, at_s, epoch=1):
    return cooling(asked, [cooldown], now_ns=at_s * NS_PER_S, epoch=epoch) is not None


@pytest.mark.parametrize("refusal_class", PATIENT)
def test_what_calls_for_patience_or_nothing_cools_nothing(refusal_class):
    assert refuse(refusal_class) is None


@pytest.mark.parametrize(
    ("refusal_class", "same", "other"),
    [
        (
            RefusalClass.NO_CAPACITY,
            wanted(pool="other"),
            [wanted("b"), wanted(kind=CapacityType.ON_DEMAND)],
        ),
        (
            RefusalClass.QUOTA,
            wanted("b", "y"),
            [wanted(pool="other"), wanted(kind=CapacityType.ON_DEMAND)],
        ),
        (RefusalClass.NETWORK, wanted("b", pool="q"), [wanted("b", "y")]),
        (
            RefusalClass.UNAUTHORISED,
            wanted("b", "y", pool="q", kind=CapacityType.ON_DEMAND),
            [wanted(account="other")],
        ),
        (RefusalClass.UNSUPPORTED, wanted(), [wanted("b"), wanted(kind=CapacityType.ON_DEMAND)]),
    ],
)
def test_each_class_cools_what_shares_its_cause_and_nothing_else(refusal_class, same, other):
    cooldown = refuse(refusal_class)

    assert cold(cooldown, same, at_s=1)
    assert not any(cold(cooldown, asked, at_s=1) for asked in other)


def test_capacity_cools_three_minutes_and_twice_as_long_each_time_up_to_an_hour():
    earlier, lasts_s, at_s = [], [], 0
    for _ in range(7):
        cooldown = refuse(RefusalClass.NO_CAPACITY, earlier=earlier, at_s=at_s)
        lasts_s.append(cooldown.rest_s(at_s * NS_PER_S))
        at_s += lasts_s[-1]
        assert cold(cooldown, wanted(), at_s - 1)
        assert not cold(cooldown, wanted(), at_s)
        earlier = [cooldown]

    assert lasts_s == [180, 360, 720, 1440, 2880, 3600, 3600]


def test_two_refusals_at_one_moment_are_one_and_what_is_asked_then_is_still_asked():
    first = refuse(RefusalClass.NO_CAPACITY, at_s=5)
    again = refuse(RefusalClass.NO_CAPACITY, earlier=[first], at_s=5)

    assert again.refusals == 1
    assert not cold(again, wanted(), at_s=5)
    assert cold(again, wanted(), at_s=6)


def test_a_missing_permission_stops_the_account_at_once():
    assert cold(refuse(RefusalClass.UNAUTHORISED, at_s=5), wanted("b"), at_s=5)


@pytest.mark.parametrize("refusal_class", [RefusalClass.UNSUPPORTED, RefusalClass.UNAUTHORISED])
def test_what_a_person_mends_is_asked_for_again_after_a_restart(refusal_class):
    cooldown = refuse(refusal_class, epoch=1)

    assert cold(cooldown, wanted(), at_s=60, epoch=1)
    assert not cold(cooldown, wanted(), at_s=60, epoch=2)


def test_capacity_cools_on_after_a_restart():
    assert cold(refuse(RefusalClass.NO_CAPACITY, epoch=1), wanted(), at_s=60, epoch=2)


def test_unsupported_lasts_and_says_so_and_the_longest_cool_down_counts():
    short, lasting = refuse(RefusalClass.QUOTA), refuse(RefusalClass.UNSUPPORTED)

    found = cooling(wanted(), [short, lasting], now_ns=NS_PER_S, epoch=1)

    assert found == lasting
    assert lasting.rest_s(NS_PER_S) == 0
    assert cold(lasting, wanted(), at_s=10**9)


def test_rules_are_positive_and_ascend():
    with pytest.raises(ValueError, match="cool-downs must be > 0 and ascend"):
        CoolingRules(first_s=10, longest_s=5)


@given(
    refusals=st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from(RefusalClass)), min_size=1, max_size=80
    )
)
def test_no_cool_down_outlasts_its_rule_and_its_key_is_among_those_it_is_looked_for_by(refusals):
    rules = CoolingRules()
    known, now_s = {}, 0
    for wait_s, refusal_class in refusals:
        now_s += wait_s
        cooldown = refuse(refusal_class, earlier=known.values(), at_s=now_s)
        if cooldown is None:
            continue
        known[cooldown.scope, cooldown.key] = cooldown
        assert (cooldown.scope, cooldown.key) in cooled_by(wanted())
        longest = rules.account_s if cooldown.scope is CoolingScope.ACCOUNT else rules.longest_s
        assert 0 <= cooldown.rest_s(now_s * NS_PER_S) <= longest
        if refusal_class is not RefusalClass.UNSUPPORTED:
            assert not cold(cooldown, wanted(), now_s + longest)


def test_a_permission_that_spot_alone_needs_keeps_on_demand_open():
    refused = cooldown_after(
        RefusalClass.UNAUTHORISED, wanted(), (), now_ns=0, epoch=1, detail="no", spot_only=True
    )

    assert cold(refused, wanted("b", "y", pool="other"), 1)
    assert not cold(refused, wanted(kind=CapacityType.ON_DEMAND), 1)
    assert not cold(refused, wanted(account="another"), 1)
    assert refused.until_ns == CoolingRules().account_s * NS_PER_S
