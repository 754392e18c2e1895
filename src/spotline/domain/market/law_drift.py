"""Whether a market still follows the law it used to: a sequential test with bounded false alarms.

What has been seen is explained in two ways: by one law all along, or by one law until some slot and
another since. Laws are unknown in both, so each stretch is weighed by its evidence (Dirichlet-
multinomial, the law integrated out), and change points are weighed by a prior. The ratio of the two
is a nonnegative martingale as long as nothing changes: it exceeds 1 / alpha ever, however often one
looks, with a chance of at most alpha (Ville 1939; e-processes after Ramdas, Gruenwald, Vovk and
Shafer, Statistical Science 2023). That holds for laws drawn from the prior; a fixed law raises
fewer alarms still, since the second law is one more to be paid for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spotline.domain.market.law import StateSpace, run_states

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Change points are looked for at every so many slots, with as many on either side at least.
SPLIT_SLOTS = 24
# Of a false alarm ever, for counts and for prices each.
ALPHA = 0.005
# Of the moves from a state, one observation's weight is spread over where they may lead.
_PRIOR_WEIGHT = 1.0


def changed_at(space: StateSpace, counts: IntArray, price_ppm: IntArray) -> int:
    """Find since when a series follows another law than before; 0 where nothing says so.

    Parameters
    ----------
    space
        What is told apart: levels of the count by age, and levels of the price.
    counts, price_ppm
        Spot instances and price in parts per million of on-demand, slot by slot, shape (slots,).

    Returns
    -------
    int
        The likeliest first slot of the present law, a multiple of `SPLIT_SLOTS`.
    """
    levels = len(space.level_starts)
    states = run_states(space, counts)
    centres = np.array(space.price_centres_ppm, dtype=np.int64)
    prices = np.abs(np.asarray(price_ppm)[:, None] - centres[None, :]).argmin(axis=1)
    found = 0
    for before, after, rows, columns in (
        (states, states // space.ages, space.run_states, levels),
        (prices, prices, space.price_states, space.price_states),
    ):
        if columns > 1:
            found = max(found, _change(before[:-1] * columns + after[1:], rows, columns))
    return found


def _change(moves: IntArray, rows: int, columns: int) -> int:
    """The change point of one chain; `moves` are row * columns + column."""
    splits = moves.size // SPLIT_SLOTS
    if splits < 2:
        return 0
    seen = np.zeros((splits, rows * columns), dtype=np.int64)
    block = np.arange(splits * SPLIT_SLOTS) // SPLIT_SLOTS
    np.add.at(seen, (block, moves[: block.size]), 1)
    until = seen.cumsum(axis=0)
    all_along = np.bincount(moves, minlength=rows * columns)
    shape = (-1, rows, columns)
    before = _log_evidence(until[:-1].reshape(shape))
    since = _log_evidence((all_along[None, :] - until[:-1]).reshape(shape))
    whole = float(_log_evidence(all_along.reshape(shape))[0])
    at = np.arange(1, splits)
    # Weights that sum to at most 1 for however long a series.
    ratio = before + since - whole - np.log(at * (at + 1.0))
    top = float(ratio.max())
    if top + np.log(np.exp(ratio - top).sum()) < -np.log(ALPHA):
        return 0
    return int(at[int(ratio.argmax())]) * SPLIT_SLOTS


def _log_evidence(seen: IntArray) -> FloatArray:
    """Logarithm of the chance of these moves, laws integrated out; `seen` (n, rows, columns)."""
    columns = seen.shape[2]
    share = _PRIOR_WEIGHT / columns
    longest = np.arange(int(seen.sum(axis=(1, 2)).max(initial=0)))
    moved = np.concatenate(([0.0], np.log(longest + share).cumsum()))
    left = np.concatenate(([0.0], np.log(longest + _PRIOR_WEIGHT).cumsum()))
    evidence: FloatArray = moved[seen].sum(axis=(1, 2)) - left[seen.sum(axis=2)].sum(axis=1)
    return evidence
