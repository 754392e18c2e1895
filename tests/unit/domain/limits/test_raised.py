"""Limits that are set while a system runs, beside those that settings state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.limits.raised import (
    LimitAt,
    LimitKind,
    NewLimit,
    in_force,
    limit_named,
    stated_at,
)
from spotline.domain.limits.spending import PER_JOB, SPANS_S, Spending, SpendLimit
from spotline.domain.market.offering import CapacityType

AMOUNTS = st.integers(0, 10**12)
LIMITS = st.builds(
    SpendLimit,
    micro_usd_per_hour=AMOUNTS,
    micro_usd_per_day=st.none() | AMOUNTS,
    micro_usd_per_month=st.none() | AMOUNTS,
)
STATED = st.builds(
    Spending,
    total=LIMITS,
    spot=LIMITS,
    on_demand=LIMITS,
    every_tenant=LIMITS,
    tenants=st.dictionaries(st.sampled_from("ab"), LIMITS),
    quotas=st.just({"pool": 4}),
    micro_usd_per_job=AMOUNTS,
)
KEYS = {LimitKind.TENANT: "a", LimitKind.QUOTA: "pool"}


def at(kind: LimitKind) -> LimitAt:
    return LimitAt(kind=kind, key=KEYS.get(kind, ""), span_s=3600 if kind.in_a_time else 0)


@given(STATED, st.sampled_from(LimitKind), AMOUNTS)
def test_what_was_set_counts_and_nothing_else_changes(stated, kind, most):
    where = at(kind)
    limit = NewLimit(at=where, stated=stated_at(stated, where), most=most)
    found = in_force(stated, [limit])

    assert stated_at(found, where) == most
    assert in_force(found, [replace(limit, stated=most, most=limit.stated)]) == (
        stated
        if kind is not LimitKind.TENANT or "a" in stated.tenants
        # It had none of its own: now it has what every tenant has.
        else replace(stated, tenants={**stated.tenants, "a": stated.every_tenant})
    )
    others = [at(other) for other in LimitKind if other is not kind]
    untouched = [
        other
        for other in others
        if (kind, other.kind) != (LimitKind.EVERY_TENANT, LimitKind.TENANT) or "a" in stated.tenants
    ]
    assert [stated_at(found, o) for o in untouched] == [stated_at(stated, o) for o in untouched]


@given(STATED, st.sampled_from(LimitKind), AMOUNTS, AMOUNTS)
def test_settings_that_state_another_limit_by_now_win(stated, kind, most, before):
    where = at(kind)
    limit = NewLimit(at=where, stated=before, most=most)

    if before != stated_at(stated, where):
        assert in_force(stated, [limit]) == stated


def test_a_tenants_own_limit_is_made_of_every_tenants_in_whatever_order_they_were_set():
    stated = Spending(every_tenant=SpendLimit(micro_usd_per_hour=10, micro_usd_per_day=100))
    limits = [
        NewLimit(at=at(LimitKind.TENANT), stated=10, most=20),
        NewLimit(
            at=LimitAt(kind=LimitKind.EVERY_TENANT, span_s=SPANS_S["day"]), stated=100, most=200
        ),
    ]

    found = in_force(stated, limits)

    assert found == in_force(stated, limits[::-1])
    assert found.tenants == {"a": SpendLimit(micro_usd_per_hour=20, micro_usd_per_day=200)}


@pytest.mark.parametrize("kind", LimitKind)
def test_what_is_no_limit_is_refused_with_its_field(kind):
    with pytest.raises(ValueError, match="span_s"):
        LimitAt(kind=kind, key=KEYS.get(kind, ""), span_s=7)
    with pytest.raises(ValueError, match="key"):
        replace(at(kind), key="" if kind in KEYS else "x")
    with pytest.raises(ValueError, match="most"):
        NewLimit(at=at(kind), stated=1, most=-1)


@given(STATED, st.sampled_from(CapacityType))
def test_a_limit_that_a_job_has_reached_is_found_by_its_name(stated, capacity):
    found = stated.left({}, "a", capacity)
    assert found is not None
    where = limit_named(found[1], "a")

    assert where is not None
    assert found[0] == stated_at(stated, where)


def test_limits_of_a_job_alone_name_none():
    assert limit_named(PER_JOB, "a") == at(LimitKind.JOB)
    assert limit_named("quota of pool", "a") == at(LimitKind.QUOTA)
    for own in ("job budget", "forward", "launches per minute"):
        assert limit_named(own, "a") is None


def test_its_command_sets_it():
    assert at(LimitKind.TOTAL).command == (
        "spotline limits set total --span hour --usd AMOUNT --reason WHY"
    )
    assert at(LimitKind.QUOTA).command == (
        "spotline limits set quota pool --instances N --reason WHY"
    )
