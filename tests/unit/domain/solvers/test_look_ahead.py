"""The compiled look-ahead against its definition: every candidate, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.accounting import LARGEST, RATE, Held, Standing, Terms
from spotline.domain.jobs.offer import Offer
from spotline.domain.solvers.table_look import Position, look_ahead
from tests.depth import examples

IntArray = npt.NDArray[np.int64]


def kind_of(held: tuple[int, int], wanted: tuple[int, int], *, interrupted: bool) -> int:
    if held == (0, 0):
        return 3
    if interrupted:
        return 4
    if wanted == held:
        return 0
    return 1 if wanted[0] <= held[0] and wanted[1] <= held[1] else 2


def defined_choice(
    after: npt.NDArray[np.float32],
    low: int,
    share: float,
    allowed: IntArray,
    rates: IntArray,
    overheads: IntArray,
    nearest: IntArray,
    pending_s: IntArray,
    cell: int,
    finish: int,
    held_spot: int,
    held_on_demand: int,
    interrupted: bool,
    pending_now_s: int,
    left: int,
    spot_price: int,
    on_demand_price: int,
    spot_available: int,
    on_demand_available: int,
    slot_left_s: int,
) -> tuple[int, int]:
    """What `look_ahead` decides, in plain words."""

    def cost(price: int, count: int) -> int:
        return (price * count * slot_left_s + 1800) // 3600

    def at_price(price: int, c: int, level: int, rest: int) -> float:
        j = (rest - 1) // cell
        # As floats first: above 2**53 the quotient of two integers may be rounded otherwise.
        part = float(rest - j * cell) / float(cell)
        value = float(after[price, c, level, j])
        if j > 0:
            value = part * value + (1.0 - part) * float(after[price, c, level, j - 1])
        return value

    def worth(c: int, level: int, rest: int) -> float:
        value = at_price(low, c, level, rest)
        if share > 0.0:
            value = (1.0 - share) * value + share * at_price(low + 1, c, level, rest)
        return value

    held = (held_spot, held_on_demand)
    best, best_set = worth(0, 0, left), (0, 0)
    for count in allowed:
        most_spot = min(count, spot_available)
        splits = [most_spot] + ([0] if most_spot else [])
        if 0 < held_spot < most_spot:
            splits.append(held_spot)
        for spot in splits:
            rest = count - spot
            if rest > on_demand_available:
                continue
            kind = kind_of(held, (spot, rest), interrupted=interrupted)
            lost_s = max(overheads[kind], pending_now_s)
            gained = rates[count] * max(0, slot_left_s - lost_s)
            paid = cost(spot_price, spot) + cost(on_demand_price, rest)
            if gained >= left:
                value = float(finish - paid)
            else:
                still_s = max(0, lost_s - slot_left_s)
                levels = [k for k, known_s in enumerate(pending_s) if known_s >= still_s]
                to = levels[0] if levels else len(pending_s) - 1
                value = worth(nearest[spot, rest], to, left - gained) - paid
            keeps = kind == 0 and held != (0, 0)
            if value > best or (value == best and (keeps or count >= sum(best_set))):
                best, best_set = value, (spot, rest)
    return best_set


@settings(max_examples=examples(300), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=27)
def test_the_compiled_choice_is_the_defined_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.integers(1, 9))
    allowed = np.flatnonzero(rng.random(most + 1) < 0.7).astype(np.int64)
    allowed = np.union1d(allowed[allowed > 0], [most]).astype(np.int64)
    sets, prices = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    pending_s = np.cumsum(np.append(0, rng.integers(100, 900, rng.integers(0, 3))))
    cells = int(rng.integers(1, 12))
    cell = int(rng.choice([1, 7, 1800, 10**12, 2**58 // cells]))
    # Coarse values tie.
    shape = (prices, sets, pending_s.size, cells)
    after = (rng.integers(-3, 4, shape) * 500_000).astype(np.float32)
    if rng.random() < 0.5:
        after = rng.normal(0, 2e6, shape).astype(np.float32)
    low = int(rng.integers(prices))
    share = float(rng.choice([0.0, rng.random()])) if low + 1 < prices else 0.0
    left = int(rng.integers(1, cell * cells + 1))
    held = (0, 0) if rng.random() < 0.3 else tuple(rng.integers(0, most + 1, 2).tolist())
    case = (
        after,
        low,
        share,
        allowed,
        rng.integers(1, max(2, min(2**58, cell * cells) // 900), most + 1),
        np.append(0, rng.choice([0, 90, 600, 1800, 2400], 4)),
        rng.integers(0, sets, (most + 1, most + 1)),
        pending_s.astype(np.int64),
        cell,
        int(rng.integers(0, 10**7)),
        *held,
        bool(rng.random() < 0.2),
        int(rng.choice([0, 0, 300, 2000])),
        left,
        int(rng.choice([0, 500_000, 1_000_000])),
        1_000_000,
        int(rng.choice([0, 1, 2, most, 16])),
        int(rng.choice([0, 2, 10**6])),
        int(rng.choice([1800, 1800, 600])),
    )

    assert compiled_choice(*case) == defined_choice(*case)


def compiled_choice(
    after: npt.NDArray[np.float32],
    low: int,
    share: float,
    allowed: IntArray,
    rates: IntArray,
    overheads: IntArray,
    nearest: IntArray,
    pending_s: IntArray,
    cell: int,
    finish: int,
    held_spot: int,
    held_on_demand: int,
    interrupted: bool,
    pending_now_s: int,
    left: int,
    spot_price: int,
    on_demand_price: int,
    spot_available: int,
    on_demand_available: int,
    slot_left_s: int,
) -> tuple[int, int]:
    """The same case in bundles."""
    # Keeping a set costs nothing: the first class of change has no seconds.
    shrink_s, grow_s, launch_s, interrupted_s = overheads[1:].tolist()
    terms = Terms(1800, left, 9, 9, 0, 0, launch_s, grow_s, shrink_s, interrupted_s, 0)
    by_count = np.zeros((3, rates.size), dtype=np.int64)
    by_count[RATE] = rates
    for count in allowed.tolist():
        by_count[LARGEST, count:] = count
    held = Held(held_spot, held_on_demand)
    standing = Standing(0, 0, held, pending_now_s, 0, int(interrupted), 0)
    market = (spot_price, on_demand_price, spot_available, on_demand_available)
    offer = Offer(*market, slot_left_s, 0, 0, 1, 0, -1, 0)
    position = Position(low, share, left, finish, cell)
    spot, on_demand = look_ahead(
        terms, standing, offer, position, after, by_count, nearest, pending_s
    )
    return spot, on_demand
