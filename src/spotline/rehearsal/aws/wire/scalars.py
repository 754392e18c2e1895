"""Scalars of requests: converted and held against their shape's limits."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotline.rehearsal.aws.wire.models import WireShape, read_time

# AWS adds instance types faster than SDKs learn of them, and market files invent some.
OPEN_ENUMS = frozenset({"InstanceType"})


class BadParameter(Exception):
    """A parameter that is not what its shape says.

    Parameters
    ----------
    kind
        `missing`, `unknown`, `type`, `range`, `enum` or `malformed`; each protocol and service has
        its own code for it.
    path
        The parameter, as it is called on the wire.
    """

    def __init__(self, kind: str, path: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.path = path
        self.sentence = sentence


def scalar(shape: WireShape, text: str, path: str) -> Any:
    """Convert a scalar's text.

    Raises
    ------
    BadParameter
        It is no text of its kind, or beyond its limits.
    """
    convert = _CONVERSIONS.get(shape.type_name)
    if convert is None:
        raise BadParameter("type", path, f"{path} must be a {shape.type_name}")
    try:
        value = convert(text)
    except (ValueError, binascii.Error, OverflowError) as error:
        raise BadParameter(
            "type", path, f"Value ({text}) for parameter {path} must be a {shape.type_name}"
        ) from error
    check_limits(shape, value, path)
    return value


def check_limits(shape: WireShape, value: Any, path: str) -> None:
    """Refuse what is shorter, longer, less, more or other than a shape allows.

    Raises
    ------
    BadParameter
        Naming the limit.
    """
    allowed: Sequence[str] = shape.metadata.get("enum", ())
    if allowed and shape.name not in OPEN_ENUMS and value not in allowed:
        # That AWS says of a well-formed value; an unknown one keeps to itself what is known.
        raise BadParameter(
            "enum", path, f"Value ({value}) for parameter {path} is invalid. "
            f"Valid values: {', '.join(allowed)}",
        )  # fmt: skip
    size = measure(value)
    if size is None:
        return
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        raise BadParameter(
            "range", path, f"Value ({value}) for parameter {path} is invalid. "
            f"Expecting at least {least}",
        )  # fmt: skip
    if most is not None and size > most:
        raise BadParameter(
            "range", path, f"Value ({value}) for parameter {path} is invalid. "
            f"Expecting at most {most}",
        )  # fmt: skip


def measure(value: Any) -> float | None:
    """What a shape's `min` and `max` speak of: a number itself, or a length; None: neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return len(value) if isinstance(value, str | bytes | list | Mapping) else None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) and text not in ("Infinity", "-Infinity", "NaN"):
        raise ValueError(text)
    return value


def _text(text: str) -> str:
    return text


def _blob(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_CONVERSIONS: Mapping[str, Callable[[str], Any]] = {
    "string": _text,
    "character": _text,
    "integer": int,
    "long": int,
    "boolean": _boolean,
    "float": _number,
    "double": _number,
    "timestamp": read_time,
    "blob": _blob,
}
