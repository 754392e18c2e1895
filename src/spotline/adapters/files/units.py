"""Amounts as people write them: `300M`, `1.5B tokens`, `1d12h`, `7GB`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

A_DURATION = "seconds, or a duration such as 90s, 3m, 1h30m or 2d"
AN_AMOUNT = "a number, such as 64, 1.5e6 or 300M (k, M, B or G, T)"
A_SIZE = "a number of GB (10^9 bytes), or a size such as 500MB, 7GB or 1.5TB"

_NUMBER = r"(?P<number>[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_AMOUNT = re.compile(rf"{_NUMBER}\s*(?P<scale>[kKMBGT]?)(?:\s+(?P<unit>[A-Za-z_]+))?")
_SIZE = re.compile(rf"{_NUMBER}\s*(?P<unit>[kKMGT]i?B|B)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[wdhms]\s*)+")
_STEP = re.compile(r"(\d+(?:\.\d+)?)\s*([wdhms])")
_LONGEST = 64

_SCALES: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "B": 10**9,
    "G": 10**9,
    "T": 10**12,
}
_BYTES: Mapping[str, int] = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", start=1)},
    "KB": 1000,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_SECONDS: Mapping[str, int] = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}


def amount_of(text: str) -> tuple[float, str] | None:
    """Read `300M tokens` as its number and its unit (empty without one); None where it is none."""
    match = _AMOUNT.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number = float(Decimal(match["number"].replace("_", "")) * _SCALES[match["scale"]])
    return (number, match["unit"] or "") if math.isfinite(number) else None


def gigabytes_of(text: str) -> float | None:
    """Read `7GB` or `7GiB` as 10^9 bytes; None where it is no size with a unit."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or match["unit"] not in _BYTES:
        return None
    number = Decimal(match["number"].replace("_", "")) * _BYTES[match["unit"]] / 10**9
    return float(number) if math.isfinite(float(number)) else None


def seconds_of(text: str) -> int | None:
    """Read `1d12h` as seconds; None where it is no duration of whole seconds.

    Weeks, days, hours, minutes and seconds, each once at most, the longer ones first.
    """
    text = text.strip()
    if len(text) > _LONGEST or _DURATION.fullmatch(text) is None:
        return None
    steps = _STEP.findall(text)
    order = ["wdhms".index(unit) for _, unit in steps]
    if order != sorted(set(order)):
        return None
    total = sum((Decimal(number) * _SECONDS[unit] for number, unit in steps), Decimal(0))
    return int(total) if total == total.to_integral_value() else None


def duration_text(seconds: int) -> str:
    """Write seconds as `1d12h`."""
    parts = []
    for unit in "dhms":
        count, seconds = divmod(seconds, _SECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
