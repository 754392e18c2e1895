"""Write docs/asyncapi.yaml: what a client of the broker can follow, from subjects and protos.

python -m tools.document_asyncapi            write it
python -m tools.document_asyncapi --check    exit 1 where it is not as written
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor import FieldDescriptor

from spotline import __version__
from spotline.contracts.bus_access import tenant_subjects
from spotline.contracts.codec import message_type_of_kind
from spotline.contracts.envelope import CONTENT_TYPE, SPEC_VERSION
from spotline.contracts.subjects import (
    EVENT_TYPES,
    KINDS,
    ONLY_IN_BATCHES,
    PREFIX,
    ROUTES,
    SINGLE_KINDS,
    Route,
)
from spotline.domain.events.event import Event
from tools.documented import write_or_check

DOCUMENT = Path(__file__).parents[1] / "docs" / "asyncapi.yaml"
_HEAD = """# Made by `python -m tools.document_asyncapi` from the subjects and protos; a test holds it to both,
# and to the JSON schema of AsyncAPI 3.0.0.
"""
_ABOUT = """\
What a plain NATS client can follow of Spotline. A message is one protobuf message of `protos/`, named by
`x-protobuf-message`; its headers are those of CloudEvents in binary mode. Schemas show its JSON form (ProtoJSON).
Money is integer micro-USD, times are nanoseconds since the epoch, in the market's time.

A tenant's key (`spotline broker tenant`) hears what is its own, and publishes nothing; channels that it may
follow say so. A token of a subject is the value in lower case, with anything but `a-z 0-9 _ -` as `_`: two
values may share one, so compare the message's own field. Messages are published at least once: `ce-id` tells
repetitions. docs/clients.md has how to connect.
"""
_MEANS = {
    "tenant": "Tenant of the job, as a token.",
    "job_id": "Job, as a token.",
    "offering_id": "Offering, as a token.",
    "source": "Service that says it, or where a link begins, as a token.",
    "destination": "Where a link ends, as a token.",
    "region_id": "Region, as a token.",
}
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_SINT32: "int32",
}
_LONG = {
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_SINT64: "int64",
}


def document() -> dict[str, Any]:
    """The whole document, as what YAML is made of."""
    schemas: dict[str, Any] = {}
    channels, operations, messages = {}, {}, {}
    tenants = {
        subject.removesuffix(".t.>").removeprefix(PREFIX) for subject in tenant_subjects("t")
    }
    for kind in _followed():
        event_type, name = EVENT_TYPES[kind], _name(kind)
        channels[name] = _channel(kind, ROUTES[event_type], tenant=kind in tenants)
        messages[name] = _message(kind, event_type, schemas)
        operations[f"follow{name[0].upper()}{name[1:]}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": _summary(event_type),
        }
    return {
        "asyncapi": "3.0.0",
        "id": "urn:spotline:v1",
        "info": {
            "title": "Spotline",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "broker": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "description": "What `spotline up` prints; deploy/README.md has it with TLS and keys.",
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "messageTraits": {"cloudEvent": {"headers": _headers()}},
            "schemas": dict(sorted(schemas.items())),
        },
    }


def text() -> str:
    """The document as it is written."""
    return _HEAD + yaml.dump(
        document(), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as it reads."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _written(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _written)


def _followed() -> Iterator[str]:
    """Kinds that have a subject of their own, in the order of the table of routes."""
    for kind in KINDS.values():
        if kind in ONLY_IN_BATCHES or kind in SINGLE_KINDS:
            yield kind


def _name(kind: str) -> str:
    """A kind as a name: `job.checkpoint.failed` is `jobCheckpointFailed`."""
    head, *rest = kind.split(".")
    return head + "".join(word.capitalize() for word in rest)


def _channel(kind: str, route: Route, *, tenant: bool) -> dict[str, Any]:
    names = [field.rpartition(".")[2] for field in route.fields]
    names += ["source"] if route.by_source else []
    address = PREFIX + kind + "".join(f".{{{name}}}" for name in names)
    found: dict[str, Any] = {
        "address": address,
        "messages": {_name(kind): {"$ref": f"#/components/messages/{_name(kind)}"}},
    }
    if names:
        found["parameters"] = {name: {"description": _MEANS[name]} for name in names}
    found["description"] = (
        f"A tenant's key may follow `{PREFIX}{kind}.TENANT.>`."
        if tenant
        else "For operators: no tenant's key hears it."
    )
    return found


def _message(kind: str, event_type: type[Event], schemas: dict[str, Any]) -> dict[str, Any]:
    message = message_type_of_kind(kind)
    if message is None:
        raise ValueError(f"no protobuf message is known for {kind}")
    descriptor = message.DESCRIPTOR
    return {
        "name": descriptor.name,
        "title": _summary(event_type),
        "contentType": CONTENT_TYPE,
        "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
        "payload": _schema(descriptor, schemas),
        "x-ce-type": PREFIX + kind,
        "x-protobuf-file": f"protos/{descriptor.file.name}",
        "x-protobuf-message": descriptor.full_name,
    }


def _summary(event_type: type[Event]) -> str:
    """The first sentence of what an event is."""
    paragraph = (event_type.__doc__ or "").strip().split("\n\n")[0]
    return re.sub(r"\s+", " ", paragraph)


def _headers() -> dict[str, Any]:
    said = {
        "ce-specversion": {"const": SPEC_VERSION},
        "ce-id": {"description": "Names the event; a repetition has the same."},
        "ce-type": {"description": "What the message is: spotline.v1.KIND."},
        "ce-source": {"description": "The service that says it: spotline/SERVICE."},
        "ce-subject": {"description": "The job that it is about; absent where it is about none."},
        "ce-time": {
            "description": "When it happened, in the market's time.",
            "format": "date-time",
        },
        "ce-timens": {"description": "The same in nanoseconds since the epoch."},
        "ce-causationid": {"description": "The event that it follows from."},
        "ce-correlationid": {"description": "The event at the beginning of its chain."},
        "ce-index": {"description": "Tells apart what follows from the same event."},
        "content-type": {"const": CONTENT_TYPE},
        "Nats-Msg-Id": {"description": "ce-id, by which the broker leaves out repetitions."},
        "traceparent": {"description": "W3C trace context, where the sender traces."},
    }
    required = [
        *("ce-specversion", "ce-id", "ce-type", "ce-source", "ce-causationid", "ce-correlationid"),
        *("ce-index", "content-type", "Nats-Msg-Id"),
    ]
    return {
        "type": "object",
        "properties": {name: {"type": "string", **rest} for name, rest in said.items()},
        "required": required,
    }


def _schema(descriptor: Any, schemas: dict[str, Any]) -> dict[str, str]:
    """A reference to the schema of a message, which is added with all that it holds."""
    name = descriptor.full_name
    if name not in schemas:
        # First, so that a message that holds itself ends.
        schemas[name] = found = {"type": "object", "properties": {}}
        found["properties"] = {
            field.json_name: _property(field, schemas) for field in descriptor.fields
        }
    return {"$ref": f"#/components/schemas/{name}"}


def _property(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        value = inner.fields_by_name["value"]
        return {"type": "object", "additionalProperties": _single(value, schemas)}
    single = _single(field, schemas)
    return {"type": "array", "items": single} if field.is_repeated else single


def _single(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return dict(_schema(field.message_type, schemas))
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    if field.type in _LONG:
        return {"type": "string", "format": _LONG[field.type]}
    if field.type in _INTEGERS:
        return {"type": "integer", "format": _INTEGERS[field.type]}
    return dict(_OTHERS[field.type])


_OTHERS: Mapping[int, Mapping[str, str]] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
}


if __name__ == "__main__":
    raise SystemExit(write_or_check(DOCUMENT, lambda _: text(), __doc__ or ""))
