"""A snapshot that cannot be used is set aside, and the service learns again from the log."""

import hashlib
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.turn import Turns
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.snapshots import Snapshot, SnapshotKeeper, Snapshots, opened, sealed
from tests.fakes.toy import ToyCodec, ToyHandler

KEPT = Snapshot(seq=7, version="1", content=b'["a"]\n{}')


class MemoryStore:
    """A `SnapshotStore` that fails as it is told to."""

    def __init__(self, data=None, *, fails=None):
        self.kept = {} if data is None else {"toy": data}
        self.aside = {}
        self.fails = fails

    async def put(self, name, data):
        self.kept[name] = data

    async def get(self, name):
        if self.fails is not None:
            raise self.fails
        return self.kept.get(name)

    async def set_aside(self, name):
        if isinstance(self.fails, ProviderUnavailable):
            raise self.fails
        self.aside[name] = self.kept.pop(name, None)


def keeper_of(store):
    turns = Turns(ToyHandler())
    return SnapshotKeeper(turns, Snapshots(store=store, codec=ToyCodec())), turns


async def saved():
    store = MemoryStore()
    keeper, turns = keeper_of(store)
    name = turns.service
    await keeper.save(7)
    return name, store.kept[name]


def test_a_snapshot_comes_back_as_it_was():
    assert opened(sealed(KEPT)) == KEPT


@given(seq=st.integers(1, 2**63 - 1), version=st.text(max_size=50), content=st.binary(max_size=200))
def test_every_snapshot_comes_back_as_it_was(seq, version, content):
    snapshot = Snapshot(seq=seq, version=version, content=content)

    assert opened(sealed(snapshot)) == snapshot


@given(noise=st.binary(min_size=1, max_size=40), at=st.integers(0, 300), cut=st.integers(0, 300))
def test_a_changed_or_truncated_snapshot_is_refused(noise, at, cut):
    data = sealed(KEPT)
    for changed in (data[:at] + noise + data[at + len(noise) :], data[:cut], noise):
        if changed == data:
            continue
        with pytest.raises(ValueError, match="snapshot"):
            opened(changed)


@pytest.mark.parametrize(
    "head", [b"[]", b"{}", b"[" * 4000, b"9" * 4000, b'{"seq":1,"sha256":1,"version":2}', b"\xff"]
)
def test_a_strange_head_is_refused(head):
    with pytest.raises(ValueError, match="snapshot"):
        opened(b"spotline-snapshot 1\n" + head + b"\n")


@pytest.mark.parametrize("seq", [0, -1, 2**63, True, 1.0, "1", None])
def test_a_snapshot_of_no_input_is_refused(seq):
    checksum = hashlib.sha256(f"{seq} 1\n".encode()).hexdigest()
    head = json.dumps({"seq": seq, "sha256": checksum, "version": "1"}).encode()

    with pytest.raises(ValueError, match="snapshot"):
        opened(b"spotline-snapshot 1\n" + head + b"\n")


async def test_a_state_that_was_kept_is_taken_over():
    name, data = await saved()
    store = MemoryStore()
    store.kept[name] = data
    keeper, turns = keeper_of(store)

    assert await keeper.load(last_seq=7) == 7
    assert keeper.set_aside == 0
    assert turns.state == ToyHandler().initial()


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a snapshot ran code",))


def resealed(content, *, seq=7, version="1"):
    return sealed(Snapshot(seq=seq, version=version, content=content))


UNUSABLE = {
    "pickled": pickle.dumps(Evil()),
    "pickled inside": resealed(b"[]\n" + pickle.dumps(Evil())),
    "of the former format": b'{"seq": 7, "version": "1"}\n[]\n{}',
    "empty": b"",
    "of another version": resealed(b"[]\n{}", version="0"),
    "of a longer log": resealed(b"[]\n{}", seq=8),
    "without ids": resealed(b"{}"),
    "with ids that are none": resealed(b"[1]\n{}"),
    "with ids that are no JSON": resealed(b"ids\n{}"),
    "with nested ids": resealed(b"[" * 200_000 + b"\n{}"),
    "with a state that is none": resealed(b"[]\nnothing"),
}


@pytest.mark.parametrize("wrong", UNUSABLE)
async def test_what_cannot_be_used_is_set_aside(wrong):
    name, _ = await saved()
    store = MemoryStore()
    store.kept[name] = UNUSABLE[wrong]
    keeper, turns = keeper_of(store)

    assert await keeper.load(last_seq=7) == 0

    assert store.aside == {name: UNUSABLE[wrong]}
    assert store.kept == {}
    assert keeper.set_aside == 1
    assert turns.state == ToyHandler().initial()
    assert turns.applied_ids() == []


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), RecursionError(), MemoryError()])
async def test_whatever_a_codec_stumbles_over_the_snapshot_is_set_aside(error):
    class Stumbles(ToyCodec):
        def load(self, dumped):
            raise error

    store = MemoryStore()
    store.kept["toy"] = resealed(b"[]\n{}")
    keeper = SnapshotKeeper(Turns(ToyHandler()), Snapshots(store=store, codec=Stumbles()))

    assert await keeper.load(last_seq=7) == 0
    assert list(store.aside) == ["toy"]


async def test_what_the_store_finds_damaged_is_set_aside():
    store = MemoryStore(fails=ValueError("its digest differs"))
    keeper, _ = keeper_of(store)

    assert await keeper.load(last_seq=7) == 0
    assert keeper.set_aside == 1
    assert list(store.aside) == [keeper._turns.service]


async def test_a_store_that_does_not_answer_costs_a_refold():
    store = MemoryStore(fails=ProviderUnavailable("not now"))
    keeper, _ = keeper_of(store)

    assert await keeper.load(last_seq=7) == 0
    assert keeper.set_aside == 0
