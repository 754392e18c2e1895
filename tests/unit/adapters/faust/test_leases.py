import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.adapters.faust.leases import (
    NOBODY,
    LeaseWatch,
    dump_group,
    parse_group,
    released,
    shares,
    surplus,
    takeable,
    taken,
    with_beat,
    with_partitions,
    without,
)


def group(*, partitions, workers=()):
    made = with_partitions(NOBODY, partitions)
    for name in workers:
        made = with_beat(made, name, nonce=f"nonce-{name}")
    return made


def settled(one):
    """Let everybody give up and take what falls to them, until nothing changes."""
    for _ in range(2 * len(one.leases) + 2):
        before = one
        for name in sorted(one.workers):
            one = released(one, name, surplus(one, name))
        for name in sorted(one.workers):
            one = taken(one, name, takeable(one, name))
        if one == before:
            return one
    raise AssertionError("partitions keep moving")


def counts(one):
    return sorted(len(one.owned_by(name)) for name in one.workers)


def test_a_first_worker_takes_everything():
    one = settled(group(partitions=4, workers=["a"]))

    assert one.owned_by("a") == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_worker_that_joins_gets_its_share_and_the_rest_stays():
    before = settled(group(partitions=4, workers=["a"]))

    after = settled(with_beat(before, "b", nonce="b"))

    assert counts(after) == [2, 2]
    assert set(after.owned_by("a")) < set(before.owned_by("a"))
    assert all(after.leases[p] == before.leases[p] for p in after.owned_by("a"))
    assert set(after.owned_by("b").values()) == {2}


def test_nobody_takes_what_is_not_yet_given_up():
    before = settled(group(partitions=4, workers=["a"]))
    joined = with_beat(before, "b", nonce="b")

    assert takeable(joined, "b") == frozenset()
    assert len(surplus(joined, "a")) == 2


def test_partitions_of_a_dead_worker_go_to_the_others_in_a_new_epoch():
    before = settled(group(partitions=5, workers=["a", "b"]))
    lost = set(before.owned_by("a"))

    after = settled(without(before, ["a"]))

    assert len(after.owned_by("b")) == 5
    assert all(after.leases[p].epoch == before.leases[p].epoch + 1 for p in lost)


def test_a_restarted_worker_takes_its_own_partitions_over_at_once():
    before = settled(group(partitions=2, workers=["a"]))

    after = settled(with_beat(before, "a", nonce="another process"))

    assert after.owned_by("a") == {0: 2, 1: 2}


def test_a_worker_too_many_has_nothing_to_do():
    one = settled(group(partitions=2, workers=["a", "b", "c"]))

    assert counts(one) == [0, 1, 1]


def test_partitions_only_grow():
    one = group(partitions=3)

    assert with_partitions(one, 1) == one
    assert len(with_partitions(one, 5).leases) == 5


def test_only_ones_own_partitions_can_be_released():
    one = settled(group(partitions=2, workers=["a", "b"]))

    assert released(one, "a", one.owned_by("b")) == one


WORKERS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.sampled_from(["beat", "restart", "die", "release", "take", "grow"]), WORKERS),
    max_size=60,
)


@given(STEPS)
@settings(deadline=None)
def test_epochs_rise_with_every_new_owner_and_shares_come_out_even(steps):
    one = group(partitions=5, workers=["a"])
    for number, (kind, name) in enumerate(steps):
        before = one
        if kind == "beat":
            nonce = one.workers[name].nonce if name in one.workers else str(number)
            one = with_beat(one, name, nonce=nonce)
        elif kind == "restart":
            one = with_beat(one, name, nonce=str(number))
        elif kind == "die":
            one = without(one, [name])
        elif kind == "release":
            one = released(one, name, surplus(one, name))
        elif kind == "take" and name in one.workers:
            one = taken(one, name, takeable(one, name))
        elif kind == "grow":
            one = with_partitions(one, min(len(one.leases) + 1, 8))
        for partition, lease in before.leases.items():
            now = one.leases[partition]
            assert now.epoch >= lease.epoch
            if now.owner not in ("", lease.owner):
                assert now.epoch > lease.epoch
        assert parse_group(dump_group(one)) == one

    if one.workers:
        one = settled(one)
        assert sum(shares(one).values()) == len(one.leases) == sum(counts(one))
        assert max(counts(one)) - min(counts(one)) <= 1


@given(STEPS, WORKERS, WORKERS)
def test_no_two_workers_take_the_same_partition(steps, one, other):
    some = group(partitions=6, workers=["a", "b", "c", "d"])
    for kind, name in steps:
        if kind == "take":
            some = taken(some, name, list(takeable(some, name))[:1])
        elif kind == "release":
            some = released(some, name, list(some.owned_by(name))[:1])

    if one != other:
        assert not takeable(some, one) & takeable(some, other)
    assert not takeable(some, one) & {
        p for p, lease in some.leases.items() if lease.owner in some.workers
    }


def test_a_worker_is_dead_when_it_was_silent_for_a_lease_under_somebodys_eyes():
    watch = LeaseWatch(10.0)
    one = group(partitions=1, workers=["a", "b"])

    assert watch.look(one, 100.0) == frozenset()
    one = with_beat(one, "b", nonce="nonce-b")
    assert watch.look(one, 109.9) == frozenset()
    assert watch.look(one, 110.0) == {"a"}
    assert watch.look(one, 119.9) == {"a", "b"}


def test_a_late_onlooker_waits_a_whole_lease_before_taking_anybody_for_dead():
    watch = LeaseWatch(10.0)

    assert watch.look(group(partitions=1, workers=["a"]), 1000.0) == frozenset()
    assert watch.look(group(partitions=1, workers=["a"]), 1009.0) == frozenset()


@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"workers": {"a": 1}, "leases": {}}', b"x"])
def test_a_document_that_is_none_is_refused(content):
    with pytest.raises(ValueError, match=r"malformed|Expecting"):
        parse_group(content)
