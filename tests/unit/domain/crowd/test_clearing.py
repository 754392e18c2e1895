"""One slot cleared: against every way to clear it, and against serving in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.crowd.bids import Bid, Capacity, Option, resources_of, takes_of
from spotline.domain.crowd.clearing import clear
from spotline.domain.crowd.program import allowed_options, parts_of, served_in_order
from spotline.domain.crowd.search import BRIEF_WORK, clear_part
from tests.depth import examples

OFFERINGS = ("a", "b")


def idle(value: int = 0, *, safe: bool = True) -> Option:
    return Option(offering_id="a", spot=0, on_demand=0, value_micro_usd=value, safe=safe)


def spot(offering: str, count: int, value: int, **more: object) -> Option:
    return Option(offering_id=offering, spot=count, on_demand=0, value_micro_usd=value, **more)  # type: ignore[arg-type]


@st.composite
def options(draw: st.DrawFn) -> Option:
    on_demand = draw(st.integers(0, 3))
    return Option(
        offering_id=draw(st.sampled_from(OFFERINGS)),
        spot=draw(st.integers(0, 4)),
        on_demand=on_demand,
        excepted=draw(st.integers(0, on_demand)),
        value_micro_usd=draw(st.integers(-20, 60)),
        cost_micro_usd=draw(st.integers(0, 6)),
        safe=draw(st.booleans()),
    )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Bid], Capacity]:
    bids = []
    for index in range(draw(st.integers(1, 5))):
        wanted = draw(st.lists(options(), max_size=3))
        resting = idle(draw(st.integers(-20, 20)), safe=draw(st.booleans()))
        rank = draw(st.integers(-3, 3))
        bids.append(Bid(job_id=f"j{index}", rank=rank, options=(*wanted, resting)))
    counts = st.integers(0, 7)
    pooled = draw(st.booleans())
    capacity = Capacity(
        spot={offering: draw(counts) for offering in draw(st.sets(st.sampled_from(OFFERINGS)))},
        on_demand={
            offering: draw(counts) for offering in draw(st.sets(st.sampled_from(OFFERINGS)))
        },
        quota_pools={"a": "p", "b": "p"} if pooled else {},
        quotas={"p": draw(counts)} if pooled else {},
        budget_micro_usd=draw(st.none() | st.integers(0, 15)),
    )
    return bids, capacity


def taken_by(bids: Iterable[Bid], chosen: Sequence[int], capacity: Capacity) -> dict[object, int]:
    taken = dict.fromkeys(resources_of(capacity), 0)
    for bid, at in zip(bids, chosen, strict=True):
        for key, amount in takes_of(bid.options[at], capacity).items():
            taken[key] += amount
    return taken


def fits(bids: Iterable[Bid], chosen: Sequence[int], capacity: Capacity) -> bool:
    limits = resources_of(capacity)
    return all(amount <= limits[key] for key, amount in taken_by(bids, chosen, capacity).items())


def worth(bids: Iterable[Bid], chosen: Sequence[int]) -> int:
    return sum(bid.options[at].value_micro_usd for bid, at in zip(bids, chosen, strict=True))


def best_of_all(bids: Sequence[Bid], capacity: Capacity) -> int:
    """The most that any clearing is worth that keeps safe what serving in order keeps safe."""
    allowed = allowed_options(bids, served_in_order(bids, capacity))
    ways = itertools.product(*allowed)
    return max(worth(bids, way) for way in ways if fits(bids, way, capacity))


@settings(max_examples=examples(120), deadline=None)
@given(crowds())
def test_clearing_is_the_best_of_all_ways_to_clear(crowd: tuple[list[Bid], Capacity]) -> None:
    bids, capacity = crowd

    cleared = clear(bids, capacity)

    chosen = [cleared.chosen[bid.job_id] for bid in bids]
    assert fits(bids, chosen, capacity)
    assert cleared.value_micro_usd == worth(bids, chosen) == best_of_all(bids, capacity)
    assert cleared.proven


@settings(max_examples=examples(60), deadline=None)
@given(crowds())
def test_never_worse_than_in_order_and_as_safe(crowd: tuple[list[Bid], Capacity]) -> None:
    bids, capacity = crowd
    served = served_in_order(bids, capacity)

    cleared = clear(bids, capacity)

    for bid, at in zip(bids, served, strict=True):
        assert bid.options[cleared.chosen[bid.job_id]].safe or not bid.options[at].safe
    assert cleared.value_micro_usd >= worth(bids, served)


@settings(max_examples=examples(40), deadline=None)
@given(crowds(), st.randoms(use_true_random=False))
def test_the_order_of_bids_does_not_matter(crowd: tuple[list[Bid], Capacity], chance) -> None:
    bids, capacity = crowd
    shuffled = list(bids)
    chance.shuffle(shuffled)

    assert clear(bids, capacity) == clear(shuffled, capacity)


@settings(max_examples=examples(60), deadline=None)
@given(crowds())
def test_less_work_or_exchanges_alone_are_feasible_and_say_how_far_they_may_be_off(
    crowd: tuple[list[Bid], Capacity],
) -> None:
    bids, capacity = crowd
    served = served_in_order(bids, capacity)
    parts, _ = parts_of(bids, capacity, allowed_options(bids, served))
    for part in parts:
        rows = [
            next(row for row in part.rows(job) if part.origins[row] == served[bid])
            for job, bid in enumerate(part.jobs)
        ]
        exact = clear_part(part, rows)
        for work in (0, BRIEF_WORK):
            found = clear_part(part, rows, work=work)

            assert part.fits(part.used(found.rows))
            assert part.worth(rows) <= found.worth <= exact.worth <= found.bound


def test_spot_goes_to_the_job_it_is_worth_most_to() -> None:
    # The one with less slack could do with on-demand for little more.
    first = Bid(job_id="tight", rank=0, options=(spot("a", 4, 10), idle(8)))
    other = Bid(job_id="loose", rank=5, options=(spot("a", 4, 10), idle(0)))

    cleared = clear([first, other], Capacity(spot={"a": 4}))

    assert cleared.chosen == {"tight": 1, "loose": 0}
    assert cleared.spot_price["a"] * 4 >= 2


def test_a_job_moves_where_that_frees_what_another_needs_more() -> None:
    mobile = Bid(job_id="m", rank=0, options=(spot("a", 4, 10), spot("b", 4, 9), idle(0)))
    bound = Bid(job_id="n", rank=1, options=(spot("a", 4, 10), idle(0)))

    cleared = clear([mobile, bound], Capacity(spot={"a": 4, "b": 4}))

    assert cleared.chosen == {"m": 1, "n": 0}


def test_a_quota_pool_couples_offerings() -> None:
    capacity = Capacity(spot={"a": 8, "b": 8}, quota_pools={"a": "p", "b": "p"}, quotas={"p": 6})
    bids = [
        Bid(job_id="m", rank=0, options=(spot("a", 4, 10), spot("a", 2, 7), idle(0))),
        Bid(job_id="n", rank=1, options=(spot("b", 4, 9), spot("b", 2, 4), idle(0))),
    ]

    cleared = clear(bids, capacity)

    assert cleared.chosen == {"m": 1, "n": 0}


def test_what_is_held_stays_where_the_stock_has_run_out() -> None:
    kept = Option(offering_id="a", spot=0, on_demand=4, value_micro_usd=5, from_stock=0)

    cleared = clear(
        [Bid(job_id="j", rank=0, options=(kept, idle(0)))], Capacity(on_demand={"a": 0})
    )

    assert cleared.chosen == {"j": 0}


def test_jobs_that_can_only_be_safe_with_one_scarce_thing_or_another_are_cleared() -> None:
    # The linear relaxation has both lean to what one of them alone can have, and neither can take less.
    bids = [
        Bid(
            job_id=f"job-{rank}",
            rank=rank,
            options=(spot("a", 8, 100), spot("b", 8, 90), idle(safe=False)),
        )
        for rank in (1, 2)
    ]
    bids.append(Bid(job_id="job-0", rank=0, options=(spot("b", 2, 50), idle())))

    cleared = clear(bids, Capacity(spot={"a": 13, "b": 12}))

    assert cleared.value_micro_usd == 240
    assert cleared.proven


def test_a_large_slot_over_many_offerings_is_cleared_to_within_a_thousandth() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    offerings = [f"o{k}" for k in range(6)]
    bids = []
    for index in range(60):
        places = rng.choice(len(offerings), 3, replace=False)
        wanted = [
            spot(offerings[k], count, int(1e6 * rng.uniform(0.5, 1.0) * count**0.7))
            for k in places
            for count in (2, 4, 8)
        ]
        bids.append(Bid(job_id=f"j{index:03}", rank=index, options=(*wanted, idle(0))))
    capacity = Capacity(spot=dict.fromkeys(offerings, 24))

    cleared = clear(bids, capacity)

    assert cleared.gap_micro_usd <= cleared.value_micro_usd // 1000
    assert cleared.value_micro_usd >= worth(bids, served_in_order(bids, capacity))


def test_a_bid_without_a_way_to_take_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold one that takes nothing"):
        clear([Bid(job_id="j", rank=0, options=(spot("a", 1, 1),))], Capacity(spot={"a": 3}))
