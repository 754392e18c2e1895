"""Bodies of the protocol `json`, both ways."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from typing import Any

from spotline.rehearsal.aws.wire.models import WireShape, read_time
from spotline.rehearsal.aws.wire.scalars import BadParameter, check_limits, scalar

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "character": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "float": (int, float, str),
    "double": (int, float, str),
    "timestamp": (int, float, str),
    "blob": (str,),
    "list": (list,),
    "map": (dict,),
    "structure": (dict,),
}


def read_json(
    body: bytes, shape: WireShape | None, found: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read the input shape's members, beside those that were `found` elsewhere.

    Raises
    ------
    BadParameter
        It is no JSON object, or a parameter is missing, unknown, or not what it should be.
    """
    try:
        document = json.loads(body.decode("utf-8")) if body else {}
    except ValueError as error:
        raise BadParameter("malformed", "", f"the body must be a JSON object: {error}") from error
    if not isinstance(document, dict):
        raise BadParameter("malformed", "", "the body must be a JSON object")
    if shape is None:
        if document:
            raise BadParameter("unknown", min(document), f"{min(document)} is not expected")
        return {}
    return _read_structure(shape, document, "", found or {})


def _read_structure(
    shape: WireShape, document: dict[str, Any], path: str, found: Mapping[str, Any]
) -> dict[str, Any]:
    wire = {
        str(member.serialization.get("name", name)): name
        for name, member in shape.members.items()
        if "location" not in member.serialization
    }
    read: dict[str, Any] = dict(found)
    for key, value in document.items():
        where = f"{path}.{key}" if path else key
        if key not in wire:
            raise BadParameter("unknown", where, f"{where} is not a parameter")
        if value is not None:
            read[wire[key]] = _read(shape.members[wire[key]], value, where)
    for name in shape.metadata.get("required", ()):
        if name not in read:
            where = f"{path}.{name}" if path else name
            raise BadParameter("missing", where, f"Value null at '{where}' failed to satisfy constraint: "
                        "Member must not be null")  # fmt: skip
    return read


def _read(shape: WireShape, value: Any, path: str) -> Any:
    kind = shape.type_name
    allowed = _PYTHON_TYPES[kind]
    document: Any = value
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise BadParameter("type", path, f"{path} must be a {kind}, was {json.dumps(value)[:60]}")
    if kind == "structure":
        return _read_structure(shape, document, path, {})
    if kind == "list":
        read = [
            _read(shape.member, element, f"{path}.{at}") for at, element in enumerate(document, 1)
        ]
        check_limits(shape, read, path)
        return read
    if kind == "map":
        return {key: _read(shape.value, inner, f"{path}.{key}") for key, inner in document.items()}
    # Numbers and booleans go by JSON's own text, which is what forms have.
    return scalar(shape, value if isinstance(value, str) else json.dumps(value), path)


def write_json(value: Any, shape: WireShape) -> Any:
    """What `json.dumps` takes, from a value that fits its shape."""
    kind = shape.type_name
    if kind == "structure":
        return {
            str(shape.members[name].serialization.get("name", name)): write_json(
                inner, shape.members[name]
            )
            for name, inner in value.items()
        }
    if kind == "list":
        return [write_json(element, shape.member) for element in value]
    if kind == "map":
        return {str(key): write_json(inner, shape.value) for key, inner in value.items()}
    if kind == "timestamp":
        return _seconds(value)
    if kind == "blob":
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return base64.b64encode(raw).decode("ascii")
    if kind in ("float", "double"):
        return _finite(float(value))
    return value


def _seconds(value: object) -> float | int:
    # Never by a float: 0.166 s is 165.99 ms in one.
    milliseconds = (read_time(value) - _EPOCH) // datetime.timedelta(milliseconds=1)
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
