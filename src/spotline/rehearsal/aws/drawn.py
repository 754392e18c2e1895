"""Chance in the rehearsal: drawn from a seed and names, so that a run can be had again."""

from __future__ import annotations

import hashlib


def hexadecimal(digits: int, *names: object) -> str:
    """So many hexadecimal digits (<= 64) that depend on the names alone."""
    said = "\x1f".join(str(name) for name in names)
    return hashlib.sha256(said.encode()).hexdigest()[:digits]


def uniform(*names: object) -> float:
    """A number 0 <= x < 1 that depends on the names alone."""
    return int(hexadecimal(13, *names), 16) / 16**13


def between(least: float, most: float, *names: object) -> float:
    """A number least <= x < most that depends on the names alone; `least` where they are the same."""
    return least + (most - least) * uniform(*names)
