"""Sampled futures: equal for equal pasts, drawn together, and the wider the less is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spotline.application.outlook.futures import sample_futures
from spotline.domain.forecasting.law_book import LawBook
from tests.fakes.allocator import EAST, WEST, slot_opened


def futures_after(history, *, futures: int = 200, slots: int = 24, seed: str = "s"):
    book = LawBook()
    for opened in history:
        book.observe(opened)
    return sample_futures(history, book.learn(), futures=futures, slots=slots, seed=seed)


def in_turns(slots: int, every: int):
    return [slot_opened(k, spot=4 if k // every % 2 else 0) for k in range(slots)]


def test_equal_pasts_and_seeds_have_equal_futures_and_others_do_not() -> None:
    history = in_turns(60, 7)
    one, same, other = (futures_after(history, seed=seed) for seed in ("a", "a", "b"))

    assert np.array_equal(one.offerings[EAST].spot, same.offerings[EAST].spot)
    assert not np.array_equal(one.offerings[EAST].spot, other.offerings[EAST].spot)


def test_longer_futures_begin_with_the_shorter_ones() -> None:
    history = [
        slot_opened(k, spot=k % 5, spot_price=3_000_000 + 9_000 * (k % 7)) for k in range(50)
    ]
    short, long = (futures_after(history, slots=slots).offerings[WEST] for slots in (6, 30))

    assert np.array_equal(short.spot, long.spot[:, :6])
    assert np.array_equal(short.spot_price, long.spot_price[:, :6])


def test_a_short_past_leaves_more_open_than_a_long_one() -> None:
    short, long = (futures_after(in_turns(slots, 10)) for slots in (30, 400))

    def spread(found) -> float:
        return float(found.offerings[EAST].spot.mean(axis=1).std())

    assert spread(short) > spread(long)


def up_and_down(slots: int, seed: int) -> list[int]:
    rng = np.random.Generator(np.random.PCG64(seed))
    counts, up = [], True
    for _ in range(slots):
        up = up if rng.random() < 0.85 else not up
        counts.append(4 if up else 0)
    return counts


def test_offerings_that_went_together_go_together() -> None:
    east, other = up_and_down(300, 1), up_and_down(300, 2)

    def together(west) -> float:
        history = [
            replace(
                slot_opened(k, spot=east[k]),
                quotes=(
                    *slot_opened(k, spot=east[k], offering_ids=(EAST,)).quotes,
                    *slot_opened(k, spot=west[k], offering_ids=(WEST,)).quotes,
                ),
            )
            for k in range(300)
        ]
        found = futures_after(history, futures=400)
        up = [found.offerings[name].spot[:, :6].mean(axis=1) for name in (EAST, WEST)]
        return float(np.corrcoef(*up)[0, 1])

    assert together(east) > together(other) + 0.2


def test_a_price_that_never_moved_stays_and_one_that_did_is_bounded() -> None:
    still = futures_after([slot_opened(k) for k in range(40)]).offerings[EAST]
    moving = futures_after(
        [slot_opened(k, spot_price=3_000_000 + 200_000 * (k % 5)) for k in range(80)]
    ).offerings[EAST]

    assert set(np.unique(still.spot_price)) == {3_000_000}
    assert moving.spot_price.std() > 10_000
    assert moving.spot_price.min() > 2_000_000
    assert moving.spot_price.max() <= 10_000_000


def test_counts_stay_among_those_that_were_seen() -> None:
    found = futures_after(in_turns(80, 6)).offerings[EAST]

    assert set(np.unique(found.spot)) == {0, 4}
