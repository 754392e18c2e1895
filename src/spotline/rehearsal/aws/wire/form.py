"""Requests of the protocols `query` and `ec2`: a form, whose dotted keys are read by shapes."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotline.rehearsal.aws.wire.models import WireShape, flattened
from spotline.rehearsal.aws.wire.scalars import BadParameter, check_limits, scalar

# Of every request of these protocols; no shape has them.
ACTION, VERSION = "Action", "Version"
_DEEPEST = 24


@dataclass(slots=True)
class _Node:
    """What lies under a dotted key: a text of its own, or further keys."""

    text: str | None = None
    children: dict[str, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """A request as its form says it, not yet read by a shape."""

    action: str
    version: str
    root: _Node


def read_form(body: bytes) -> RequestForm:
    """Read a form.

    Raises
    ------
    BadParameter
        It is no form, says a key twice, or has no action.
    """
    try:
        pairs = urllib.parse.parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, strict_parsing=bool(body), errors="strict"
        )
    except ValueError as error:
        raise BadParameter("malformed", "", f"the body must be a form: {error}") from error
    named: dict[str, str] = {}
    for key, value in pairs:
        if key in named:
            raise BadParameter("malformed", key, f"The parameter {key} has already been specified")
        named[key] = value
    action, version = named.pop(ACTION, ""), named.pop(VERSION, "")
    if not action:
        raise BadParameter("missing", ACTION, f"The request must contain the parameter {ACTION}")
    root = _Node()
    for key, value in named.items():
        _plant(root, key, value)
    return RequestForm(action=action, version=version, root=root)


def read_members(
    form: RequestForm, shape: WireShape | None, *, lists_are_numbered_at_once: bool
) -> dict[str, Any]:
    """Read the input shape's members out of a form.

    Parameters
    ----------
    lists_are_numbered_at_once
        True for `ec2`, which writes `Filter.1.Name` where `query` has `Filters.member.1.Name`.

    Raises
    ------
    BadParameter
        A parameter is missing, unknown, or not what it should be.
    """
    reader = _Reader(of_ec2=lists_are_numbered_at_once)
    if shape is None:
        reader.refuse_rest(form.root, set(), "")
        return {}
    return reader.structure(shape, form.root, "")


def _plant(root: _Node, key: str, value: str) -> None:
    node = root
    parts = key.split(".")
    if len(parts) > _DEEPEST or not all(parts):
        raise BadParameter("unknown", key, f"The parameter {key} is not recognized")
    for part in parts:
        node = node.children.setdefault(part, _Node())
    node.text = value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    of_ec2: bool

    def structure(self, shape: WireShape, node: _Node, path: str) -> dict[str, Any]:
        if node.text:
            raise BadParameter(
                "unknown", path, f"The parameter {path} must have members, was a text"
            )
        read: dict[str, Any] = {}
        known: set[str] = set()
        for name, member in shape.members.items():
            wire = self._wire_name(member, name)
            known.add(wire)
            child = node.children.get(wire)
            if child is not None:
                read[name] = self._value(member, child, f"{path}.{wire}" if path else wire)
        self.refuse_rest(node, known, path)
        for name in shape.metadata.get("required", ()):
            if name not in read:
                wire = self._wire_name(shape.members[name], name)
                missing = f"{path}.{wire}" if path else wire
                raise BadParameter(
                    "missing", missing, f"The request must contain the parameter {missing}"
                )
        return read

    def refuse_rest(self, node: _Node, known: set[str], path: str) -> None:
        for name in node.children:
            if name not in known:
                full = f"{path}.{name}" if path else name
                raise BadParameter("unknown", full, f"The parameter {full} is not recognized")

    def _wire_name(self, member: WireShape, name: str) -> str:
        """As botocore's serialisers name a member."""
        written = member.serialization
        if self.of_ec2:
            if "queryName" in written:
                return str(written["queryName"])
            given = str(written.get("name", name))
            return given[0].upper() + given[1:]
        if member.type_name == "list" and flattened(member):
            inner = member.member.serialization.get("name")
            if inner:
                return str(inner)
        return str(written.get("name", name))

    def _value(self, shape: WireShape, node: _Node, path: str) -> Any:
        if shape.type_name == "structure":
            return self.structure(shape, node, path)
        if shape.type_name == "list":
            return self._list(shape, node, path)
        if shape.type_name == "map":
            return self._map(shape, node, path)
        if node.children or node.text is None:
            first = next(iter(node.children), "")
            raise BadParameter(
                "unknown", f"{path}.{first}", f"The parameter {path}.{first} is not known"
            )
        return scalar(shape, node.text, path)

    def _list(self, shape: WireShape, node: _Node, path: str) -> list[Any]:
        inner = "" if self.of_ec2 or flattened(shape) else self._inner(shape.member, "member")
        values = [
            self._value(shape.member, child, where)
            for where, child in self._numbered(node, inner, path)
        ]
        check_limits(shape, values, path)
        return values

    def _map(self, shape: WireShape, node: _Node, path: str) -> dict[str, Any]:
        key_name, value_name = self._inner(shape.key, "key"), self._inner(shape.value, "value")
        read: dict[str, Any] = {}
        for where, entry in self._numbered(node, "" if flattened(shape) else "entry", path):
            self.refuse_rest(entry, {key_name, value_name}, where)
            for needed in (key_name, value_name):
                if needed not in entry.children:
                    raise BadParameter("missing", f"{where}.{needed}", f"{where} needs {needed}")
            key = self._value(shape.key, entry.children[key_name], f"{where}.{key_name}")
            read[key] = self._value(
                shape.value, entry.children[value_name], f"{where}.{value_name}"
            )
        return read

    @staticmethod
    def _inner(shape: WireShape, default: str) -> str:
        return str(shape.serialization.get("name", default))

    def _numbered(self, node: _Node, inner: str, path: str) -> list[tuple[str, _Node]]:
        """Elements in order of their numbers, each with its path."""
        if node.text == "" and not node.children:
            return []  # how `query` writes an empty list
        if inner:
            self.refuse_rest(node, {inner}, path)
            path, node = f"{path}.{inner}", node.children.get(inner, _Node())
        numbers: Mapping[int, str] = {}
        if all(name.isdecimal() for name in node.children):
            numbers = {int(name): name for name in node.children}
        if node.text is not None or len(numbers) != len(node.children):
            raise BadParameter("malformed", path, f"The elements of {path} must be numbered")
        return [(f"{path}.{numbers[at]}", node.children[numbers[at]]) for at in sorted(numbers)]
