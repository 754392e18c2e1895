"""Numbers that are drawn from a seed and what they are for, so that a run repeats itself."""

from __future__ import annotations

import hashlib

import numpy as np


def uniform(seed: int, *what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *what))).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def generator(*what: object) -> np.random.Generator:
    """A generator of numbers that depend on its arguments alone."""
    digest = hashlib.sha256("\x1f".join(map(str, what)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
