"""The tenants that a request names, by its descriptor: read, and filled in where they are left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_TENANT = "tenant"


def bind_tenant(request: Message, tenant: str) -> str:
    """Fill in `tenant` wherever a request leaves its tenant out.

    Returns
    -------
    str
        Another tenant that the request names, empty where it names none.
    """
    other = ""
    for part in _parts(request):
        stated: str = part.tenant
        if not stated:
            part.tenant = tenant
        elif stated != tenant:
            other = other or stated
    return other


def _parts(message: Any) -> Iterator[Any]:
    """The message and the parts of it that are there and have a tenant."""
    has_tenant, below = _plan(message.DESCRIPTOR)
    if has_tenant:
        yield message
    for name, repeated in below:
        if repeated:
            for part in getattr(message, name):
                yield from _parts(part)
        elif message.HasField(name):
            yield from _parts(getattr(message, name))


@cache
def _plan(kind: Descriptor) -> tuple[bool, tuple[tuple[str, bool], ...]]:
    """Whether a message has a tenant, and the fields below which some part has one."""
    below = tuple(
        (field.name, field.is_repeated)
        for field in kind.fields
        if field.message_type is not None
        and not field.message_type.GetOptions().map_entry
        and _reaches(field.message_type, frozenset({kind.full_name}))
    )
    return _has_tenant(kind), below


def _has_tenant(kind: Descriptor) -> bool:
    field = kind.fields_by_name.get(_TENANT)
    return field is not None and field.type == FieldDescriptor.TYPE_STRING


def _reaches(kind: Descriptor, above: frozenset[str]) -> bool:
    if _has_tenant(kind):
        return True
    return any(
        _reaches(field.message_type, above | {kind.full_name})
        for field in kind.fields
        if field.message_type is not None and field.message_type.full_name not in above
    )
