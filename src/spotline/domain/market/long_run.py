"""Where a chain of states is in the long run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Squarings: 16 million slots, far beyond what any law remembers.
_DOUBLED = 24


def long_run(matrix: FloatArray) -> FloatArray:
    """How often a chain is in each state after a long time, from anywhere alike, shape (states,).

    Parameters
    ----------
    matrix
        Probability of each state in the next slot, shape (states, states); rows sum to 1.
    """
    power = (matrix + np.eye(matrix.shape[0])) / 2.0  # the lazy chain has no period
    for _ in range(_DOUBLED):
        # Not by BLAS, which rounds as the processor likes: a log verifies on another one.
        power = np.einsum("st,tu->su", power, power)
        power /= power.sum(axis=1, keepdims=True)
    settled: FloatArray = power.mean(axis=0)
    return settled
