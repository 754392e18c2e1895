"""Values that fit a shape of botocore's, drawn by hypothesis."""

from __future__ import annotations

import datetime
import string

from hypothesis import strategies as st

_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\r\t\n&<>\"' "),
    max_size=12,
)
_MOMENTS = st.integers(946_684_800_000, 4_000_000_000_000).map(
    lambda ms: (
        datetime.datetime.fromtimestamp(ms // 1000, tz=datetime.UTC)
        + datetime.timedelta(milliseconds=ms % 1000)
    )
)
_DEEP = 3


@st.composite
def values(draw, shape, depth=0):
    kind = shape.type_name
    if kind == "structure":
        return draw(_structures(shape, depth))
    least = shape.metadata.get("min", 0)
    if kind == "list":
        count = draw(st.integers(max(least, 1), max(least, 2)))
        return [draw(values(shape.member, depth + 1)) for _ in range(count)]
    if kind == "map":
        keys = draw(st.lists(values(shape.key, depth + 1), min_size=1, max_size=2, unique=True))
        return {key: draw(values(shape.value, depth + 1)) for key in keys}
    return draw(_scalars(shape, kind, least))


@st.composite
def _structures(draw, shape, depth):
    required = set(shape.metadata.get("required", ()))
    optional = [
        name
        for name, member in shape.members.items()
        if name not in required
        and (depth < _DEEP or member.type_name not in ("structure", "list", "map"))
    ]
    if shape.metadata.get("union"):
        chosen = {draw(st.sampled_from(sorted(optional)))}
    else:
        few = st.lists(st.sampled_from(optional), max_size=3) if optional else st.just([])
        chosen = {*required, *draw(few)}
        if not chosen and optional:
            chosen = {optional[0]}
    return {
        name: draw(values(shape.members[name], depth + 1))
        for name in shape.members
        if name in chosen
    }


def _scalars(shape, kind, least):
    most = shape.metadata.get("max")
    if shape.serialization.get("location") == "uri":
        # A path cannot say nothing, and "." and ".." are not what they seem.
        return st.text(
            string.ascii_letters + "/ %:", min_size=max(least, 1), max_size=max(least, 8)
        )
    if kind in ("string", "character"):
        if shape.metadata.get("enum"):
            return st.sampled_from(shape.metadata["enum"])
        long = st.text(string.ascii_letters, min_size=least, max_size=max(least, 3))
        return long if least else _TEXT.map(lambda text: text[:most])
    if kind in ("integer", "long"):
        bound = 2**31 - 1
        return st.integers(
            max(least if "min" in shape.metadata else -bound, -bound), min(most or bound, bound)
        )
    if kind in ("float", "double"):
        return st.floats(max(least, -1e9), min(most or 1e9, 1e9), allow_nan=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "timestamp":
        return _MOMENTS
    if kind == "blob":
        return st.binary(min_size=least, max_size=max(least, 8))
    raise AssertionError(f"{kind} is no kind of scalar")


def without_nothing(value):
    """What is left of a value once empty structures are: a form cannot say them."""
    if isinstance(value, dict):
        kept = {name: without_nothing(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in ({}, [])}
    if isinstance(value, list):
        return [inner for inner in map(without_nothing, value) if inner not in ({}, [])]
    return value
