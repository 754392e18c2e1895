"""Possible futures of a whole market: counts by its learned laws, prices by its recent changes.

All offerings of a future are drawn together. What moved together in the past moves together: the
counts by the correlation of what the laws did not expect, the prices because a future's changes are
those of past slots, taken for all offerings at once and several slots in a row. A past that is
short says little of the laws: every future draws its own, the further from the learned ones the
shorter the past. A future of more slots begins with that of fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from spotline.domain.drawn import generator
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.law import MarketLaw, run_states, transitions
from spotline.domain.market.offering import Count, Quote
from spotline.domain.policies.prediction import UNCOUNTED

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Seen transitions that a law's own assumptions count for, per run state.
_ASSUMED_MOVES = 6.0
# Habits of a market change: of a run state at most so many transitions are taken as evidence.
_MOST_EVIDENCE = 60.0
# How far a whole future may leave its levels sooner or later than the law says, and how far it may
# go rather down than up (log, one sigma): days differ by more than one law tells.
_LEAVING_SIGMA = 0.6
_SLANT_SIGMA = 0.7
# In this share of the futures an offering is ruled by the law of another one: the best place of the
# recent past is seldom that much better later.
_LENT_SHARE = 0.35
# Slots that independence (of counts) and a slow return (of prices) count for.
_ASSUMED_SLOTS = 48.0
_ASSUMED_CORRELATION = 0.15
_ASSUMED_RETURN = 0.03
_LEAST_RETURN = 0.005
# Mean length of the stretches of the past that are played again, in slots.
_STRETCH_SLOTS = 24.0
# How far beyond what it was lately a price may go (log).
_BEYOND = 0.35
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingFutures:
    """One offering in every future; counts and prices have the shape (futures, slots).

    `spot` and `on_demand` are instances, prices micro-USD per instance-hour, that of on-demand the
    present one throughout.
    """

    spot: IntArray
    on_demand: IntArray
    spot_price: IntArray
    on_demand_price: int
    spot_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketFutures:
    """What may come after the latest slot, by offering id; slot 0 is the next one."""

    offerings: Mapping[str, OfferingFutures]
    futures: int
    slots: int


def sample_futures(
    history: Sequence[SlotOpened],
    laws: Mapping[str, MarketLaw],
    *,
    futures: int,
    slots: int,
    seed: str,
) -> MarketFutures:
    """Draw what may follow after the last of `history`; equal arguments give equal futures.

    An offering of unknown count stays unknown, taken for plenty; one that has no law keeps its
    count.
    """
    past = _Past.of(history)
    counts = _Counts(past, laws, futures, generator(seed, "counts"))
    prices = _Prices(past, futures, generator(seed, "prices"))
    shape = (len(past.ids), futures, slots)
    spot = np.empty(shape, dtype=np.int64)
    on_demand = np.empty(shape, dtype=np.int64)
    price = np.empty(shape, dtype=np.int64)
    for slot in range(slots):
        spot[:, :, slot] = counts.step()
        price[:, :, slot], on_demand[:, :, slot] = prices.step()
    found = {}
    for row, offering_id in enumerate(past.ids):
        found[offering_id] = OfferingFutures(
            spot=spot[row],
            on_demand=on_demand[row],
            spot_price=price[row],
            on_demand_price=past.last[offering_id].on_demand_price_micro_usd,
            spot_known=past.last[offering_id].spot_available.known,
        )
    return MarketFutures(offerings=found, futures=futures, slots=slots)


# --- the past ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """Every offering of the latest slot over the recent ones, shape (offerings, slots).

    A slot without a quote of an offering repeats the one before it (before the first: the first);
    an unknown count is -1.
    """

    ids: tuple[str, ...]
    last: Mapping[str, Quote]
    spot: IntArray
    on_demand: IntArray
    log_price: FloatArray

    @classmethod
    def of(cls, history: Sequence[SlotOpened]) -> _Past:
        last = {sq.quote.offering_id: sq.quote for sq in history[-1].quotes}
        ids = tuple(sorted(last))
        rows: dict[str, list[Quote]] = {offering_id: [] for offering_id in ids}
        for opened in history:
            quotes = {sq.quote.offering_id: sq.quote for sq in opened.quotes}
            for offering_id, row in rows.items():
                known = quotes.get(offering_id) or (row[-1] if row else None)
                if known is not None:
                    row.append(known)
        full = [[*[rows[i][0]] * (len(history) - len(rows[i])), *rows[i]] for i in ids]
        return cls(
            ids=ids,
            last=last,
            spot=_counts(full, "spot_available"),
            on_demand=_counts(full, "on_demand_available"),
            log_price=np.log(
                np.array([[q.spot_price_micro_usd for q in row] for row in full], dtype=np.float64)
            ),
        )


def _counts(rows: Sequence[Sequence[Quote]], name: str) -> IntArray:
    def count(quote: Quote) -> int:
        available: Count = getattr(quote, name)
        return available.instances if available.known else -1

    return np.array([[count(quote) for quote in row] for row in rows], dtype=np.int64)


# --- counts -----------------------------------------------------------------------------------


class _Counts:
    """Spot counts of all offerings, a slot at a time."""

    def __init__(
        self,
        past: _Past,
        laws: Mapping[str, MarketLaw],
        futures: int,
        rng: np.random.Generator,
    ) -> None:
        self._futures = futures
        self._rng = rng
        self._chains: list[_Chain | None] = []
        scores = []
        whole = rng.standard_normal((futures, 2))
        for row, offering_id in enumerate(past.ids):
            counts, law = past.spot[row], laws.get(offering_id)
            known = counts[counts >= 0]
            chain = None
            if law is not None and known.size and counts[-1] >= 0:
                # A good or a bad day is one for all offerings, half of it.
                own = rng.standard_normal((futures, 2))
                alike = [other for other in laws.values() if _lends(other, law)]
                chain = _Chain(law, alike, known, np.sqrt(0.5) * (whole + own), rng)
                scores.append(chain.surprises(counts))
            self._chains.append(chain)
        self._still = np.where(past.spot[:, -1] < 0, UNCOUNTED, past.spot[:, -1])
        self._mixing = _mixing(scores)

    def step(self) -> IntArray:
        """The counts of the next slot, shape (offerings, futures)."""
        found = np.repeat(self._still[:, None], self._futures, axis=1)
        if not self._mixing.size:
            return found
        normal = self._mixing @ self._rng.standard_normal((len(self._mixing), self._futures))
        at = 0
        for row, chain in enumerate(self._chains):
            if chain is not None:
                found[row] = chain.step(_normal_cdf(normal[at]), self._rng)
                at += 1
        return found


class _Chain:
    """The run states of one offering in every future, each by a law of its own."""

    def __init__(
        self,
        law: MarketLaw,
        alike: Sequence[MarketLaw],
        known: IntArray,
        days: FloatArray,
        rng: np.random.Generator,
    ) -> None:
        """`days` are two normal numbers of each future: its pace, and its slant."""
        space = law.space
        self._law = law
        self._ages = space.ages
        matrix = law.run_matrix()
        states = run_states(space, known)
        seen = transitions(space, known).sum(axis=1)
        evidence = np.minimum(_MOST_EVIDENCE, seen) + _ASSUMED_MOVES
        futures = days.shape[0]
        # Each future has a law of its own: a Dirichlet draw round the learned one, or a lent one.
        matrices = np.stack([matrix, *(other.run_matrix() for other in alike)])
        lent = rng.random(futures) < _LENT_SHARE
        lender = rng.integers(0, len(matrices), futures)
        ruled = matrices[np.where(lent, lender, 0)]
        drawn = rng.standard_gamma(ruled * evidence[None, :, None])
        level = np.arange(space.run_states) // space.ages
        way = np.sign(level[:, None] - level[None, :])
        changes = int(np.count_nonzero(np.diff(states // space.ages)))
        sigma = np.sqrt(_LEAVING_SIGMA**2 + 1.0 / (changes + 4.0))
        pace, slant = sigma * days[:, :1, None], _SLANT_SIGMA * days[:, 1:, None]
        drawn = drawn * np.exp(np.where(way[None] != 0, pace + slant * way[None], 0.0)) + 1e-12
        self._cumulative = np.cumsum(drawn / drawn.sum(axis=2, keepdims=True), axis=2)
        self._state = np.full(futures, int(states[-1]), dtype=np.int64)
        self._count = np.full(futures, int(known[-1]), dtype=np.int64)
        self._places = _places(law, known)
        stays = np.diff(states // space.ages) == 0
        moved = np.count_nonzero(np.diff(known)[stays])
        self._redrawn = (moved + 0.5) / (np.count_nonzero(stays) + 1.0)
        self._at = np.arange(futures)

    def surprises(self, counts: IntArray) -> FloatArray:
        """Normal scores of what the law did not expect of the past; NaN where it was not known."""
        space, matrix = self._law.space, self._law.run_matrix()
        states = run_states(space, np.maximum(counts, 0))
        upto = np.cumsum(matrix, axis=1)[states[:-1], states[1:]]
        middle = upto - matrix[states[:-1], states[1:]] / 2.0
        scores = np.array([_NORMAL.inv_cdf(min(0.999, max(0.001, m))) for m in middle])
        scores[(counts[:-1] < 0) | (counts[1:] < 0)] = np.nan
        return scores

    def step(self, level: FloatArray, rng: np.random.Generator) -> IntArray:
        """The counts of the next slot, by a uniform number each: the smaller, the fewer."""
        rows = self._cumulative[self._at, self._state]
        after = np.minimum((level[:, None] >= rows).sum(axis=1), rows.shape[1] - 1)
        moved = after // self._ages != self._state // self._ages
        fresh = moved | (rng.random(level.size) < self._redrawn)
        pick = rng.random(level.size)
        for index, places in enumerate(self._places):
            here = fresh & (after // self._ages == index)
            self._count[here] = places[(pick[here] * len(places)).astype(np.int64)]
        self._state = after
        return self._count.copy()


def _lends(other: MarketLaw, law: MarketLaw) -> bool:
    """Whether a law tells the same states apart as another."""
    mine, its = law.space, other.space
    return (mine.level_starts, mine.age_starts) == (its.level_starts, its.age_starts)


def _places(law: MarketLaw, known: IntArray) -> list[IntArray]:
    """The counts that were seen at each level of a law, or the one that stands for it."""
    level = np.searchsorted(law.space.level_starts, known, side="right") - 1
    found = []
    for index, assumed in enumerate(law.level_counts):
        seen = known[level == index]
        found.append(seen if seen.size else np.array([assumed], dtype=np.int64))
    return found


def _mixing(scores: Sequence[FloatArray]) -> FloatArray:
    """What turns independent normal numbers into ones that go together as `scores` have."""
    size = len(scores)
    if not size:
        return np.zeros((0, 0))
    together = np.array(scores)
    together = together[:, ~np.isnan(together).any(axis=0)]
    assumed = np.full((size, size), _ASSUMED_CORRELATION) + (1 - _ASSUMED_CORRELATION) * np.eye(
        size
    )
    n = together.shape[1]
    if n < 3 or size == 1:
        return np.asarray(np.linalg.cholesky(assumed), dtype=np.float64)
    centred = together - together.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred**2).mean(axis=1))
    centred = centred / np.where(scale > 0.0, scale, 1.0)[:, None]
    found = centred @ centred.T / n
    # An offering that never surprised goes with nothing.
    np.fill_diagonal(found, 1.0)
    share = n / (n + _ASSUMED_SLOTS)
    return np.linalg.cholesky(share * found + (1.0 - share) * assumed + 1e-9 * np.eye(size))


_CDF_AT = np.linspace(-4.0, 4.0, 801)
_CDF = np.array([_NORMAL.cdf(x) for x in _CDF_AT])


def _normal_cdf(x: FloatArray) -> FloatArray:
    found: FloatArray = np.interp(x, _CDF_AT, _CDF)
    return found


# --- prices and on-demand stock ---------------------------------------------------------------


class _Prices:
    """Spot prices and on-demand stock of all offerings, a slot at a time.

    A price goes back to a mean that each future draws, at the rate that the past shows, and is
    moved by what moved it in past slots; in some futures by what moved another offering, the more
    the shorter the past: a price that has not moved yet may.
    """

    def __init__(self, past: _Past, futures: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._futures = futures
        log_price = past.log_price
        offerings, self._past_slots = log_price.shape
        self._price = np.repeat(log_price[:, -1:], futures, axis=1)
        mean = log_price.mean(axis=1, keepdims=True)
        moves = np.diff(log_price, axis=1)
        apart = (log_price - mean)[:, :-1]
        self._back = _return_of(moves, apart)
        left = moves + self._back * apart
        self._moves = left - left.mean(axis=1, keepdims=True) if left.size else left
        # Slots that are one price's memory tell one thing of its mean.
        told = np.maximum(1.0, self._past_slots * self._back / 2.0)
        unsure = log_price.std(axis=1, keepdims=True) / np.sqrt(told)
        self._mean = mean + unsure * rng.standard_normal((offerings, futures))
        self._least = log_price.min(axis=1, keepdims=True) - _BEYOND
        dearest = [np.log(max(1, past.last[i].on_demand_price_micro_usd)) for i in past.ids]
        highest = log_price.max(axis=1)
        top = np.maximum(highest, np.minimum(highest + _BEYOND, dearest))
        self._most = top[:, None]
        moved = np.flatnonzero((moves != 0.0).any(axis=1))
        own = np.repeat(np.arange(offerings)[:, None], futures, axis=1)
        lent = rng.random((offerings, futures)) < _ASSUMED_SLOTS / (
            self._past_slots + _ASSUMED_SLOTS
        )
        lenders = rng.random((offerings, futures))
        if moved.size:
            own = np.where(lent, moved[(lenders * moved.size).astype(np.int64)], own)
        # Whose changes move a price, by future.
        self._mover = own
        self._moved = np.isin(own, moved)
        stock = np.where(past.on_demand < 0, UNCOUNTED, past.on_demand)
        self._stock = stock
        self._at = np.full(futures, self._past_slots - 1, dtype=np.int64)

    def step(self) -> tuple[IntArray, IntArray]:
        """Prices and stock of the next slot, both of shape (offerings, futures)."""
        fresh = self._rng.random(self._futures) < 1.0 / _STRETCH_SLOTS
        anywhere = (self._rng.random(self._futures) * self._past_slots).astype(np.int64)
        again = self._at + 1
        wraps = again >= self._past_slots
        # Stock goes on from the present until a stretch ends; at the past's end it stays.
        self._at = np.where(fresh, anywhere, np.where(wraps, self._past_slots - 1, again))
        if self._moves.shape[1]:
            drawn = self._rng.integers(0, self._moves.shape[1], self._futures)
            at = np.where(wraps & ~fresh, drawn, np.maximum(0, self._at - 1))
            moves = self._moves[self._mover, at[None, :]]
            price = self._price + moves - self._back * (self._price - self._mean)
            price = np.clip(price, self._least, self._most)
            self._price = np.where(self._moved, price, self._price)
        cost = np.maximum(1, np.rint(np.exp(self._price))).astype(np.int64)
        return cost, self._stock[:, self._at]


def _return_of(moves: FloatArray, apart: FloatArray) -> FloatArray:
    """The share of its distance from the mean that a price goes back in a slot, by offering."""
    spread: FloatArray = (apart**2).sum(axis=1)
    weight = _ASSUMED_SLOTS * np.where(spread > 0.0, spread / max(1, apart.shape[1]), 1.0)
    back: FloatArray = (weight * _ASSUMED_RETURN - (moves * apart).sum(axis=1)) / (spread + weight)
    found: FloatArray = np.clip(back, _LEAST_RETURN, 1.0, dtype=np.float64)[:, None]
    return found
