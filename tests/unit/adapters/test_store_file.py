"""`store.json` says what was written, and is refused where it is not."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.store_file import (
    STORE_FILE,
    STORE_FORMAT,
    new_identity,
    new_installation,
    read_identity,
    write_identity,
)
from spotline.application.installation import Installation, store_differences
from spotline.application.market_ingest.continuing import MarketIdentity
from spotline.contracts.errors import ConfigError

MARKET = MarketIdentity(
    source="market.parquet",
    slot_s=1800,
    first_slot_ns=1_772_323_200 * 10**9,
    offerings={"a": "8 x h100 as p5 in p", "b": "1 x a100 as p4 in p"},
    places=("virginia of 32 GPUs at 0.1 USD/kWh",),
)


def identity():
    return replace(
        new_identity(new_installation()),
        market=MARKET,
        partitions=(0,),
        incarnation=3,
        log_created="monday",
        last_seq=499,
        last_slot=33,
        restored="from a copy",
    )


def test_what_was_written_is_read(tmp_path):
    assert read_identity(tmp_path) is None
    said = identity()
    write_identity(tmp_path, said)

    assert read_identity(tmp_path) == said
    assert [path.name for path in tmp_path.iterdir()] == [STORE_FILE]


def test_two_installations_have_two_ids():
    assert new_installation() != new_installation()
    with pytest.raises(ValueError, match="must be 32 hexadecimal digits, was 'x'"):
        Installation(installation_id="x")


@given(content=st.binary(max_size=200) | st.just(b"[" * 5000) | st.just(b"{}"))
def test_what_is_no_identity_is_refused_with_the_way_forward(tmp_path_factory, content):
    store = tmp_path_factory.mktemp("store")
    (store / STORE_FILE).write_bytes(content)

    with pytest.raises(ConfigError, match="spotline store check"):
        read_identity(store)


@given(field=st.sampled_from(sorted(json.loads(json.dumps({"installation_id": 1, "market": 1})))))
def test_a_field_of_another_kind_is_refused(tmp_path_factory, field):
    store = tmp_path_factory.mktemp("store")
    write_identity(store, identity())
    said = json.loads((store / STORE_FILE).read_text())
    (store / STORE_FILE).write_text(json.dumps(said | {field: 7}))

    with pytest.raises(ConfigError, match="expected what a store writes"):
        read_identity(store)


def test_a_newer_store_is_refused_with_both_versions(tmp_path):
    write_identity(tmp_path, identity())
    said = json.loads((tmp_path / STORE_FILE).read_text())
    newer = {"format_version": STORE_FORMAT + 1, "last_used_by": "9.9"}
    (tmp_path / STORE_FILE).write_text(json.dumps(said | newer))

    with pytest.raises(ConfigError, match=r"found 2: the store was last used by Spotline 9\.9"):
        read_identity(tmp_path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slot_s": 600}, "slot length: expected 1800 s, found 600 s"),
        ({"first_slot_ns": 0}, "first slot: expected 2026-03-01T00:00:00Z, found 1970"),
        ({"offerings": {"c": "x"}}, "offerings: expected a, b, found c"),
        ({"places": ()}, "geography: expected virginia of 32 GPUs"),
    ],
)
def test_a_store_says_in_what_a_market_is_another(changed, said):
    (problem,) = store_differences(identity(), replace(MARKET, **changed), partition=0)
    assert problem.startswith(said)
    moved = replace(MARKET, source="elsewhere.parquet")
    assert list(store_differences(identity(), moved, partition=0)) == []
    (other,) = store_differences(identity(), MARKET, partition=1)
    assert other == "partition: expected 0, found 1"
