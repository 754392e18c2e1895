"""Reading how much work is done: lines of files and of output, numbers as people write them."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

_NUMBER = re.compile(
    r"\s*([+-]?(?:\d[\d,_]*)?(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*([kKmMgGbBtT]?)[a-zA-Z/%]*\s*"
)
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}

# A rate needs this long, and is of this much of late, wall seconds.
_SHORTEST_STRETCH_S = 1.0
_LONGEST_STRETCH_S = 600.0
_MOST_SAMPLES = 1000

_MOST_READ_BYTES = 4 << 20


def parse_amount(text: str) -> float | None:
    """Read a number such as `1,234`, `12.5k`, `3M` or `1.2e6 tokens`; None where it is none."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    try:
        amount = float(found[1].replace(",", "").replace("_", ""))
    except ValueError:
        return None
    amount *= _FACTORS[found[2].lower()]
    return amount if math.isfinite(amount) else None


class LineTail:
    """Reads what was appended to a file, in whole lines.

    A file that is not there yet has none; one that became shorter is read from its beginning.

    Parameters
    ----------
    from_end
        Pass over what is there already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._partial = b""
        self._at = 0
        if from_end:
            try:
                self._at = path.stat().st_size
            except FileNotFoundError:
                self._at = 0

    def read(self, *, final: bool = False) -> list[str]:
        """The lines since the last call; with `final` also one without its end."""
        lines: list[str] = []
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._at:
                    self._at, self._partial = 0, b""
                file.seek(self._at)
                while data := file.read(_MOST_READ_BYTES):
                    self._at += len(data)
                    *whole, self._partial = (self._partial + data).split(b"\n")
                    lines += [line.decode("utf-8", "replace") for line in whole]
        except FileNotFoundError:
            pass  # the program has not made it yet
        if final and self._partial.strip():
            lines.append(self._partial.decode("utf-8", "replace"))
            self._partial = b""
        return lines


def reader_of_pattern(pattern: str) -> Callable[[str], float | None]:
    """Reads the work done off a line of output: the last match's group `done`."""
    compiled = re.compile(pattern)

    def read(line: str) -> float | None:
        done = None
        for match in compiled.finditer(line):
            if match["done"] is not None:
                done = parse_amount(match["done"])
        return done

    return read


def reader_of_field(name: str) -> Callable[[str], float | None]:
    """Reads the work done off a JSON line's field; `a.b` is the field b of the field a."""
    path = name.split(".")

    def read(line: str) -> float | None:
        try:
            value = json.loads(line)
        except ValueError:
            return None
        if isinstance(value, dict) and name in value:
            value = value[name]
        else:
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, str):
            return parse_amount(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) else None

    return read


class ProgressMeter:
    """Work done by one generation, and how fast of late.

    Parameters
    ----------
    market_s_per_s
        Market seconds in a second of wall time.
    """

    def __init__(self, market_s_per_s: float) -> None:
        self._market_s_per_s = market_s_per_s
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)
        self.done: float | None = None
        self.step = 0
        self.first_at_s: float | None = None

    def observe(self, done: float, at_s: float, *, step: int = 0) -> None:
        """Take in work done at a moment, wall seconds."""
        if done < 0:
            return
        if self.first_at_s is None:
            self.first_at_s = at_s
        if self._samples and (done < self._samples[-1][1] or at_s < self._samples[-1][0]):
            self._samples.clear()  # it went back to a checkpoint by itself
        self.done = done
        self.step = max(step, 0)
        self._samples.append((at_s, done))
        while len(self._samples) > 2 and at_s - self._samples[1][0] >= _LONGEST_STRETCH_S:
            self._samples.popleft()

    def disturb(self) -> None:
        """Begin a new stretch: what comes now says nothing of the speed of undisturbed work."""
        self._samples.clear()

    @property
    def rate_per_hour(self) -> float:
        """Work per market hour over the undisturbed stretch; 0 where that is too short."""
        if len(self._samples) < 2:
            return 0.0
        (begun_s, begun), (ended_s, ended) = self._samples[0], self._samples[-1]
        if ended_s - begun_s < _SHORTEST_STRETCH_S:
            return 0.0
        return (ended - begun) / ((ended_s - begun_s) * self._market_s_per_s) * 3600.0
