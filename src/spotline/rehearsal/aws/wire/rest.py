"""Requests of the protocol `rest-json`: an operation is a method and a path, members lie in both.

Only what FIS needs: members in the path, the query and the body; none in headers.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotline.rehearsal.aws.wire.json_body import read_json
from spotline.rehearsal.aws.wire.models import ServiceDescription, WireOperation, WireShape
from spotline.rehearsal.aws.wire.scalars import BadParameter, scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """What of an HTTP request says which call it is; path and query as they were sent."""

    body: bytes
    target: str = ""
    method: str = "POST"
    path: str = "/"
    query: str = ""


def find_operation(
    service: ServiceDescription, request: WireRequest
) -> tuple[WireOperation, dict[str, str]] | None:
    """The operation of a method and path, and the path's labels; None: there is none."""
    sent = request.path.strip("/").split("/")
    for name in service.operation_names():
        operation = service.operation(name)
        if operation is None or operation.http["method"] != request.method:
            continue
        pattern = operation.http["requestUri"].partition("?")[0].strip("/").split("/")
        labels = _labels(pattern, sent)
        if labels is not None:
            return operation, labels
    return None


def read_rest(
    request: WireRequest, shape: WireShape | None, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Read the input shape's members out of path, query and body.

    Raises
    ------
    BadParameter
        A parameter is missing, unknown, or not what it should be.
    """
    query = urllib.parse.parse_qs(request.query, keep_blank_values=True)
    found: dict[str, Any] = {}
    for name, member in ({} if shape is None else shape.members).items():
        wire = str(member.serialization.get("name", name))
        place = member.serialization.get("location")
        if place == "uri":
            found[name] = scalar(member, labels[wire], wire)
        elif place == "querystring" and wire in query:
            found[name] = _of_query(member, query.pop(wire), wire)
    if query:
        raise BadParameter("unknown", min(query), f"{min(query)} is not a parameter")
    return read_json(request.body, shape, found)


def _of_query(shape: WireShape, texts: list[str], wire: str) -> Any:
    if shape.type_name == "list":
        return [scalar(shape.member, text, wire) for text in texts]
    if len(texts) > 1:
        raise BadParameter("malformed", wire, f"{wire} is said {len(texts)} times")
    return scalar(shape, texts[0], wire)


def _labels(pattern: list[str], sent: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(sent):
        return None
    labels: dict[str, str] = {}
    for wanted, part in zip(pattern, sent, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            labels[wanted.strip("{}")] = urllib.parse.unquote(part)
        elif wanted != part:
            return None
    return labels
