"""A file of limits on spending: read in full, and refused with the field that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.files.limits_file import limits_text, read_limits
from spotline.adapters.files.mistake import BadFile
from spotline.domain.limits.spending import (
    DEFAULT_SPENDING,
    NO_LIMIT,
    Spending,
    SpendLimit,
    spending_of,
)

WHOLE = """
total: {usd_per_hour: 200, usd_per_day: 3000, usd_per_month: 50000}
spot: {usd_per_day: 2000}
on_demand: {usd_per_hour: 80.5}
quotas: {"aws:us-east-1": 16}
every_tenant: {usd_per_day: 500}
tenants:
  research: {usd_per_day: 1500}
least_spot_discount_percent: 20
launches_per_minute: 100
usd_per_job: 75.5
"""

LIMITS = st.builds(
    SpendLimit,
    micro_usd_per_hour=st.none() | st.integers(0, 10**15),
    micro_usd_per_day=st.none() | st.integers(0, 10**15),
    micro_usd_per_month=st.none() | st.integers(0, 10**15),
)

# Of what a name may be: no control characters, and a key that YAML reads as text.
NAMES = st.text("abc:/-_1é", min_size=1, max_size=8)


def test_all_that_is_stated_is_read(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(WHOLE)

    assert read_limits(file) == Spending(
        total=SpendLimit(
            micro_usd_per_hour=200 * 10**6,
            micro_usd_per_day=3000 * 10**6,
            micro_usd_per_month=50_000 * 10**6,
        ),
        spot=SpendLimit(micro_usd_per_day=2000 * 10**6),
        on_demand=SpendLimit(micro_usd_per_hour=80_500_000),
        quotas={"aws:us-east-1": 16},
        every_tenant=SpendLimit(micro_usd_per_day=500 * 10**6),
        tenants={"research": SpendLimit(micro_usd_per_day=1500 * 10**6)},
        least_spot_discount_ppm=200_000,
        launches_per_minute=100,
        micro_usd_per_job=75_500_000,
    )


def test_without_a_file_the_default_limits_hold() -> None:
    assert read_limits(None) == DEFAULT_SPENDING


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("totl: {usd_per_hour: 1}", "totl"),
        ("total: {usd_per_week: 1}", "total.usd_per_week"),
        ("total: {usd_per_hour: -1}", "total.usd_per_hour"),
        ("tenants: {a: {usd_per_day: many}}", "tenants.a.usd_per_day"),
        ("least_spot_discount_percent: 101", "least_spot_discount_percent"),
        ("quotas: {a: -1}", "quotas.a"),
        ("launches_per_minute: 0.5", "launches_per_minute"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, text: str, field: str) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(text)

    with pytest.raises(BadFile, match=field):
        read_limits(file)


@given(
    st.builds(
        Spending,
        total=LIMITS,
        spot=LIMITS,
        on_demand=LIMITS,
        every_tenant=LIMITS,
        tenants=st.dictionaries(st.text(min_size=1, max_size=5), LIMITS, max_size=3),
        least_spot_discount_ppm=st.integers(0, 10**6),
        quotas=st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 999), max_size=3),
        launches_per_minute=st.none() | st.integers(0, 1000),
    )
)
def test_limits_are_written_and_read_as_the_same_text(spending: Spending) -> None:
    assert spending_of(spending.to_json()) == spending


@given(
    st.builds(
        Spending,
        total=LIMITS,
        on_demand=LIMITS,
        every_tenant=LIMITS,
        tenants=st.dictionaries(NAMES, LIMITS.filter(lambda limit: limit != NO_LIMIT), max_size=3),
        quotas=st.dictionaries(NAMES, st.integers(0, 999), max_size=3),
        least_spot_discount_ppm=st.integers(0, 10**6),
        launches_per_minute=st.integers(1, 1000),
    )
)
def test_a_file_that_is_written_reads_as_the_same_limits(
    tmp_path_factory: pytest.TempPathFactory, spending: Spending
) -> None:
    file = tmp_path_factory.mktemp("limits") / "limits.yaml"
    file.write_text(limits_text(spending), encoding="utf-8")

    assert read_limits(file) == spending


def test_texts_of_before_there_were_quotas_stay_the_same() -> None:
    assert "quotas" not in DEFAULT_SPENDING.to_json()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "must be JSON"),
        ("[]", "limits must be an object, was list"),
        ('{"totl": {}}', "must hold only"),
        ('{"total": {"micro_usd_per_day": 0.5}}', "limits.total.micro_usd_per_day"),
        ('{"total": {"micro_usd_per_day": -1}}', "must be >= 0"),
        ('{"tenants": {"a": 3}}', "limits.tenants.a must be an object"),
        ('{"quotas": {"a": null}}', "limits.quotas.a"),
        ('{"quotas": {"a": -1}}', "quotas of a must be >= 0"),
        ('{"launches_per_minute": true}', "limits.launches_per_minute"),
    ],
)
def test_a_text_that_is_none_is_refused_with_the_field(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        spending_of(text)
