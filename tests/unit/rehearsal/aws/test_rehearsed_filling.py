"""Laws of filling a fleet from pools."""

from hypothesis import given
from hypothesis import strategies as st

from spotline.rehearsal.aws.ec2.filling import Pool, Wish, fill

POOLS = st.lists(
    st.builds(
        Pool,
        name=st.sampled_from("abcd"),
        zone=st.sampled_from(["z1", "z2"]),
        instance_type=st.sampled_from(["p", "q"]),
        lifecycle=st.just("spot"),
        free=st.integers(0, 9),
        price_micro_usd=st.integers(1, 9),
        vcpus=st.sampled_from([4, 8]),
        quota_code=st.sampled_from(["L-1", "L-2"]),
        subnet=st.sampled_from(["s1", "s2"]),
        max_price_micro_usd=st.none() | st.integers(0, 9),
        weight=st.sampled_from([1.0, 2.0]),
    ),
    min_size=1,
    max_size=5,
)
WISHES = st.builds(
    Wish,
    target=st.integers(1, 20),
    least=st.integers(0, 12),
    strategy=st.sampled_from(["lowest-price", "capacity-optimized", "prioritized"]),
    single_zone=st.booleans(),
    single_type=st.booleans(),
    most_total_micro_usd=st.none() | st.integers(0, 60),
)
LEFT = st.integers(0, 60)


@given(pools=POOLS, wish=WISHES, vcpus=LEFT, addresses=st.integers(0, 9))
def test_a_filling_keeps_every_bound(pools, wish, vcpus, addresses):
    filling = fill(pools, wish, {"L-1": vcpus, "L-2": vcpus}, {"s1": addresses, "s2": addresses})
    got = [(pools[index], count) for index, count in filling.counts.items()]
    weight = sum(pool.weight * count for pool, count in got)

    def used(of, amount=lambda pool: 1):
        sums = {}
        for pool, count in got:
            sums[of(pool)] = sums.get(of(pool), 0) + count * amount(pool)
        return sums

    assert all(count > 0 for _, count in got)
    assert not got or weight >= wish.least
    # The last instance may go beyond the target, by less than its weight.
    assert weight < wish.target + max((pool.weight for pool, _ in got), default=1)
    assert all(v <= vcpus for v in used(lambda p: p.quota_code, lambda p: p.vcpus).values())
    assert all(v <= addresses for v in used(lambda p: p.subnet).values())
    for pool, count in got:
        assert count <= pool.free
        assert pool.max_price_micro_usd is None or pool.price_micro_usd <= pool.max_price_micro_usd
    if wish.most_total_micro_usd is not None:
        spent = sum(pool.price_micro_usd * count for pool, count in got)
        assert spent <= wish.most_total_micro_usd
    if wish.single_zone:
        assert len({pool.zone for pool, _ in got}) <= 1
    if wish.single_type:
        assert len({pool.instance_type for pool, _ in got}) <= 1


@given(pools=POOLS, wish=WISHES)
def test_without_bounds_but_capacity_a_pool_gives_all_it_has_or_all_that_is_asked(pools, wish):
    free = Pool(**{**_fields(pools[0]), "max_price_micro_usd": None, "weight": 1.0})
    ample = Wish(target=wish.target)
    filling = fill([free], ample, {free.quota_code: 10**6}, {free.subnet: 10**6})

    assert filling.counts.get(0, 0) == min(free.free, wish.target)
    assert [r.code for r in filling.refusals] == (
        ["InsufficientInstanceCapacity"] if free.free < wish.target else []
    )


def _fields(pool):
    return {name: getattr(pool, name) for name in pool.__dataclass_fields__}
