"""Answers of the protocols `query` and `ec2`: XML, as botocore's parsers read it."""

from __future__ import annotations

import base64
import math
import re
from typing import Any

from spotline.rehearsal.aws.wire.models import WireShape, flattened, read_time

# A carriage return that is not written as a reference is read as a line feed (XML 1.0, 2.11).
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})
# All but the characters of XML 1.0, 2.2.
_UNWRITABLE = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def escape(text: str) -> str:
    """A text as XML may carry it.

    Raises
    ------
    ValueError
        It holds a character that XML 1.0 has no way to write.
    """
    beyond = _UNWRITABLE.search(text)
    if beyond is not None:
        raise ValueError(f"XML cannot carry the character U+{ord(beyond[0]):04X}")
    return text.translate(_ESCAPES)


def element(name: str, inner: str) -> str:
    """An element around XML that is escaped already."""
    return f"<{name}>{inner}</{name}>"


def write_members(value: dict[str, Any], shape: WireShape) -> str:
    """A structure's members, in order of the shape, from a value that fits it."""
    return "".join(
        _member(shape.members[name], name, value[name]) for name in shape.members if name in value
    )


def _member(shape: WireShape, name: str, value: Any) -> str:
    tag = str(shape.serialization.get("name", name))
    if shape.type_name == "list":
        inner = shape.member.serialization.get("name")
        if flattened(shape):
            return "".join(_member(shape.member, str(inner or tag), each) for each in value)
        items = (_named(shape.member, str(inner or "member"), each) for each in value)
        return element(tag, "".join(items))
    if shape.type_name == "map":
        entries = [_entry(shape, key, inner) for key, inner in value.items()]
        if flattened(shape):
            return "".join(element(tag, entry) for entry in entries)
        return element(tag, "".join(element("entry", entry) for entry in entries))
    return _named(shape, tag, value)


def _entry(shape: WireShape, key: Any, value: Any) -> str:
    key_tag = str(shape.key.serialization.get("name") or "key")
    value_tag = str(shape.value.serialization.get("name") or "value")
    return _named(shape.key, key_tag, key) + _named(shape.value, value_tag, value)


def _named(shape: WireShape, tag: str, value: Any) -> str:
    """An element of that very name, whatever its shape would be called by itself."""
    if shape.type_name == "structure":
        return element(tag, write_members(value, shape))
    if shape.type_name in ("list", "map"):
        # Of a list in a list, only what is inside its own element counts.
        whole = _member(shape, tag, value)
        own = str(shape.serialization.get("name", tag))
        return element(tag, whole.removeprefix(f"<{own}>").removesuffix(f"</{own}>"))
    return element(tag, escape(_scalar(shape, value)))


def _scalar(shape: WireShape, value: Any) -> str:
    kind = shape.type_name
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return _time(shape, value)
    if kind == "blob":
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return base64.b64encode(raw).decode("ascii")
    if kind in ("float", "double"):
        return repr(float(value)) if math.isfinite(value) else str(value)
    return str(value)


def _time(shape: WireShape, value: object) -> str:
    moment = read_time(value)
    if shape.serialization.get("timestampFormat") == "unixTimestamp":
        return str(moment.timestamp())
    # As EC2 writes it: milliseconds, always three of them.
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
