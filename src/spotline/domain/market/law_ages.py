"""How the chance that a run ends falls with its age, learned for all ages of a level together.

Few runs grow old, so what each age showed by itself is noise for a long time. Real runs are
heavy-tailed: the chance that one ends falls about as a power of its age. Where a law is learned from
little, ages are drawn towards that power instead of towards one chance for all ages.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Powers tried, and what is believed of them before anything is seen (normal): 0 is no memory, 1 what
# runs of infinite mean show. Assumed, not chosen by results.
_POWERS = np.linspace(0.0, 1.5, 31)
_POWER_MEAN = 0.5
_POWER_SPREAD = 0.5
# What is assumed before any run was seen, in ends and in slots.
_ENDS = 0.5
_SLOTS = 1.0
_LEAST = 1e-4
_MOST = 0.95


def slots_lasted(levels: IntArray) -> IntArray:
    """For how many slots each slot's level has been there, it included, shape of `levels`."""
    at = np.arange(levels.size)
    begins = np.append(True, levels[1:] != levels[:-1]) if levels.size else np.zeros(0, dtype=bool)
    lasted: IntArray = at - np.maximum.accumulate(np.where(begins, at, 0)) + 1
    return lasted


def ends_by_age(levels: IntArray, kinds: int, age_starts: tuple[int, ...]) -> FloatArray:
    """Chance that a run of each level ends in the next slot, as a power of its age.

    Parameters
    ----------
    levels
        Level of every slot of a series, each in 0..kinds - 1.
    age_starts
        First age of each bucket, in slots, ascending from 1.

    Returns
    -------
    FloatArray
        Shape (kinds, ages): in a row, never more for an older run than for a younger one.

    Notes
    -----
    The power of a level maximises the likelihood of its slots times a normal prior, on a grid; given the
    power, ends are as many as were seen. A bucket's age is the geometric mean of its slots'.
    """
    ages = len(age_starts)
    lasted = slots_lasted(levels)[:-1]
    before, ended = levels[:-1], levels[1:] != levels[:-1]
    age = np.searchsorted(age_starts, lasted, side="right") - 1
    slots, ends, logs = (np.zeros((kinds, ages)) for _ in range(3))
    np.add.at(slots, (before, age), 1.0)
    np.add.at(ends, (before, age), ended.astype(np.float64))
    np.add.at(logs, (before, age), np.log(lasted))
    chances = np.empty((kinds, ages))
    unseen = np.log(np.array(age_starts, dtype=np.float64))
    for level in range(kinds):
        seen = slots[level] > 0
        middle = np.where(seen, logs[level] / np.maximum(slots[level], 1.0), unseen)
        falls = np.exp(-_POWERS[:, None] * middle[None, :])
        scale = (ends[level].sum() + _ENDS) / (falls @ slots[level] + _SLOTS)
        tried = np.clip(scale[:, None] * falls, _LEAST, _MOST)
        likely = np.log(tried) @ ends[level] + np.log1p(-tried) @ (slots[level] - ends[level])
        likely -= 0.5 * ((_POWERS - _POWER_MEAN) / _POWER_SPREAD) ** 2
        chances[level] = tried[int(likely.argmax())]
    return chances


def ended_by_age(pooled: FloatArray, levels: IntArray, age_starts: tuple[int, ...]) -> FloatArray:
    """Chances of the next level by level and age, shape (kinds, ages, kinds).

    Runs end as `ends_by_age` says, and then lead where runs of their level lead at any age: `pooled`,
    shape (kinds, kinds), says so, staying included.
    """
    kinds = pooled.shape[0]
    if kinds == 1:
        return np.ones((1, len(age_starts), 1))
    ends = ends_by_age(levels, kinds, age_starts)[:, :, None]
    stay = np.eye(kinds)
    away = pooled * (1.0 - stay)
    away /= away.sum(axis=1, keepdims=True)
    chance: FloatArray = ends * away[:, None, :] + (1.0 - ends) * stay[:, None, :]
    return chance


def grown_older(chance: FloatArray, age_starts: tuple[int, ...]) -> FloatArray:
    """Chances of the next level as chances of the next run state, which runs grow older in.

    Parameters
    ----------
    chance
        Shape (levels, ages, levels). Nothing is known of how runs go from age to age: one slot in
        the width of a bucket leads into the next.
    """
    return aged(chance, np.broadcast_to(assumed_older(age_starts), chance.shape[:2]))


def aged(chance: FloatArray, grow: FloatArray) -> FloatArray:
    """Run states' transitions, shape (states, states), from those of levels and shares that age."""
    levels, ages = chance.shape[:2]
    matrix = np.zeros((levels, ages, levels, ages))
    for level in range(levels):
        for age in range(ages):
            matrix[level, age, :, 0] = chance[level, age]
            matrix[level, age, level, 0] = 0.0
            staying = chance[level, age, level]
            further = min(age + 1, ages - 1)
            share_older = float(grow[level, age]) if further != age else 0.0
            matrix[level, age, level, age] += staying * (1.0 - share_older)
            matrix[level, age, level, further] += staying * share_older
    return matrix.reshape(levels * ages, levels * ages)


def assumed_older(age_starts: tuple[int, ...]) -> FloatArray:
    """Chance that a run which goes on enters the next bucket: one in the width of its own."""
    widths = np.diff(np.array(age_starts, dtype=np.float64))
    return np.append(1.0 / np.maximum(widths, 1.0), 0.0)[None, :]
