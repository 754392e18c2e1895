"""Input that went wrong: bytes and texts changed at random, the same for the same seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\n", b"{", b"[", b'"', b"\xff\xff\xff\xff\x0f")
STRANGE_WORDS = (
    *("", "null", "true", "-1", "0", "1e400", "-1e400", "nan", ".inf", "1e30", "9" * 60, "0x7f"),
    *(
        "[]",
        "{}",
        "[[[[[[1]]]]]]",
        "{a: {b: {c: 1}}}",
        "&a [1, 2]",
        "*a",
        "!!python/object:os.system x",
    ),
    *('"\\e[2J"', "x" * 5_000, "2026-99-99T99:99:99Z", "\u202e", "- - - -", "<<: *a", "? ", "|"),
    *("~", "01:02", "1_000", "9223372036854775808", "!!binary aGk=", "!!set {a}", "%YAML 9"),
)
STRANGE_VALUES = (
    *(None, True, -1, 0, 2**63, 2**200, 1e308, float("nan"), float("inf"), "", "x" * 5_000),
    *("\x1b[2J", "\ud800", [], [[]], {}, {"a": {}}, [None], "1e400", "NaN", -(2**63) - 1),
)


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes flipped, put in, taken out, doubled, or the end cut off."""
    held = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(held) + 1)
        match rng.randrange(6):
            case 0 if held:
                held[min(at, len(held) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                held[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                del held[at : at + rng.randint(1, 16)]
            case 3:
                held[at:at] = held[at : at + rng.randint(1, 64)]
            case 4:
                del held[at:]
            case _:
                held[at : at + 1] = rng.choice(INTERESTING)
    return bytes(held)


def changed_text(text: str, rng: random.Random) -> str:
    """Words replaced by strange ones, lines moved, doubled or indented otherwise."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 1 if len(lines) > 1:
                del lines[at]
            case 2:
                lines[at] = " " * rng.randint(0, 9) + lines[at].lstrip()
            case _:
                words = re.split(r"([\s,:{}\[\]]+)", lines[at])
                words[rng.randrange(len(words))] = rng.choice(STRANGE_WORDS)
                lines[at] = "".join(words)
    return "\n".join(lines)


def changed_value(value: Any, rng: random.Random) -> Any:
    """A value of JSON with some of its parts replaced by strange ones, doubled or taken out."""
    held = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        places = list(_places(held))
        holder, key = rng.choice(places)
        if rng.randrange(5) == 0:
            del holder[key]
            if not list(_places(held)):
                return held
        else:
            holder[key] = deepcopy(rng.choice(STRANGE_VALUES))
    return held


def _places(held: Any) -> Iterator[tuple[Any, Any]]:
    keys = held if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
    for key in list(keys):
        yield held, key
        yield from _places(held[key])


def only_raises(
    read: Callable[[], object], allowed: tuple[type[BaseException], ...], said: str
) -> bool:
    """Whether `read` took it; anything but the errors that are allowed fails with `said`."""
    try:
        read()
    except allowed:
        return False
    except BaseException as error:
        raise AssertionError(f"{said}: {error!r}") from error
    return True
